"""Stages that a compiler makes of Spark's own nodes, beside those nodes themselves: the same streams, the same results.

Every batch is followed by an empty one: Spark applies a new watermark in the batch after the next otherwise, fluxen in
the next one.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import fluxen as fx
from fluxen.engine.options import AdaptOptions
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
        events([1, 2, 2, 3], [160, 112, 119, 140], [9, 10, 11, 12]),  # the watermark is at 110: none is late
        events([1, 2, 3], [165, 140, 150], [13, 14, 15]),  # at 150: that of 2 is late, and what 3 had at 140 is closed
        events([4], [300], [16]),
    ]
    stream = feed(spark, spaced(rows), tmp_path / "input").withWatermark("ts", "10 seconds")
    drain(fx.aggregate(stream, "k", "ts", session="10 seconds", n=fx.count(), total=fx.sum("v")), collected)
    native = stream.groupBy("k", F.session_window("ts", "10 seconds"))
    expected = by_spark(native.agg(F.count("*").alias("n"), F.sum("v").alias("total")), tmp_path / "spark")
    assert collected.canonical() == expected
    assert len(expected) == 6
