"""A rescale that is asked for while groups move: it waits for them, survives a restart, and nothing moves before it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.control.test_ahead import MOVE, records, stage

import fluxen.testing as ft
from fluxen.control.adaptation import Adaptation
from fluxen.control.moves import copying as ahead
from fluxen.control.plans.replanning import StagePlans
from fluxen.policies import Random
from fluxen.policies.base import Move, Rescale
from fluxen.state.epoch import ASKED, StageState
from fluxen.state.record import read_records
from fluxen.state.routing import Routing
from fluxen.testing import oracle

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])
WITHIN = 5


def test_a_rescale_waits_for_a_copy_and_no_move_begins_before_it():
    adaptation = Adaptation(remote=True, policy=Random(period=0.0, moves=1))
    state = adaptation.after(stage(), records(ahead.LEAST), 1.0, [MOVE])
    state = adaptation.after(state, records(ahead.LEAST, left=1 << 30), 2.0, [Rescale(sites=4, why="by hand")])
    assert (state.routing.sites, state.arriving) == (2, ((0, 1),))
    state = adaptation.after(state, records(ahead.LEAST, left=1 << 30), 3.0, [Rescale(sites=1, why="again")])
    again = Adaptation(remote=True, policy=Random(period=0.0, moves=1))
    again.restore(json.loads(json.dumps(adaptation.snapshot())))
    state = again.after(StageState.from_json(state.to_json()), records(ahead.LEAST), 4.0)
    assert (state.routing.sites, state.arriving, state.routing.table.tolist()) == (2, (), [1, 1])
    state = again.after(state, records(ahead.LEAST), 5.0)
    assert state.routing.sites == 1
    told = [(event["what"], event["outcome"]) for event in again.events() if event["kind"] == "rescale"]
    assert told == [("rescale to 1 sites", "done")]
    assert again.snapshot()["rescale"] is None


@pytest.mark.parametrize("restart", [False, True])
def test_a_rescale_waits_for_a_parallel_track(tmp_path, restart):
    stage = ft.distinct(SCHEMA, "k", "ts", within=f"{WITHIN} seconds")
    rng = np.random.default_rng(3)
    got: list[dict[str, Any]] = []
    bench = ft.LocalEngine([stage], str(tmp_path), partitions=4, sink=lambda _, table: got.extend(table.to_pylist()))

    def fresh() -> Adaptation:
        return Adaptation(planning=StagePlans(stage.stage.operator, move_protocol="ptlb"))

    adaptation, sites, given, tracked = fresh(), [], [], []
    for number in range(14):
        seconds = np.sort(rng.uniform(number, number + 1, 12)) * 1e6
        rows = {"k": rng.integers(0, 9, 12), "ts": pa.array(seconds.astype(np.int64)).cast(TIME), "v": np.arange(12)}
        given.append(pa.table(rows, schema=SCHEMA))
        requests: list[Any] = []
        if number == 1:
            group = int(bench.epoch.stages[0].routing.table.tolist().index(0))
            requests = [Move(pgs=(group,), donor=0, receiver=1, why="by hand")]
        if number == 3:
            requests = [Rescale(sites=4, why="by hand"), Rescale(sites=3, why="newest")]

        def change(
            _: int, state: StageState, epoch: int, asked: list[Any] = requests, by: Adaptation = adaptation
        ) -> StageState:
            found = read_records(bench.store, epoch)
            mine = [found[0, site] for site in range(state.routing.sites)]
            return by.after(state, mine, float(epoch), asked, seconds=1.0, epoch=epoch)

        bench.step(number, [given[-1]], change=change)
        sites.append(bench.epoch.stages[0].routing.sites)
        tracked.append(bool(bench.epoch.stages[0].tracks))
        if restart and number == 4:
            stored = json.loads(json.dumps(adaptation.snapshot()))
            adaptation = fresh()
            adaptation.restore(stored)
    assert tracked[3]
    assert sites[3] == 2
    assert sites[-1] == 3
    assert not any(track and site == 3 for track, site in zip(tracked, sites))
    expected = oracle.distinct(given, ["k"], "ts", WITHIN * 1_000_000)
    assert oracle.canonical_rows(got) == oracle.canonical_rows(expected)


def test_half_a_request_that_a_crash_has_left_is_forgotten(tmp_path):
    """On filesystems that cannot replace a file at once, a driver may die in the middle of rescale()."""
    stage = ft.distinct(SCHEMA, "k", "ts")
    bench = ft.LocalEngine([stage], str(tmp_path))
    bench.step(0, [SCHEMA.empty_table()])
    bench.loop.rescale(1)
    whole = bench.store.read(ASKED)
    bench.store.write(ASKED, whole[: len(whole) // 2])
    again = ft.LocalEngine([stage], str(tmp_path))
    again.step(1, [SCHEMA.empty_table()])
    assert again.epoch.stages[0].routing.sites == 2
    assert not again.store.exists(ASKED)


def test_groups_of_their_own_and_copies_have_a_site_that_exists_after_a_rescale():
    routing = Routing.even(partitions=8, sites=4).isolated(17, 3).isolated(-5, 2)
    for sites in (1, 2, 3, 7):
        table = routing.rescaled(sites).table
        assert len(table) == 10
        assert table.min() >= 0
        assert table.max() < sites
        ordinary = np.bincount(table[:8], minlength=sites)
        assert ordinary.max() - ordinary.min() <= 1
