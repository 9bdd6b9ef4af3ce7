"""Words beyond a single stage: stateless ones in between, queries as inputs, tables, results of any name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

import fluxen as fx
from fluxen.control.stage import Feed
from fluxen.errors import ConfigError, QueryError
from fluxen.spark.sinks.base import SinkWords
from fluxen.spark.sinks.registry import table_sink
from fluxen.testing import feed, feeds
from tests.spark.rows import events

pytestmark = pytest.mark.spark

SMALL = {"sites": 2, "partitions": 8}
BIDS = [
    events([1, 1, 2], [1, 2, 3], [10, 30, 5]),
    events([1, 2, 2], [11, 12, 13], [7, 9, 9]),
    events([3], [40], [1]),
]


@pytest.fixture(scope="module")
def bids(spark: Any, tmp_path_factory: Any) -> Any:
    return feed(spark, BIDS, tmp_path_factory.mktemp("bids") / "rows")


def at(second: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=second)


def highest(bids: Any) -> Any:
    """Each window's maximum, with the start of its window as event time."""
    best = fx.aggregate(bids, by="k", time="ts", window="10 seconds", most=fx.max("v"))
    return best.select("k", "most", F.col("window.start").alias("start"))


def feeds_of(query: Any) -> list[tuple[Feed, ...]]:
    return [plan.stage.feeds for plan in query.plans]


# ---- stateless words and event time


def test_an_event_time_stays_one_under_another_name(bids):
    joined = fx.join({"a": bids, "b": bids}, on="k", time="ts", within="5 seconds")
    renamed = (
        joined.select("k", F.col("a_ts").alias("moment"), "b_v").where("b_v > 0").withColumn("x", F.col("b_v") + 1)
    )
    assert renamed.columns == ["k", "moment", "b_v", "x"]
    counted = renamed.aggregate(by="k", time="moment", window="1 second", n=fx.count())
    assert feeds_of(counted) == [(), (Feed(stage=0, time="a_ts"),)]
    again = renamed.withColumn("later", F.col("moment")).distinct(by="k", time="later", within="1 second")
    assert feeds_of(again)[1] == (Feed(stage=0, time="a_ts"),)
    fields = highest(bids).distinct(by="k", time="start", within="1 second")
    assert feeds_of(fields)[1] == (Feed(stage=0, time="window.start"),)


def test_a_time_that_is_computed_is_a_sources(bids):
    shifted = fx.distinct(bids, by="v", time="ts").withColumn("ts", F.col("ts") + F.expr("interval 1 day"))
    assert feeds_of(shifted.distinct(by="k", time="ts"))[1] == (Feed(stage=0, time=None),)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (lambda query: query.select("nothing"), "select.*nothing"),
        (lambda query: query.where("nothing > 1"), "where.*nothing"),
        (lambda query: query.select(F.max("v")), "row by row, but this is a Spark Aggregate"),
        (lambda query: query.withColumn("r", F.row_number().over(Window.orderBy("v"))), "row by row"),
    ],
)
def test_words_that_are_not_row_by_row_are_refused(word, message, bids):
    with pytest.raises(QueryError, match=message) as raised:
        word(fx.distinct(bids, by="k"))
    assert "\n" not in str(raised.value)


def test_words_before_between_and_after_stages_do_what_they_say(spark, bids, drain, collected):
    """Windows of renamed, filtered results close as the first stage's watermark moves, without any lateness."""
    first = fx.distinct(bids, by=["k", "v"], time="ts").where("v > 5").select("k", F.col("ts").alias("at"), "v")
    summed = first.aggregate(by="k", time="at", window="10 seconds", total=fx.sum("v"))
    shown = summed.withColumn("twice", F.col("total") * 2).filter(F.col("k") < 3).select("k", "window.start", "twice")
    run = drain(shown.adapt(**SMALL), collected)
    found = sorted((row["k"], row["start"], row["twice"]) for row in collected.rows)
    assert found == [(1, at(0), 80), (1, at(10), 14), (2, at(10), 18)]
    assert run.epoch["late"] == 0


