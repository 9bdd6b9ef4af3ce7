"""Stages that a compiler makes of Spark's own nodes, beside those nodes themselves: the same streams, the same results.

Every batch is followed by an empty one: Spark applies a new watermark in the batch after the next otherwise, fluxen in
the next one.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import fluxen as fx
from fluxen.engine.options import AdaptOptions
from fluxen.errors import QueryError
from fluxen.spark.plan.base import Given, StagePlan
from fluxen.spark.plan.rows import deduplicated_stage
from fluxen.testing import feed, oracle
from tests.spark.rows import events

pytestmark = pytest.mark.spark


def spaced(batches: list[pa.Table]) -> list[pa.Table]:
    return [table for batch in batches for table in (batch, batch.slice(0, 0))]


def by_spark(results: DataFrame, checkpoint: Any, mode: str = "append") -> list[str]:
    """What Spark itself brings of a streaming DataFrame."""
    found: list[dict[str, Any]] = []
    sink = results.writeStream.outputMode(mode).foreachBatch(
        lambda df, epoch: found.extend(row.asDict(recursive=True) for row in df.collect())
    )
    sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return oracle.canonical_rows(found)


def query_of(built: StagePlan) -> fx.Query:
    return fx.Query(last=built, options=AdaptOptions()).adapt(sites=2, partitions=8)


ROWS = [  # Spark takes times up to 1970 as late from the start
    events([1, 1, 2, 3], [100, 100, 101, 112], [5, 5, 5, 5]),
    events([1, 2, 4, 4], [103, 120, 104, 104], [5, 5, 5, 5]),  # the watermark is at 102
    events([1, 1, 2, 3, 4], [125, 124, 119, 121, 131], [5, 5, 5, 5, 5]),  # at 110: of 1 no row is known any more
]


@pytest.mark.parametrize(("expiry", "by"), [("time", ["k", "ts"]), ("watermark", ["k"])])
def test_duplicates_are_dropped_as_spark_drops_them(spark, drain, collected, tmp_path, expiry, by):
    stream = feed(spark, spaced(ROWS), tmp_path / "input").withWatermark("ts", "10 seconds")
    drain(query_of(deduplicated_stage(Given(df=stream), by, "ts", expiry)), collected)
    dropped = stream.dropDuplicatesWithinWatermark(by) if expiry == "watermark" else stream.dropDuplicates(by)
    # which of two rows of a batch comes first is Spark's secret
    shown = "k" if expiry == "watermark" else "*"
    found = oracle.canonical_rows([{name: row[name] for name in row if shown in ("*", name)} for row in collected.rows])
    assert found == by_spark(dropped.select(shown), tmp_path / "spark")
    assert len(found) == (11 if expiry == "time" else 5)


def test_sessions_are_those_of_spark(spark, drain, collected, tmp_path):
    rows = [
        events([1, 1, 1, 2], [100, 105, 116, 101], [1, 2, 3, 4]),  # 105 is covered until 115
        events([1, 1, 2, 3], [115, 119, 111, 120], [5, 6, 7, 8]),  # of 1, 115 makes one of all; of 2, 111 touches
        events([1, 2, 2, 3], [161, 112, 119, 140], [9, 10, 11, 12]),  # the watermark is at 110: none is late
        events([1, 2, 3], [165, 140, 150], [13, 14, 15]),  # at 151: that of 2 is late, and what 3 had at 140 is closed
        events([4], [300], [16]),
    ]
    stream = feed(spark, spaced(rows), tmp_path / "input").withWatermark("ts", "10 seconds")
    drain(fx.aggregate(stream, "k", "ts", session="10 seconds", n=fx.count(), total=fx.sum("v")), collected)
    native = stream.groupBy("k", F.session_window("ts", "10 seconds"))
    expected = by_spark(native.agg(F.count("*").alias("n"), F.sum("v").alias("total")), tmp_path / "spark")
    assert collected.canonical() == expected
    assert len(expected) == 6


def test_the_first_rows_are_those_that_row_number_has(spark, drain, collected, tmp_path):
    rows = [events([1, 1, 2, None], [3, 1, 2, 4], [5, 5, None, 1]), events([1, 2, 1, 3], [0, 9, 1, 7], [8, 2, 5, 3])]
    stream = feed(spark, rows, tmp_path / "input").withColumn("w", F.struct(F.col("ts").alias("end")))
    drain(fx.top(stream, "k", 2, [("v", "desc"), ("ts", "asc")]).adapt(sites=2, partitions=8), collected)
    latest = {(row["k"], row["rank"]): row for row in collected.rows}
    whole = spark.read.schema(stream.drop("w").schema).parquet(str(tmp_path / "input"))
    ranked = whole.withColumn("rank", F.row_number().over(Window.partitionBy("k").orderBy(F.desc("v"), "ts"))).where(
        "rank <= 2"
    )
    expected = oracle.canonical_rows(row.asDict() for row in ranked.collect())
    found = [{name: value for name, value in row.items() if name != "w"} for row in latest.values()]
    assert oracle.canonical_rows(found) == expected
    assert [len(collected.epochs[epoch]) for epoch in (0, 1)] == [4, 5]


def test_the_dearest_of_each_window_follow_each_other_to_the_next_stage(spark, drain, collected):
    rows = [events([1, 2, 1], [1, 2, 11], [5, 7, 9]), events([1, 2], [12, 35], [8, 1])]
    sums = fx.aggregate(feed(spark, rows), "k", "ts", window="10 seconds", n=fx.count(), total=fx.sum("v"))
    flat = sums.select("k", "window", F.col("window.end").alias("end"), "total")
    drain(flat.top("window", 1, [("total", "desc")], "end", closes="window").adapt(sites=2, partitions=8), collected)
    assert sorted((row["window"]["end"].second, row["k"], row["total"]) for row in collected.rows) == [
        (10, 2, 7),
        (20, 1, 17),
    ]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: fx.top(s, "k", 0, "v"), "n must be a whole number"),
        (lambda s: fx.top(s, "k", 1, [("v", "down")]), "direction of 'v' must be one of asc, desc"),
        (lambda s: fx.top(s, "k", 1, []), "order needs at least one column"),
        (lambda s: fx.top(s, "k", 1, ["v", ("v", "desc")]), "names 'v' twice"),
        (lambda s: fx.top(s, "k", 1, "v", "ts", closes="ts"), "must be one of the columns in by"),
        (lambda s: fx.top(s.withColumnRenamed("v", "rank"), "k", 1, "rank"), "'rank' would appear twice"),
        (lambda s: fx.aggregate(s, "k", "ts", session="1 s", emit="update", n=fx.count()), "cannot be updated"),
        (lambda s: fx.aggregate(s, "k", "ts", session="1 s", window="1 s", n=fx.count()), "does not go with window"),
        (lambda s: fx.aggregate(s, "k", session="1 s", n=fx.count()), "need the event time"),
        (lambda s: deduplicated_stage(Given(df=s), "k", "ts", "time"), "among the columns in by, got k"),
        (lambda s: deduplicated_stage(Given(df=s), "k", None, "watermark"), "needs the event time"),
    ],
)
def test_words_that_make_no_sense_are_refused(spark, build, message):
    with pytest.raises(QueryError, match=message):
        build(spark.readStream.format("rate").load().selectExpr("value as k", "timestamp as ts", "value as v"))
