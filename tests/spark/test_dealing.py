"""A key that is too much for one site: its rows are dealt over several, on Spark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import fluxen as fx
from fluxen.policies.base import Merge, Policy, Split, Stats, Suggestion
from fluxen.spark.deal import dealt
from fluxen.state.families import Family
from fluxen.state.routing import Routing
from fluxen.testing import feeds, oracle

pytestmark = pytest.mark.spark

TIME = pa.timestamp("us", "UTC")
SECOND = 1_000_000
HOT = 7


def hot_batches(batches: int, until: int, *, rows: tuple[int, int] = (100, 10), seed: int = 4) -> list[list[pa.Table]]:
    """Two inputs, a second of event time per batch; in the batches before `until` most rows are of one key."""
    rng = np.random.default_rng(seed)

    def table(number: int, count: int) -> pa.Table:
        key = rng.integers(100, 300, count)
        if number < until:
            key = np.where(rng.random(count) < 0.8, HOT, key)
        ts = number * SECOND + rng.integers(0, SECOND, count)
        return pa.table({"k": key, "ts": pa.array(ts).cast(TIME), "v": rng.integers(0, 1000, count)})

    return [[table(number, count) for count in rows] for number in range(batches)]


def expected(batches: list[list[pa.Table]], how: str = "inner") -> list[str]:
    given = {name: [batch[i] for batch in batches] for i, name in enumerate("ab")}
    keys, times = {name: ["k"] for name in "ab"}, dict.fromkeys("ab", "ts")
    if how == "inner":
        close = lambda t: abs(t["a"] - t["b"]) <= 2 * SECOND  # noqa: E731
        return oracle.canonical_rows(oracle.join(given, keys, times, close, 0))
    found = oracle.outer(how, given, keys, times, (-2 * SECOND, 2 * SECOND), lateness=0, everything=True)
    return oracle.canonical_rows(found)


def joined(spark: Any, batches: list[list[pa.Table]], path: Any, how: str = "inner") -> Any:
    streams = feeds(spark, {name: [batch[i] for batch in batches] for i, name in enumerate("ab")}, path)
    return fx.join(streams, on="k", time="ts", within="2 seconds", how=how)


def test_a_key_that_is_most_of_the_work_is_dealt_and_one_sites_again_when_it_has_cooled(
    spark, drain, collected, tmp_path
):
    batches = hot_batches(40, until=16)
    first = joined(spark, batches[:30], tmp_path / "input").adapt(sites=2, partitions=8, partitioner=fx.Slotted())
    before = drain(first, collected)
    query = joined(spark, batches, tmp_path / "input").adapt(sites=3, partitions=8, partitioner=fx.Slotted())
    run = drain(query, collected)
    assert collected.canonical() == expected(batches)
    done = [event["kind"] for event in run.events if event["outcome"] == "done"]
    assert "split" in done
    assert "merge" in done
    [split] = [event for event in run.events if event["kind"] == "split" and event["outcome"] == "done"]
    assert "of the work" in split["why"]
    assert split["epoch"] < 14
    made = [[site["rows_out"] for site in epoch["stages"][0]["sites"]] for epoch in before.epochs[14:16]]
    assert all(max(each) < 0.65 * sum(each) for each in made), "two sites make about half of the results each"


class Asked(Policy):
    """Splits a key after the second epoch with rows and merges it after the sixth, whatever it costs."""

    def __init__(self, key: int, dealt: int) -> None:
        self.key, self.dealt, self.seen = key, dealt, 0

    def suggest(self, stats: Stats, now: float) -> list[Suggestion]:
        self.seen += 1
        if self.seen == 2:
            return [Split(key=self.key, dealt=self.dealt, sites=(1, 0), why="asked for")]
        return [Merge(key=self.key, sites=(0, 1), why="asked for")] if self.seen == 6 else []

    def snapshot(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def restore(self, state: Any) -> None:
        self.seen = state["seen"]


@pytest.mark.parametrize(("how", "side"), [("left", 0), ("semi", 0), ("full", 0)])
def test_outer_joins_deal_rows_that_come_out_alone_or_refuse(spark, drain, collected, tmp_path, how, side):
    batches = hot_batches(9, until=9, rows=(60, 12))
    [key] = spark.range(1).select(F.xxhash64(F.lit(HOT).cast("long"))).first()
    query = joined(spark, batches, tmp_path / "input", how).adapt(sites=2, partitions=4, policy=Asked(key, side))
    run = drain(query, collected, endOfInput=True)
    assert collected.canonical() == expected(batches, how)
    outcomes = {event["kind"]: (event["outcome"], event["reason"]) for event in run.events}
    if how == "full":
        assert outcomes["split"][0] == "refused"
        assert "depends on all rows of the other" in outcomes["split"][1]
    else:
        assert outcomes == {"split": ("done", ""), "merge": ("done", "")}
    assert sum(epoch["rows_in"] for epoch in run.epochs) == sum(t.num_rows for batch in batches for t in batch)


def test_rows_are_dealt_by_their_content_whatever_order_they_come_in(spark):
    family = Family.of(5, dealt=0, count=3)
    routing = Routing.even(partitions=4, sites=3)
    for member in family.members:
        routing = routing.isolated(member, 0)
    made = (
        "cast(id % 4 - 1 as int) as _in",
        "if(id % 3 = 0, 9L, 5L) as _h",
        "id as _t",
        "map('a', id) as _0",
        "id as _1",
    )
    rows = spark.range(0, 400, 1, 2).selectExpr(*made)
    assert dealt(rows, routing, 2) is rows, "nothing is added to the plan without such keys"
    routing = Routing.from_json(routing.to_json() | {"families": [family.to_json()]})
    first = {(row["_1"], row["_h"]) for row in dealt(rows, routing, 2).collect()}
    again = {(row["_1"], row["_h"]) for row in dealt(rows.orderBy(F.rand(3)).repartition(5), routing, 2).collect()}
    assert first == again
    members: dict[int, set[int]] = {}
    for number, h in first:
        members.setdefault(number, set()).add(h)
    every = set(family.members)
    for number, found in members.items():
        kind, hot = number % 4 - 1, number % 3 != 0
        if not hot:
            assert found == {9}
        elif kind == 0:
            assert len(found) == 1
            assert found <= every
        else:
            assert found == (every if kind == 1 else {5})
    assert {h for number, found in members.items() if number % 4 == 1 and number % 3 for h in found} == every