@pytest.mark.parametrize(
    "query",
    [
        lambda bids: fx.distinct(bids, by="v", time="ts").where("1 = 0").aggregate(by="k", n=fx.count()),
        lambda bids: fx.join({"a": bids, "b": fx.distinct(bids, by="v").where("1 = 0")}, on="k"),
        lambda bids: fx.aggregate(bids, by="k", time="ts", window="10 seconds", n=fx.count()).where("1 = 0"),
    ],
    ids=["between", "one input", "after"],
)
def test_stages_run_though_a_filter_lets_none_of_their_results_through(query, bids, drain, collected):
    """Spark sees that nothing comes of such a stage and leaves it out of the plan, but it has state to write."""
    run = drain(query(bids).adapt(**SMALL), collected, endOfInput=True)
    assert collected.rows == []
    assert all(sum(site["rows_in"] for site in entry["stages"][0]["sites"]) for entry in run.epochs[:3])


def test_a_row_may_be_in_thousands_of_windows(bids, drain, collected):
    hops = fx.aggregate(bids, by="k", time="ts", window="1 hour", slide="1 second", n=fx.count())
    drain(hops.aggregate(by="k", windows=fx.count(), rows=fx.sum("n")).adapt(**SMALL), collected, endOfInput=True)
    found = {row["k"]: (row["windows"], row["rows"]) for row in collected.rows}
    assert found == {1: (3610, 3 * 3600), 2: (3610, 3 * 3600), 3: (3600, 3600)}


# ---- queries as inputs


def test_a_query_used_twice_is_one_stage_and_a_stream_used_twice_one_source(bids, drain, collected):
    best = highest(bids)
    query = fx.join(
        {"bid": bids, "best": best, "other": best.where("most > 9")},
        on={"bid": ["k", "v"], "best": ["k", "most"], "other": ["k", "most"]},
        time={"bid": "ts", "best": "start", "other": "start"},
        within="10 seconds",
    )
    fed = Feed(stage=0, time="window.start")
    assert feeds_of(query) == [(), (Feed(), fed, fed)]
    assert [[df is bids for df in inputs] for inputs in query.inputs] == [[True], [True, False, False]]
    assert [[df is None for df in inputs] for inputs in query.inputs] == [[False], [False, True, True]]
    run = drain(query.adapt(**SMALL), collected, endOfInput=True)
    assert [(row["k"], row["v"]) for row in collected.rows] == [(1, 30)]
    assert len(run.epoch["stages"]) == 2


def test_parts_of_a_stage_have_one_layout(bids, spark):
    query = fx.join(
        {"bid": bids, "best": highest(bids)},
        on={"bid": ["k", "v"], "best": ["k", "most"]},
        time={"bid": "ts", "best": "start"},
        within="10 seconds",
    )
    plan = query.plans[-1]
    rows = spark.createDataFrame([(1, at(1), 10), (None, at(2), 10)], bids.schema)
    window = (at(0), at(10))
    results = spark.createDataFrame([(1, window, 10)], query.plans[0].schema)
    both = plan.project([rows, results])
    parts = plan.project([rows, None]).unionAll(plan.project([None, results]))
    for frame in (both, plan.project([rows, None]), plan.project([None, results])):
        assert [(f.name, f.dataType) for f in frame.schema] == [(f.name, f.dataType) for f in plan.wire_schema]
    assert sorted(map(str, both.collect())) == sorted(map(str, parts.collect()))
    assert both.count() == 3


