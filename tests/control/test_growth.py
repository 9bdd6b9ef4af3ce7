"""What an epoch, a manager and a process remember does not grow with time."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.control.test_ahead import records, stage

import fluxen.testing as ft
from fluxen.control.adaptation import KEPT, Adaptation
from fluxen.control.manager import Manager
from fluxen.control.plans.optimizer import Optimizer
from fluxen.control.plans.replanning import StagePlans
from fluxen.operators.aggregate import functions as fx
from fluxen.policies import FluxLoad, LazyDisk, Random
from fluxen.policies.base import Spill
from fluxen.state import segment
from fluxen.state.segment import open_segment, write_segment
from fluxen.state.store import Store

pytestmark = pytest.mark.long

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])


def batch(rng: np.random.Generator, number: int) -> pa.Table:
    seconds = np.sort(rng.uniform(number, number + 1, 20)) * 1e6
    columns = {"k": rng.integers(0, 10, 20), "ts": pa.array(seconds.astype(np.int64)).cast(TIME), "v": np.arange(20)}
    return pa.table(columns, schema=SCHEMA)


STAGES = {
    "tumbling": lambda: ft.aggregate(SCHEMA, "k", "ts", window="3 seconds", n=fx.count()),
    "running": lambda: ft.aggregate(SCHEMA, "k", "ts", n=fx.count()),
    "last": lambda: ft.aggregate(SCHEMA, "k", "ts", last=3, n=fx.count()),
    "distinct": lambda: ft.distinct(SCHEMA, "k", "ts", within="3 seconds"),
}


def moving() -> Random:
    return Random(seed=3, period=0.0, moves=2)


@pytest.mark.parametrize(
    ("name", "policy"), [("tumbling", moving), ("running", FluxLoad), ("last", LazyDisk), ("distinct", moving)]
)
def test_files_and_epochs_stay_as_they_are_over_many_batches(tmp_path, name, policy):
    rng = np.random.default_rng(1)
    ticks = itertools.count()  # a clock that is the same in every run: FluxLoad goes by it
    clock = lambda: next(ticks) / 1e3  # noqa: E731
    bench = ft.LocalEngine([STAGES[name]()], str(tmp_path), partitions=8, policy=policy, memory=3_000, clock=clock)
    files, sizes = [], []
    for number in range(160):
        bench.step(number, [batch(rng, number)])
        if number % 4 == 0:
            bench.log.sweep(bench.epoch.number)
        # the log of statistics fills up to its bound first: tests/state/test_rollup.py
        kept = [path for path in Path(tmp_path).rglob("*") if path.is_file() and tmp_path / "stats" not in path.parents]
        files.append(len(kept))
        sizes.append(len((tmp_path / "epochs" / f"{bench.epoch.number:010d}.json").read_bytes()))
    for column in (files, sizes):
        assert np.mean(column[120:]) <= 1.1 * np.mean(column[40:80]), column


def test_a_worker_remembers_only_the_files_it_has_opened_last(tmp_path, monkeypatch):
    monkeypatch.setattr(segment, "VERIFIED", 10)
    segment._verified.clear()
    store = Store(str(tmp_path))
    table = pa.table({"_h": pa.array([1], pa.int64()), "_t": pa.array([0], pa.int64())})
    first, *others = [
        write_segment(store, f"segments/{n}", table, side=0, partitions=4, epochs=(n, n), live=((0, 4),))
        for n in range(40)
    ]
    for ref in others:
        open_segment(store, ref)
        open_segment(store, first)
    assert len(segment._verified) == 10
    assert any(path.endswith("/0") for path, _, _ in segment._verified)


def test_plans_of_sites_and_moves_that_are_gone_are_forgotten():
    operator: Any = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", within="1 second", plan="tree").stage.operator
    planning = StagePlans(operator, replan=Optimizer())
    planning._rates, planning._protocols = {0: 1.0, 1: 1.0, 7: 1.0}, {3: "ptlb"}
    planning.optimizer._rest = {0: 1.0, 7: 1.0}
    planning.observe(stage(), records(1))
    planning.conclude(stage(), records(1), Manager(policy=FluxLoad()), 1.0)
    kept = planning.snapshot()
    assert sorted(kept["rates"]) == ["0", "1"]
    assert kept["protocols"] == {}
    assert sorted(kept["optimizer"]["rest"]) == ["0"]


def test_a_stage_whose_groups_take_turns_refuses_to_spill_instead_of_failing_every_time():
    operator: Any = STAGES["running"]().stage.operator
    adaptation = Adaptation(operator=operator, memory=10)
    for now in range(40):
        adaptation.after(stage(), records(50), float(now), [Spill(site=0, pgs=(0,), why="by hand")])
    told = [event for event in adaptation.events() if event["kind"] == "spill"]
    assert [event["outcome"] for event in told] == ["refused"] * 6
    assert "take turns in memory" in told[-1]["reason"]
    assert len(adaptation.manager.events) <= KEPT
