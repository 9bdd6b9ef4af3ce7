"""Watermarks on real Spark: of the source's rows below filters, of withWatermark(), of idle inputs, of later stages."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

import fluxen as fx
from fluxen.errors import QueryError
from fluxen.spark.plan.sources import watched
from fluxen.testing import feed, feeds
from fluxen.testing.streams import append
from tests.spark.rows import events
from tests.spark.test_flush import start, until

pytestmark = pytest.mark.spark

# one row of key 1 and many rows that a filter hides
BATCHES = [events([1, 2, 2], [1, 2, 3], [1, 0, 0]), events([2, 2], [30, 40], [0, 0]), events([2], [50], [0])]
SECOND = 1_000_000


def counted(stream: Any, **options: Any) -> Any:
    query = fx.aggregate(stream, by="k", time="ts", window="5 seconds", n=fx.count(), **options)
    return query.adapt(sites=2, partitions=8)


def marks(run: Any) -> list[list[int]]:
    return [[w // SECOND for w in entry["stages"][0]["watermarks"]] for entry in run.epochs]


def plainly(stream: Any) -> Any:
    return stream.where("k = 1")


def renamed_in_a_view(stream: Any) -> Any:
    stream.withColumnRenamed("ts", "happened").createOrReplaceTempView("happenings")
    chosen = "select k, happened as ts, v from happenings where k = 1"
    return stream.sparkSession.sql(chosen)


def computed(stream: Any) -> Any:
    packed = stream.select(F.struct("k", "ts", "v").alias("body"))
    return packed.where("body is not null and body.k = 1").select("body.k", "body.ts", "body.v").where("v = 1")


def without_zone(stream: Any) -> Any:
    return stream.withColumn("ts", F.col("ts").cast("timestamp_ntz")).where("k = 1")


@pytest.mark.parametrize("filtered", [plainly, renamed_in_a_view, computed, without_zone])
def test_the_watermark_is_that_of_the_rows_below_a_filter(spark, drain, collected, filtered):
    run = drain(counted(filtered(feed(spark, BATCHES))), collected)
    assert [row["n"] for row in collected.rows] == [1]
    assert marks(run)[0] == [3]
    assert marks(run)[-1] == [50]
    # the window left although no row has come to a site since
    assert max(epoch for epoch, rows in collected.epochs.items() if rows) < len(collected.calls) - 1


def test_a_join_sees_below_the_filters_of_each_input(spark, drain, collected):
    streams = feeds(spark, {"a": BATCHES, "b": [events([1], [1], [5]), events([1], [2], [5]), events([1], [2], [5])]})
    query = fx.join({"a": streams["a"].where("k = 1"), "b": streams["b"]}, on="k", time="ts", within="5 seconds")
    run = drain(query.adapt(sites=2, partitions=8), collected)
    assert marks(run) == [[3, 1], [40, 2], [50, 2]]
    assert len(collected.rows) == 3


def test_a_filter_on_the_time_says_which_times_count(spark, drain, collected):
    stream = feed(spark, [events([1, 1], [1, 2_000_000_000], [1, 1])])
    run = drain(counted(stream.where("ts < timestamp'2030-01-01'")), collected)
    assert marks(run)[0] == [1]


def test_inputs_without_filters_are_left_as_they_are(spark):
    stream = feed(spark, BATCHES)
    assert watched(stream.select("k", "ts"), "ts", "x") is None
    assert watched(stream.where("k = 1").union(stream), "ts", "x") is None
    assert watched(stream.where("k = 1"), None, "x") is None
    assert watched(stream.where("k = 1"), "ts", "x") is not None


# ---- withWatermark()


def test_the_delay_of_with_watermark_is_the_inputs_lateness(spark, drain, collected):
    stream = feed(spark, BATCHES).withWatermark("ts", "10 seconds").where("k = 1")
    run = drain(counted(stream), collected)
    assert marks(run)[0] == [3 - 10]
    assert marks(run)[-1] == [50 - 10]
    again = counted(feed(spark, BATCHES).withWatermark("ts", "10 seconds"), lateness="10 seconds")
    assert again.plans[0].stage.lateness == (10 * SECOND,)
    streams = {"a": stream, "b": feed(spark, BATCHES)}
    joined = fx.join(streams, on="k", time="ts", within="1 second", lateness={"b": "3 seconds"})
    assert joined.plans[0].stage.lateness == (10 * SECOND, 3 * SECOND)


def test_rows_below_with_watermark_do_not_count(spark, drain, collected):
    stream = feed(spark, BATCHES).where("v = 1").withWatermark("ts", "0 seconds").where("k = 1")
    run = drain(counted(stream), collected)
    assert marks(run)[-1] == [1]


@pytest.mark.parametrize(
    "above",
    [
        lambda rows: rows.where("k = 1 AND ts < timestamp'1970-01-01 00:00:10'").groupBy(F.window("ts", "5 seconds")),
        lambda rows: rows.where("k = 1").groupBy(F.window("ts", "5 seconds", "3 seconds")),
        lambda rows: rows.withColumn("e", F.explode(F.expr("filter(array(k), x -> x = 1)"))).groupBy("e", "ts"),
        lambda rows: rows.join(rows.sparkSession.range(2).toDF("k"), "k").groupBy("k", F.window("ts", "5 seconds")),
    ],
    ids=["a filter on the time", "hopping windows", "explode", "a static table"],
)
def test_all_rows_that_with_watermark_was_put_on_count_whatever_is_above(spark, drain, collected, above):
    stream = feed(spark, BATCHES).withWatermark("ts", "0 seconds")
    run = drain(fx.query(above(stream).agg(F.count("v").alias("n"))).adapt(sites=2, partitions=8), collected)
    assert marks(run)[-1] == [50]
    assert [row["n"] for row in collected.rows] in ([1], [1, 1])


def test_with_watermark_is_never_ignored(spark):
    stream = feed(spark, BATCHES).withColumn("ts2", F.col("ts")).withWatermark("ts2", "10 seconds")
    with pytest.raises(QueryError, match="'ts2', but its time is 'ts'; pass time='ts2'"):
        counted(stream)
    with pytest.raises(QueryError, match="'ts2', but its time is 'ts'"):
        counted(stream.drop("ts2"))
    with pytest.raises(QueryError, match="its time is None"):
        fx.aggregate(stream, by="k", n=fx.count())
    with pytest.raises(QueryError, match=r"10000 milliseconds.*lateness is '5 seconds'; leave one of the two out"):
        fx.distinct(stream, by="k", time="ts2", lateness="5 seconds")


def test_a_later_stage_takes_its_watermark_from_the_stage_before(spark, drain, collected):
    stream = feed(spark, BATCHES).withWatermark("ts", "10 seconds")
    query = fx.distinct(stream, by=["k", "ts"], time="ts").aggregate(
        by="k", time="ts", window="5 seconds", n=fx.count()
    )
    run = drain(query.adapt(sites=2, partitions=8), collected)
    assert [w // SECOND for w in run.epochs[-1]["stages"][1]["watermarks"]] == [40]
    assert sorted((row["k"], row["n"]) for row in collected.rows) == [(1, 1), (2, 1), (2, 2)]
    assert run.epochs[-1]["late"] == 0


def test_windows_that_would_never_close_are_announced_when_the_query_is_built(spark):
    streams = {"a": feed(spark, BATCHES), "b": feed(spark, BATCHES)}
    with pytest.warns(UserWarning, match="windows over 'a_ts' close only at the end of input"):
        fx.join(streams, on="k", time="ts").aggregate(by="k", time="a_ts", window="5 seconds", n=fx.count())
    fx.join(streams, on="k", time="ts").aggregate(by="k", time="a_ts", n=fx.count())


# ---- idle inputs


def test_an_input_that_goes_idle_lets_windows_out_without_a_row(spark, collected, tmp_path):
    streams = feeds(spark, {"a": [events([1, 1], [1, 90], [1, 1])], "b": [events([1], [2], [1])]}, tmp_path / "input")
    joined = fx.join(streams, on="k", time="ts", within="10 seconds", idle={"b": "2 seconds"})
    query = joined.aggregate(by="k", time="a_ts", window="5 seconds", n=fx.count()).adapt(sites=2, partitions=8)
    run = start(query, collected, tmp_path)
    until(lambda: len(collected.rows) == 1, run)
    assert marks(run)[-1] == [90, 90]
    append(tmp_path / "input" / "b", 1, events([1], [3], [1]))
    until(lambda: any(entry["late"] for entry in run.epochs), run)
    run.stop()
    assert len(collected.rows) == 1


def test_idle_is_refused_where_it_would_do_nothing(spark):
    stream = feed(spark, BATCHES)
    with pytest.raises(QueryError, match="idle is for join"):
        counted(stream, idle="1 minute")
    with pytest.raises(QueryError, match="idle names input 'c'; there are: a, b"):
        fx.join({"a": stream, "b": stream}, on="k", time="ts", idle={"c": "1 minute"})
    with pytest.raises(QueryError, match="idle needs the event time"):
        fx.join({"a": stream, "b": stream}, on="k", idle="1 minute")
    with pytest.raises(QueryError, match="idle of 'a' must be positive"):
        fx.join({"a": stream, "b": stream}, on="k", time="ts", idle={"a": "0 seconds"})


def test_rows_without_a_key_move_the_watermark_of_a_join(spark, drain, collected):
    """They join nothing, but their source has come that far."""
    given = {"a": [events([1, None], [1, 60], [1, 1])], "b": [events([None, 1], [2, 3], [5, 5])]}
    query = fx.join(feeds(spark, given), on="k", time="ts", within="5 seconds")
    run = drain(query.adapt(sites=2, partitions=8), collected)
    assert marks(run) == [[60, 3]]
    assert [(row["k"], row["a_v"], row["b_v"]) for row in collected.rows] == [(1, 1, 5)]
    assert run.epochs[0]["rows_in"] == 2
