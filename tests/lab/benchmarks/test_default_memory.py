"""A join that is given no option, with 512 MB for its state and three times as much of it: minutes, so not in CI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import fluxen as fx
from fluxen.spark.memory import SETTING
from fluxen_lab.benchmarks.compare import connect
from fluxen_lab.benchmarks.spark.sources import stream
from fluxen_lab.datagen.streams import StreamSpec, write_stream

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3_000)]

MEMORY = 512 << 20
BATCHES, ROWS, KEYS, WIDTH = 60, 60 * 34_000, 1_500_000, 400
SPAN_S = 600
SUMS = "count(*), sum(a), sum(b), sum(a * b % 1000003)"
"""of a result's two values as whole numbers: a row that is missing or doubled shows"""


@pytest.fixture
def forced(spark: Any) -> Any:
    spark.conf.set(SETTING, str(MEMORY))
    yield spark
    spark.conf.unset(SETTING)


def test_a_join_with_three_times_its_memory_in_state_ends_with_all_results(forced: Any, tmp_path: Path) -> None:
    for seed, name in enumerate("ab"):
        spec = StreamSpec(
            name=name, rows=ROWS, keys=KEYS, skew=0.0, span_us=SPAN_S * 10**6, text=True, seed=seed, width=WIDTH
        )
        write_stream(spec, tmp_path / name, BATCHES)
    seen: dict[int, tuple[int, ...]] = {}

    def sink(results: DataFrame, epoch: int) -> None:
        values = results.select(*(F.expr(f"cast({side}_value * 64 as bigint)").alias(side) for side in "ab"))
        row = values.agg(*(F.expr(f"coalesce({one}, 0)") for one in SUMS.split(", "))).first()
        assert row is not None
        seen[epoch] = tuple(row)

    inputs = {name: stream(forced, tmp_path, name, text=True) for name in "ab"}
    query = fx.join(inputs, on="key", time="ts", within=f"{SPAN_S} seconds")
    writer = query.writeStream.foreachBatch(sink).trigger(availableNow=True)
    run = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    run.awaitTermination()

    files = {name: f"read_parquet('{tmp_path / name}/*.parquet')" for name in "ab"}
    pairs = (
        f"SELECT cast(a.value * 64 AS BIGINT) AS a, cast(b.value * 64 AS BIGINT) AS b "
        f"FROM {files['a']} a JOIN {files['b']} b USING (key)"
    )
    assert tuple(map(sum, zip(*seen.values()))) == connect().execute(f"SELECT {SUMS} FROM ({pairs})").fetchone()
    held = [sum(site["state_bytes"] for site in epoch["stages"][0]["sites"]) for epoch in run.epochs]
    whole = max(epoch["state_bytes"] + epoch["spilled_bytes"] for epoch in run.epochs)
    assert whole >= 3 * MEMORY
    assert max(held) <= MEMORY
