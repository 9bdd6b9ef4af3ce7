"""A time to live: what has not been updated for so long is forgotten, by the oracle's rule, and leaves the disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluxen.testing as ft
from fluxen.errors import QueryError
from fluxen.operators.aggregate import functions as fx
from fluxen.operators.join.mway import pair_bounds
from fluxen.testing import FakeClock, oracle

pytestmark = pytest.mark.long

TIME = pa.timestamp("us", "UTC")
SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])
AGGREGATES = {"n": fx.count(), "total": fx.sum("v"), "low": fx.min("v"), "sd": fx.stddev("v"), "head": fx.first("v")}
UNTIMED = {name: value for name, value in AGGREGATES.items() if name != "head"}


def rows(*given: tuple[int, float, int]) -> pa.Table:
    keys, seconds, values = zip(*given)
    stamps = pa.array([round(s * SECOND) for s in seconds], pa.int64()).cast(TIME)
    return pa.table({"k": keys, "ts": stamps, "v": values}, schema=SCHEMA)


def steps(bench: ft.LocalEngine, batches: list[pa.Table]) -> list[list[dict[str, Any]]]:
    return [bench.step(number, [table]).to_pylist() for number, table in enumerate(batches)]


def counts(results: list[list[dict[str, Any]]]) -> list[list[int]]:
    return [[row["n"] for row in batch] for batch in results]


def test_a_running_value_starts_anew_when_its_key_was_not_updated_for_the_time_to_live(tmp_path):
    bench = ft.LocalEngine([ft.aggregate(SCHEMA, "k", "ts", ttl="10 seconds", n=fx.count())], str(tmp_path))
    batches = [rows((1, 0, 0)), rows((1, 10, 0)), rows((1, 20.5, 0)), rows((2, 40, 0)), rows((1, 30, 0))]
    # 10 s after the last update still counts, 10.5 s do not; a late row counts at the watermark, 40
    assert counts(steps(bench, batches)) == [[1], [2], [1], [1], [1]]


def test_of_the_last_rows_only_those_within_the_time_to_live_count(tmp_path):
    bench = ft.LocalEngine([ft.aggregate(SCHEMA, "k", "ts", last=3, ttl="10 seconds", n=fx.count())], str(tmp_path))
    batches = [rows((1, 0, 0), (1, 1, 0), (1, 2, 0)), rows((1, 11, 0)), rows((1, 13, 0), (1, 30, 0)), rows((1, 5, 0))]
    # at 11 the row of 1 still counts, of 13 those of 11 and 13; a row of 5 that comes after 30 counts as one of 30
    assert counts(steps(bench, batches)) == [[1, 2, 3], [3], [2, 1], [2]]


@pytest.mark.parametrize(
    ("stage", "once"),
    [
        (lambda **o: ft.aggregate(SCHEMA, "k", "ts", n=fx.count(), **o), True),
        (lambda **o: ft.aggregate(SCHEMA, "k", "ts", last=3, n=fx.count(), **o), True),
        (lambda **o: ft.distinct(SCHEMA, "k", "ts", **o), True),
        (lambda **o: ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", **o), False),
        (lambda **o: ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", plan="tree", **o), False),
    ],
    ids=["running", "last", "distinct", "join", "tree"],
)
def test_what_nobody_can_see_any_more_leaves_the_disk(tmp_path, stage, once):
    """New keys all the time: without a time to live the state grows with every batch."""

    def held(directory: str, **options: Any) -> list[int]:
        bench = ft.LocalEngine([stage(**options)], str(tmp_path / directory), partitions=4)
        kept = []
        for number in range(60):
            table = rows(*((number * 10 + i, number + i / 10, i) for i in range(10)))
            bench.step(number, [table] if once else [table, table])
            kept.append(sum(ref.rows for ref in bench.epoch.stages[0].segments))
        return kept

    for_ever, kept = held("for ever"), held("for a while", ttl="5 seconds")
    assert for_ever[-1] >= 2 * for_ever[25]
    assert max(kept[40:]) <= 1.1 * max(kept[10:40])
    assert max(kept) < for_ever[-1] / 3


def moments(batches: list[pa.Table], clock: list[float]) -> list[pa.Table]:
    """The batches with the time they came in as their event time, for the oracle."""
    return [
        table.set_column(1, "ts", pa.array([round(now * SECOND)] * table.num_rows, pa.int64()).cast(TIME))
        for table, now in zip(batches, clock)
    ]


@pytest.mark.parametrize("form", ["running", "last", "distinct", "join"])
def test_rows_without_event_time_go_by_the_time_of_their_batch_however_often_it_runs(tmp_path, form):
    rng = np.random.default_rng(5)
    batches = [rows(*((int(k), 0, int(v)) for k, v in rng.integers(0, 6, (8, 2)))) for _ in range(12)]
    clock = [100.0, 101, 104, 104, 103, 109, 120, 121, 121, 125, 126, 140]  # once it goes back, which rows do not
    bare = [table.drop_columns(["ts"]) for table in batches]
    schema = bare[0].schema
    stages = {
        "running": lambda: ft.aggregate(schema, "k", ttl="4 seconds", **UNTIMED),
        "last": lambda: ft.aggregate(schema, "k", last=3, ttl="4 seconds", **UNTIMED),
        "distinct": lambda: ft.distinct(schema, "k", ttl="4 seconds"),
        "join": lambda: ft.join({"a": schema, "b": schema}, "k", ttl="4 seconds"),
    }
    wall, delivered = FakeClock(), {}

    def sink(epoch: int, results: pa.Table) -> None:
        again = oracle.canonical_rows(results.to_pylist(), 17)
        assert delivered.setdefault(epoch, again) == again
        found[epoch] = results.to_pylist()

    found: dict[int, Any] = {}
    for number, now in enumerate(clock):
        inputs = [bare[number]] * (2 if form == "join" else 1)
        for attempt, crash in enumerate([int(rng.integers(0, 12)), None]):
            wall.now = now + 30 * attempt  # an attempt after a crash comes later; its rows have come when they came
            bench = None
            try:
                bench = ft.LocalEngine([stages[form]()], ft.FaultyStore(str(tmp_path), crash), sink=sink, wall=wall)
                bench.step(number, inputs, repeat=2)
            except ft.SimulatedCrash:
                if not (tmp_path / "epochs" / f"{number:010d}.time").exists():
                    wall.now = now  # it had not begun yet
                    ft.LocalEngine([stages[form]()], str(tmp_path), sink=sink, wall=wall).step(number, inputs)
                    break
    timed = moments(batches, np.maximum.accumulate(clock).tolist())
    life = 4 * SECOND
    if form == "running":
        expected = oracle.running(timed, ["k"], "ts", UNTIMED, ttl=life)
    elif form == "last":
        shown = oracle.last(timed, ["k"], "ts", 3, UNTIMED, ttl=life)
        expected = [{name: value for name, value in row.items() if name != "ts"} for row in shown]
    elif form == "distinct":
        shown = oracle.distinct(timed, ["k"], "ts", life)
        expected = [{name: value for name, value in row.items() if name != "ts"} for row in shown]
    else:
        times = dict.fromkeys("ab", "ts")
        pairs = oracle.join({"a": timed, "b": timed}, {"a": ["k"], "b": ["k"]}, times, lambda t: _near(t, life))
        expected = [{name: row[name] for name in ("k", "a_v", "b_v")} for row in pairs]
    got = [row for epoch in sorted(found) for row in found[epoch]]
    assert oracle.canonical_rows(got) == oracle.canonical_rows(expected)


def _near(times: Any, life: int) -> bool:
    return max(times.values()) - min(times.values()) <= life


def test_a_time_to_live_is_for_bounds_that_are_open():
    low = pair_bounds(["a", "b"], None, {("b", "a"): ("0 seconds", None)}, "7 seconds")
    assert low == ((0, 0), (-7 * SECOND, 0))
    for within, between in (("1 second", None), (None, {("b", "a"): ("0 seconds", "1 second")})):
        with pytest.raises(QueryError, match="bound them all, so leave it out"):
            pair_bounds(["a", "b"], within, between, "7 seconds")


def test_rows_that_come_in_a_flush_have_the_time_of_that_epoch(tmp_path):
    """A window comes out of an epoch without rows; the stage behind it must not take it for old."""
    windows = ft.aggregate(SCHEMA, "k", "ts", window="5 seconds", n=fx.count())
    total = ft.aggregate(windows.schema, "k", ttl="7 days", total=fx.sum("n"))
    bench = ft.LocalEngine([windows, total], str(tmp_path))
    bench.step(0, [rows((1, 1, 0), (1, 9, 0))])
    assert bench.flush().to_pylist() == [{"k": 1, "total": 1}]
    bench.step(1, [rows((1, 30, 0))])
    assert bench.step(2, [rows((1, 40, 0))]).to_pylist() == [{"k": 1, "total": 2}]


def test_state_expires_by_arrival_whichever_input_is_silent(tmp_path):
    schema = pa.schema([("k", pa.int64())])
    clock = FakeClock(1000.0)
    stage = ft.join({"a": schema, "b": schema}, "k", ttl="10 seconds")
    bench = ft.LocalEngine([stage], str(tmp_path), wall=clock)
    for number in range(40):
        clock.advance(10)
        bench.step(number, [pa.table({"k": [number] * 10}), schema.empty_table()])
    assert sum(side["state_rows"] for side in bench.epoch.stats["stages"][0]["sides"]) <= 50
