"""Memory nobody has asked for: a share of what there is, and a query whose state outgrows it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fluxen as fx
from fluxen.errors import ConfigError
from fluxen.spark.memory import VARIABLE, available, memory_per_site, share
from fluxen.testing import feeds, oracle

pytestmark = pytest.mark.spark

TIME = pa.timestamp("us", "UTC")


def batches(count: int, rows: int, seed: int) -> list[pa.Table]:
    rng = np.random.default_rng(seed)
    return [
        pa.table(
            {
                "k": rng.integers(0, 4 * count * rows, rows),
                "ts": pa.array(n * 1_000_000 + np.sort(rng.integers(0, 1_000_000, rows))).cast(TIME),
                "v": rng.integers(0, 100, rows),
            }
        )
        for n in range(count)
    ]


def test_a_join_with_no_options_whose_state_is_three_times_its_memory_ends_and_is_right(
    spark, drain, collected, monkeypatch
):
    given = {"a": batches(8, 1500, 1), "b": batches(8, 1500, 2)}
    monkeypatch.setenv(VARIABLE, "200k")
    query = fx.join(feeds(spark, given), on="k", time="ts", within="1 hour")
    run = drain(query, collected)
    spilled = max(epoch["spilled_bytes"] for epoch in run.epochs)
    state = max(epoch["state_bytes"] + epoch["spilled_bytes"] for epoch in run.epochs)
    assert spilled > 0
    assert state > 3 * 200 * 1024
    times = {"a": "ts", "b": "ts"}
    pairs = oracle.join(given, {"a": ["k"], "b": ["k"]}, times, lambda t: abs(t["a"] - t["b"]) <= 3600 * 10**6, 0)
    assert collected.canonical() == oracle.canonical_rows(pairs)
    spills = [event for event in run.events if event["kind"] == "spill" and event["outcome"] == "done"]
    assert "within its memory" in spills[0]["why"]


def test_what_the_user_says_counts_and_nonsense_is_refused(spark, monkeypatch):
    monkeypatch.setenv(VARIABLE, "1g")
    assert memory_per_site(spark, 4) == (1 << 30) // 4
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(ConfigError, match="FLUXEN_MEMORY is not a size"):
        memory_per_site(spark, 4)


def test_a_control_group_that_allows_less_than_the_machine_has_counts(tmp_path):
    machine = tmp_path / "meminfo"
    machine.write_text("MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    assert available(str(tmp_path), str(machine)) == 16 << 30
    (tmp_path / "memory.max").write_text("max\n")
    assert available(str(tmp_path), str(machine)) == 16 << 30
    (tmp_path / "memory.max").write_text(f"{2 << 30}\n")
    assert available(str(tmp_path), str(machine)) == 2 << 30


def test_too_little_to_work_in_is_no_limit():
    assert share(1 << 20, 2) is None
    assert share(4 << 30, 2) == 1 << 30