def test_a_windows_maximum_is_joined_back_to_its_bids(bids, drain, collected):
    query = fx.join(
        {"bid": bids, "best": highest(bids)},
        on={"bid": ["k", "v"], "best": ["k", "most"]},
        time={"bid": "ts", "best": "start"},
        between={("bid", "best"): ("0 seconds", "9.999999 seconds")},
    )
    drain(query.adapt(**SMALL), collected, endOfInput=True)
    found = sorted((row["k"], row["v"], row["bid_ts"]) for row in collected.rows)
    assert found == [(1, 7, at(11)), (1, 30, at(2)), (2, 5, at(3)), (2, 9, at(12)), (2, 9, at(13)), (3, 1, at(40))]


def test_a_stream_that_two_stages_read_is_read_once_for_each(spark, bids, drain, collected):
    """To Spark a batch is one table of all sources; without care every stage reads the whole of it."""
    read = spark.sparkContext.accumulator(0)

    @F.udf("long")
    def noted(value):
        read.add(1)
        return value

    stream = bids.withColumn("v", noted("v"))
    joined = fx.join({"bid": stream, "best": highest(stream)}, on="k", time={"bid": "ts", "best": "start"}, ttl="1 day")
    drain(joined.adapt(**SMALL), collected)
    assert read.value == 2 * sum(table.num_rows for table in BIDS)


def test_joins_on_different_keys_follow_each_other(spark, drain, collected):
    streams = feeds(
        spark,
        {
            "orders": [events([1, 2], [1, 2], [100, 200])],
            "lines": [events([1, 1, 2], [2, 2, 3], [7, 8, 7])],
            "items": [events([7, 8, 9], [1, 1, 1], [70, 80, 90])],
        },
    )
    placed = fx.join({"order": streams["orders"], "line": streams["lines"]}, on="k", time="ts", within="1 minute")
    query = fx.join(
        {"placed": placed, "item": streams["items"]},
        on={"placed": "line_v", "item": "k"},
        time={"placed": "line_ts", "item": "ts"},
        within="1 minute",
    ).select("placed_k", F.col("line_v").alias("item"), "item_v")
    assert feeds_of(query) == [(), (Feed(stage=0, time="line_ts"), Feed())]
    drain(query.adapt(**SMALL), collected)
    found = sorted((row["placed_k"], row["item"], row["item_v"]) for row in collected.rows)
    assert found == [(1, 7, 70), (1, 8, 80), (2, 7, 70)]


def test_options_of_inputs_are_kept_unless_they_differ(bids):
    one, other = fx.distinct(bids, by="k").adapt(sites=2), fx.distinct(bids, by="v").adapt(sites=3)
    assert fx.join({"a": one, "b": bids}, on="k").options.sites == 2
    assert one.aggregate(by="k", n=fx.count()).options.sites == 2
    with pytest.raises(ConfigError, match="adapted in different ways"):
        fx.join({"a": one, "b": other}, on="k")


def test_options_of_stages_go_by_the_numbers_that_explain_gives_them(bids, capsys):
    mine = {1: {"memory_per_site": "1m", "policy": "flux-memory"}}
    one = fx.distinct(bids, by="k").adapt(sites=2, stages=mine)
    query = one.aggregate(by="k", n=fx.count())
    query.explain()
    said = capsys.readouterr().out.splitlines()
    assert said[1].startswith("stage 1 (distinct)")
    assert said[2] == "  by itself: memory_per_site 1m, policy FluxMemory"
    assert fx.join({"a": one, "b": bids}, on="k").options.at(0).memory == 1 << 20
    with pytest.raises(ConfigError, match="numbers, which change here"):
        fx.join({"a": fx.distinct(bids, by="v"), "b": one}, on="k")
    with pytest.raises(ConfigError, match="the query has 2"):
        _ = query.adapt(stages={3: {"policy": None}}).writeStream


# ---- results of any name


