"""Join trees on Spark that re-plan and exchange groups by either protocol while they run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fluxen as fx
from fluxen.control.plans.replanning import MSLB_STEPS, PTLB_STEPS
from fluxen.testing import feeds, oracle

pytestmark = pytest.mark.spark

TIME = pa.timestamp("us", "UTC")
NAMES = ("a", "b", "c")


def streams(batches: int) -> dict[str, list[pa.Table]]:
    """One second per batch; b and c slow down half-way."""
    rng = np.random.default_rng(11)
    made: dict[str, list[pa.Table]] = {name: [] for name in NAMES}
    for number in range(batches):
        for name in NAMES:
            rows = 20 if name == "a" or number < batches // 2 else 2
            ts = number * 1_000_000 + np.sort(rng.integers(0, 1_000_000, rows))
            made[name].append(
                pa.table({"k": rng.integers(0, 12, rows), "ts": pa.array(ts).cast(TIME), "v": rng.integers(0, 9, rows)})
            )
    return made


@pytest.mark.parametrize("balance", ["mslb", "ptlb"])
def test_trees_that_replan_and_exchange_groups_equal_the_oracle(spark, drain, collected, balance):
    tables = streams(16)
    joined = fx.join(feeds(spark, tables), on="k", time="ts", within="4 seconds", plan="tree")
    query = joined.adapt(
        sites=3, partitions=8, policy=fx.Random(seed=5, moves=1), clock="event", balance=balance, replan=True
    )
    run = drain(query, collected)
    expected = oracle.join(
        tables,
        {name: ["k"] for name in NAMES},
        dict.fromkeys(NAMES, "ts"),
        lambda times: max(times.values()) - min(times.values()) <= 4_000_000,
    )
    assert collected.canonical() == oracle.canonical_rows(expected)
    messages = [event["detail"]["message"] for event in run.events if event["kind"] == balance]
    steps = MSLB_STEPS if balance == "mslb" else PTLB_STEPS
    assert set(messages) == set(steps)
    assert any(event["kind"] == "replan" for event in run.events)


def test_distinct_that_exchanges_groups_by_parallel_track_equals_the_oracle(spark, drain, collected):
    tables = streams(10)["a"]
    query = fx.distinct(feeds(spark, {"a": tables})["a"], by=["k"], time="ts", within="2 seconds").adapt(
        sites=2, partitions=4, policy=fx.Random(seed=5, moves=1), clock="event", balance="ptlb"
    )
    run = drain(query, collected)
    assert collected.canonical() == oracle.canonical_rows(oracle.distinct(tables, ["k"], "ts", 2_000_000, 0))
    assert set(PTLB_STEPS) == {event["detail"]["message"] for event in run.events if event["kind"] == "ptlb"}
