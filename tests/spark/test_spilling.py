"""More state than memory, on Spark: state goes to disk, is cleaned up or comes back; nothing is lost or doubled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluxen as fx
from fluxen.control.moves.relocation import STEPS
from fluxen.testing import feeds, oracle

pytestmark = pytest.mark.spark

TIME = pa.timestamp("us", "UTC")
NAMES = ["a", "b", "c"]
MEMORY = 60_000


def batches(count: int = 6, rows: int = 500, keys: int = 600, seed: int = 5) -> dict[str, list[pa.Table]]:
    """Three inputs, one second of event time per batch."""
    rng = np.random.default_rng(seed)
    made: dict[str, list[pa.Table]] = {name: [] for name in NAMES}
    for number in range(count):
        for name in NAMES:
            ts = number * 1_000_000 + np.sort(rng.integers(0, 1_000_000, rows))
            table = pa.table({"k": rng.integers(0, keys, rows), "ts": pa.array(ts).cast(TIME), "v": np.arange(rows)})
            made[name].append(table)
    return made


def expected(inputs: dict[str, list[pa.Table]], within: int | None = None) -> list[str]:
    fits = (lambda t: max(t.values()) - min(t.values()) <= within) if within is not None else (lambda t: True)
    rows = oracle.join(inputs, {name: ["k"] for name in NAMES}, dict.fromkeys(NAMES, "ts"), fits)
    return oracle.canonical_rows(rows)


def joined(spark: Any, inputs: dict[str, list[pa.Table]], directory: Any = None, **options: Any) -> Any:
    streams = feeds(spark, inputs, directory)
    within = options.pop("within", None)
    return fx.join(streams, on="k", time="ts", within=within).adapt(partitions=32, clock="event", **options)


def kinds(run: Any) -> set[str]:
    return {event["kind"] for event in run.events if event["outcome"] == "done"}


def test_memory_is_kept_and_the_end_of_a_finite_query_pays_what_is_owed(spark, drain, collected):
    inputs = batches()
    run = drain(joined(spark, inputs, sites=2, memory_per_site=MEMORY), collected)
    assert collected.canonical() == expected(inputs)
    assert "spill" in kinds(run)
    batch = [epoch for epoch in run.epochs if epoch["batch"] is not None]
    for epoch in batch[1:]:
        for site in epoch["stages"][0]["sites"]:
            assert site["state_bytes"] <= 1.1 * MEMORY
    last = run.epochs[-1]
    assert last["batch"] is None
    assert last["results_owed"] == last["results"] > 0


def test_a_skewed_placement_is_relocated_in_eight_steps_and_what_does_not_fit_is_spilled(spark, drain, collected):
    inputs = batches()
    policy = fx.LazyDisk(gap=1.0)
    run = drain(
        joined(spark, inputs, sites=3, memory_per_site=MEMORY, policy=policy, placement=(2 / 3, 1 / 6, 1 / 6)),
        collected,
    )
    assert collected.canonical() == expected(inputs)
    assert {"spill", "move", "relocation"} <= kinds(run)
    relocation = next(event for event in run.events if event["kind"] == "relocation")
    assert [step["message"] for step in relocation["detail"]["steps"]] == list(STEPS)
    when = [step["when"] for step in relocation["detail"]["steps"]]
    assert when == sorted(when)
    spilled_before: set[int] = set()
    for event in run.events:
        if event["outcome"] == "done" and event["kind"] == "move":
            assert not spilled_before & set(event["detail"]["pgs"]), "a spilled group moved"
        if event["outcome"] == "done" and event["kind"] == "spill":
            spilled_before |= set(event["detail"]["pgs"])
        if event["outcome"] == "done" and event["kind"] == "unspill":
            spilled_before -= set(event["detail"]["pgs"])


def test_cleanup_in_the_middle_of_a_run_emits_what_is_owed_then(spark, tmp_path, collected):
    inputs = batches()
    query = joined(spark, inputs, tmp_path / "input", sites=2, memory_per_site=MEMORY)
    writer = query.writeStream.foreachBatch(collected).option("checkpointLocation", str(tmp_path / "checkpoint"))
    run = writer.start()
    run.processAllAvailable()
    before = len(collected.rows)
    run.cleanup()
    assert len(collected.rows) > before
    assert collected.canonical() == expected(inputs)
    run.cleanup()
    assert collected.canonical() == expected(inputs)
    run.stop()


def test_windowed_rows_are_cleaned_up_before_they_are_forgotten(spark, drain, collected):
    inputs = batches(count=8)
    run = drain(joined(spark, inputs, sites=2, memory_per_site=MEMORY // 2, within="3 seconds"), collected)
    assert collected.canonical() == expected(inputs, 3_000_000)
    assert {"spill", "cleanup"} <= kinds(run)


def test_a_restart_goes_on_with_generations_on_disk(spark, drain, collected, tmp_path):
    inputs = batches()
    half = {name: tables[:3] for name, tables in inputs.items()}
    drain(joined(spark, half, tmp_path / "input", sites=2, memory_per_site=MEMORY, policy=fx.ActiveDisk()), collected)
    assert collected.canonical() == expected(half)
    run = drain(
        joined(spark, inputs, tmp_path / "input", sites=2, memory_per_site=MEMORY, policy=fx.ActiveDisk()), collected
    )
    assert collected.canonical() == expected(inputs)
    assert "spill" in kinds(run)