def test_results_may_have_the_names_of_keywords(bids):
    named = {"time": fx.max("v"), "last": fx.count(), "by": fx.min("v")}
    assert fx.aggregate(bids, by="k", aggregates=named, n=fx.count()).columns == ["k", "time", "last", "by", "n"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"aggregates": {"n": fx.count()}, "n": fx.count()}, "'n' is given as a keyword and in aggregates"),
        ({"time": fx.count()}, r"would be a keyword .* aggregates=\{'time': ...\}"),
        ({"aggregates": fx.count()}, r"aggregates=\{'aggregates': ...\}"),
        ({"aggregates": [fx.count()]}, "must be a dict .* got list"),
        ({"aggregates": {"n": 3}}, "n=3 is not an aggregate"),
        ({"aggregates": {}}, "at least one aggregate"),
        ({"aggregates": {1: fx.count()}}, "must be a string, got 1"),
    ],
)
def test_names_of_results_are_clear(words, message, bids):
    with pytest.raises(QueryError, match=message):
        fx.aggregate(bids, by="k", **words)


def test_names_that_cannot_be_told_apart_are_refused(bids):
    with pytest.raises(QueryError, match=r"key column 'a\.n' is named like a part of an aggregate"):
        fx.aggregate(bids.withColumnRenamed("k", "a.n"), by="a.n", a=fx.count())
    doubled = fx.distinct(bids, by="k").select("k", "k")
    with pytest.raises(QueryError, match="two columns named 'k'"):
        doubled.aggregate(by="k", n=fx.count())
    with pytest.raises(QueryError, match="two columns named 'k'"):
        fx.join({"a": doubled, "b": bids}, on="k")


# ---- adapt()


def test_two_calls_of_adapt_may_come_in_any_order(bids):
    query = fx.distinct(bids, by="k")
    one = query.adapt(policy="flux-memory").adapt(memory_per_site="64m").adapt(sites=2)
    other = query.adapt(sites=2, memory_per_site="64m").adapt(policy="flux-memory")
    assert one.options.memory == other.options.memory
    assert one.writeStream is not None
    assert query.adapt(balance="mslb").options == query.adapt(move_protocol="mslb").options
    assert one.adapt(memory_per_site=None).options.memory_per_site is None
    with pytest.raises(ConfigError, match="give memory_per_site as well"):
        _ = one.adapt(memory_per_site="unlimited").writeStream
    with pytest.raises(TypeError, match="site"):
        query.adapt(site=2)


# ---- toTable()


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> Iterator[str]:
    spark.sql(f"CREATE DATABASE IF NOT EXISTS words LOCATION '{tmp_path / 'warehouse'}'")
    yield "words.results"
    spark.sql("DROP DATABASE words CASCADE")


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_table_has_every_result_once(partitioned, spark, bids, table, tmp_path):
    query = fx.distinct(bids, by=["k", "v"], time="ts").adapt(**SMALL)

    def run() -> None:
        writer = query.writeStream.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True)
        writer.toTable(table, partitionBy=["k"] if partitioned else None).awaitTermination()

    expected = [(1, 7), (1, 10), (1, 30), (2, 5), (2, 9), (3, 1)]
    for _ in range(2):  # a second run finds the table and nothing to do
        run()
        assert sorted((row.k, row.v) for row in spark.table(table).collect()) == expected
    said = SinkWords(spark=spark, source="parquet", options={}, partition_by=[], name=None, schema=query.schema)
    last = spark.createDataFrame([(3, at(40), 1)], "k long, ts timestamp, v long").select(*query.columns)
    for _ in range(2):  # an epoch that is delivered again after a crash takes the place of its first delivery
        table_sink(table, said)(last, 99)
        assert spark.table(table).count() == len(expected) + 1


def test_a_table_of_other_columns_is_refused(spark, bids, table, tmp_path):
    spark.sql(f"CREATE TABLE {table} (k long, other string) USING parquet")
    writer = fx.distinct(bids, by="k").writeStream.option("checkpointLocation", str(tmp_path / "ck"))
    with pytest.raises(ConfigError, match="has the columns k bigint, other string, the results k bigint"):
        writer.toTable(table)
