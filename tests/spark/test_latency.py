"""Batches that follow a latency: the inner query is started again with other limits, and nothing is lost or doubled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluxen as fx
from fluxen.errors import ConfigError, FluxenError
from fluxen.testing import feed, oracle

pytestmark = pytest.mark.spark

TIME = pa.timestamp("us", "UTC")


def batches(count: int) -> list[pa.Table]:
    rng = np.random.default_rng(4)
    return [
        pa.table(
            {
                "k": rng.integers(0, 20, 30),
                "ts": pa.array(n * 1_000_000 + np.sort(rng.integers(0, 1_000_000, 30))).cast(TIME),
                "v": rng.integers(0, 100, 30),
            }
        )
        for n in range(count)
    ]


def last_three(stream: Any) -> Any:
    return fx.aggregate(stream, by="k", time="ts", n=fx.count(), total=fx.sum("v"), last=3).adapt(partitions=8)


def test_limits_grow_while_there_is_a_backlog_and_the_results_stay_the_oracles(spark, drain, collected):
    given = batches(40)
    run = drain(last_three(feed(spark, given)).adapt(latency="1 minute"), collected)
    expected = oracle.last(given, ["k"], "ts", 3, {"n": fx.count(), "total": fx.sum("v")})
    assert collected.canonical() == oracle.canonical_rows(expected)
    assert sorted(collected.epochs) == list(range(max(collected.epochs) + 1))
    resized = [event for event in run.events if event["kind"] == "resize"]
    assert resized
    assert "maxFilesPerTrigger=2" in resized[0]["what"]
    assert "is predicted" in resized[0]["why"]
    rows = [entry["fluxen"]["rows_in"] for entry in run.recentProgress if entry["fluxen"]]
    assert max(rows) >= 60
    assert sum(rows) == 40 * 30


def test_a_restart_goes_on_where_the_last_start_ended(spark, drain, collected, tmp_path):
    given = batches(24)
    query = last_three(feed(spark, given[:12], tmp_path / "input")).adapt(latency="1 minute")
    drain(query, collected)
    run = drain(last_three(feed(spark, given, tmp_path / "input")).adapt(latency="1 minute"), collected)
    expected = oracle.last(given, ["k"], "ts", 3, {"n": fx.count(), "total": fx.sum("v")})
    assert collected.canonical() == oracle.canonical_rows(expected)
    assert run.exception() is None


def test_a_source_that_cannot_be_limited_is_refused_before_anything_runs(spark, tmp_path):
    rows = spark.readStream.format("rate").load()
    query = fx.distinct(rows, by="value").adapt(partitions=8, latency="1 second")
    writer = query.writeStream.foreachBatch(lambda df, n: None).option("checkpointLocation", str(tmp_path / "ck"))
    with pytest.raises(ConfigError, match="latency needs a source whose batches can be limited"):
        writer.start()


@pytest.mark.parametrize("bad", ["soon", "0 seconds"])
def test_a_latency_is_a_positive_time(spark, bad):
    with pytest.raises(FluxenError, match="latency"):
        last_three(feed(spark, batches(1))).adapt(latency=bad)
