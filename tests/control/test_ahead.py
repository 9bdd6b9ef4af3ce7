"""State that is copied ahead of a move: the donor serves until the receiver has it, and the switch fetches the tail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluxen as fx
import fluxen.testing as ft
from fluxen.control.adaptation import Adaptation
from fluxen.control.moves import copying as ahead
from fluxen.policies.base import Move
from fluxen.site.context import SiteContext
from fluxen.site.copy_ahead import copy_ahead, merge_limit
from fluxen.state.epoch import StageState, segment_epoch
from fluxen.state.record import GroupStats, SideStats, SiteRecord
from fluxen.state.routing import Routing
from fluxen.state.segment import SegmentRef
from fluxen.state.store import Store
from fluxen.testing import oracle

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
MOVE = Move(pgs=(0,), donor=0, receiver=1, why="by hand")


class Elsewhere(Store):
    """A store that takes its root for another machine's disk."""

    __slots__ = ()

    @property
    def local(self) -> bool:
        return False


def records(size: int, left: int = 0) -> list[SiteRecord]:
    groups = [GroupStats(group=[g], rows_in=[1], rows_out=[1], bytes=[size], rank=[], backlog=[0]) for g in (0, 1)]
    return [
        SiteRecord(epoch=0, stage=0, site=site, sides=[SideStats()], groups=groups[site], ahead_left=left * site)
        for site in (0, 1)
    ]


def stage() -> StageState:
    return StageState(routing=Routing.even(partitions=2, sites=2), watermarks=(0,), emitted=(0,))


def test_generations_on_disk_are_not_copied(tmp_path):
    store = Elsewhere(str(tmp_path / "root"), str(tmp_path / "cache"))
    refs = []
    for kind in ("state", "generation"):
        name = f"segments/0000000000-0-0-0-{kind}.arrow"
        store.write(name, b"0123456789")
        refs.append(
            SegmentRef(
                name=name, side=0, rows=1, bytes=10, crc=0, t_min=0, t_max=0, first_epoch=0, last_epoch=0,
                live=((0, 1),), kind=kind, generation=int(kind == "generation"),
            )
        )  # fmt: skip
    before = replace(stage(), segments=tuple(refs), arriving=((0, 1),))
    operator = join_stage()[0]
    context = SiteContext(store=store, epoch=1, stage=0, operator=operator, before=before)
    assert copy_ahead(context, 1, 1.0) == 0
    assert {path.name for path in (tmp_path / "cache").rglob("*.arrow")} == {refs[0].name.split("/")[1]}


def test_a_large_group_stays_with_its_donor_until_the_receiver_has_a_copy():
    adaptation = Adaptation(remote=True)
    state = adaptation.after(stage(), records(ahead.LEAST), 1.0, [MOVE])
    assert state.routing.table.tolist() == [0, 1]
    assert state.arriving == ((0, 1),)
    state = adaptation.after(state, records(ahead.LEAST, left=2 * ahead.TAIL), 2.0)
    assert state.routing.table.tolist() == [0, 1]
    again = Adaptation(remote=True)  # a restart goes on with it
    again.restore(adaptation.snapshot())
    state = again.after(StageState.from_json(state.to_json()), records(ahead.LEAST, left=ahead.TAIL), 3.0)
    assert state.routing.table.tolist() == [1, 1]
    assert state.arriving == ()
    (event,) = [event for event in again.events() if event["kind"] == "move"]
    assert (event["outcome"], event["duration"]) == ("done", 2.0)


def join_stage() -> tuple[Any, StageState]:
    operator = ft.join({"a": SCHEMA, "b": SCHEMA}, on="k", time="ts").stage.operator
    routing = Routing.even(partitions=4, sites=2)
    return operator, StageState(routing=routing, watermarks=(0, 0), emitted=(0, 0))


def filled(first: int, second: int, left: int = 2 * ahead.TAIL, stays: int = 0) -> list[SiteRecord]:
    """Two groups at each of two sites; those of the first site are the first ones, the second of which `stays`."""
    sizes = ([first, stays or first], [second, second])
    return [
        SiteRecord(
            epoch=0,
            stage=0,
            site=site,
            sides=[SideStats(), SideStats()],
            groups=GroupStats(
                group=[2 * site, 2 * site + 1], rows_in=[1, 1], rows_out=[1, 1], bytes=sizes[site], rank=[], backlog=[]
            ),
            ahead_left=left * site,
        )
        for site in (0, 1)
    ]


@pytest.mark.parametrize("policy", [fx.Static, fx.LocalDisk])
def test_a_site_spills_other_groups_while_a_copy_is_under_way(policy):
    """With a policy that spills, and with the manager's own spills under one that does not."""
    operator, state = join_stage()
    memory = 4 * ahead.LEAST
    adaptation = Adaptation(policy=policy(), memory=memory, operator=operator, remote=True)
    state = adaptation.after(state, filled(ahead.LEAST, ahead.LEAST), 1.0, [MOVE])
    assert state.arriving == ((0, 1),)
    again = Adaptation(policy=policy(), memory=memory, operator=operator, remote=True)
    again.restore(adaptation.snapshot())
    state = again.after(
        StageState.from_json(state.to_json()), filled(ahead.LEAST, ahead.LEAST, stays=7 * ahead.LEAST // 2), 2.0
    )
    events = [event for event in again.events() if event["kind"] in ("spill", "move")]
    assert [(event["outcome"], event["detail"]["pgs"]) for event in events] == [("done", (1,))]
    assert state.arriving == ((0, 1),)
    # and the move itself goes on
    state = again.after(state, filled(ahead.LEAST, ahead.LEAST, left=0), 3.0)
    assert state.routing.table.tolist() == [1, 0, 1, 1]


def test_a_move_is_called_off_when_the_receiver_has_filled_up_meanwhile():
    operator, state = join_stage()
    adaptation = Adaptation(policy=fx.Static(), memory=4 * ahead.LEAST, operator=operator, remote=True)
    state = adaptation.after(state, filled(ahead.LEAST, ahead.LEAST), 1.0, [MOVE])
    state = adaptation.after(state, filled(ahead.LEAST, 7 * ahead.LEAST // 4, left=0), 2.0)
    assert state.routing.table.tolist() == [0, 0, 1, 1]
    assert state.arriving == ()
    (event,) = [event for event in adaptation.events() if event["kind"] == "move"]
    assert (event["outcome"], event["reason"]) == ("failed", "the receiver has no memory left for them")


def test_another_move_waits_for_the_one_that_is_copied():
    operator, state = join_stage()
    adaptation = Adaptation(policy=fx.Static(), operator=operator, remote=True)
    state = adaptation.after(state, filled(ahead.LEAST, ahead.LEAST), 1.0, [MOVE])
    second = Move(pgs=(1,), donor=0, receiver=1, why="by hand")
    state = adaptation.after(state, filled(ahead.LEAST, ahead.LEAST), 2.0, [second])
    assert state.arriving == ((0, 1),)
    assert "site 0 is busy" in adaptation.manager.events[-1].reason


def test_results_owed_from_disk_are_no_sign_of_productivity():
    operator, state = join_stage()
    seen: list[Any] = []

    class Watching(fx.Static):
        def suggest(self, stats, now):
            seen.append(stats.site_rows_out.tolist())
            return ()

    adaptation = Adaptation(policy=Watching(), memory=1 << 30, operator=operator)
    given = filled(100, 100)
    given[0] = replace(given[0], rows_out=1002, rows_owed=1000)
    adaptation.after(state, given, 1.0)
    assert seen == [[2.0, 0.0]]


def test_a_merge_during_the_copy_is_copied_as_well_before_the_switch():
    """The receiver has what it was asked for, but the donor has just put all of it into a new file."""
    adaptation = Adaptation(remote=True)
    state = adaptation.after(stage(), records(ahead.LEAST), 1.0, [MOVE])
    merged = SegmentRef(
        name="segments/merged",
        side=0,
        rows=1,
        bytes=ahead.MERGED + 1,
        crc=0,
        t_min=0,
        t_max=0,
        first_epoch=0,
        last_epoch=0,
        live=((0, 1),),
    )
    donor, receiver = records(ahead.LEAST)
    state = adaptation.after(state, [replace(donor, epoch=1, added=[merged]), receiver], 2.0)
    assert state.routing.table.tolist() == [0, 1]
    fresh = replace(merged, first_epoch=2, last_epoch=2)  # new rows of one batch: there is no way round these
    state = adaptation.after(state, [replace(donor, epoch=2, added=[fresh]), receiver], 3.0)
    assert state.routing.table.tolist() == [1, 1]


def test_a_donor_makes_no_large_files_while_a_group_leaves():
    leaving = replace(stage(), arriving=((0, 1),))
    assert merge_limit(leaving, 0, 1 << 30) == ahead.LEAST
    assert merge_limit(leaving, 1, 1 << 30) == 1 << 30


def test_a_move_that_never_gets_its_copy_is_carried_out_in_the_end():
    adaptation = Adaptation(remote=True)
    state = adaptation.after(stage(), records(ahead.LEAST), 1.0, [MOVE])
    state = adaptation.after(state, records(ahead.LEAST, left=1 << 40), 1.0 + ahead.PATIENCE)
    assert state.routing.table.tolist() == [1, 1]


def test_a_move_is_given_up_when_a_restart_has_changed_the_sites():
    adaptation = Adaptation(remote=True)
    state = adaptation.after(stage(), records(ahead.LEAST), 1.0, [MOVE])
    alone = replace(state, routing=state.routing.rescaled(1))
    state = adaptation.after(alone, records(ahead.LEAST)[:1], 1.0 + ahead.PATIENCE)
    assert state.routing.table.tolist() == [0, 0]
    assert state.arriving == ()
    (event,) = [event for event in adaptation.events() if event["kind"] == "move"]
    assert event["outcome"] == "failed"


@pytest.mark.parametrize(("size", "remote"), [(ahead.LEAST - 1, True), (ahead.LEAST, False)])
def test_small_groups_and_groups_on_a_shared_disk_move_at_once(size, remote):
    state = Adaptation(remote=remote).after(stage(), records(size), 1.0, [MOVE])
    assert state.routing.table.tolist() == [1, 1]
    assert state.arriving == ()


def test_a_file_is_copied_piece_by_piece_and_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr("fluxen.state.store.FETCHED", 4)
    store = Elsewhere(str(tmp_path / "root"), str(tmp_path / "cache"))
    store.write("segments/one", b"0123456789")
    allowed = iter([True, True, False])
    assert store.fetch("segments/one", 10, lambda: next(allowed), "0") == 6
    assert store.fetch("segments/one", 10, lambda: False, "0") == 6
    assert store.fetch("segments/one", 10, lambda: True, "0") == 0
    with open(store.mappable("segments/one", 10), "rb") as file:
        assert file.read() == b"0123456789"


def test_results_are_right_when_every_move_is_copied_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "LEAST", 0)
    monkeypatch.setattr(ft.FaultyStore, "local", property(lambda self: False))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "cache"))
    rng = np.random.default_rng(1)
    batches = [
        pa.table({"k": rng.integers(0, 30, 60), "ts": [number] * 60, "v": rng.integers(0, 9, 60)}, SCHEMA)
        for number in range(8)
    ]
    stage = ft.aggregate(SCHEMA, "k", "ts", last=3, total=fx.sum("v"))
    moves: dict[str, Any] = {"policy": lambda: fx.Random(seed=2, period=0.0, moves=2), "sites": 3, "partitions": 8}
    bench = ft.LocalEngine([stage], ft.FaultyStore(str(tmp_path / "checkpoint")), **moves)
    found, copied = [], 0
    before = bench.epoch.stages[0].routing.table.tolist()
    for number, table in enumerate(batches):
        named = {ref.name.split("/")[1] for ref in bench.epoch.stages[0].segments}
        found += bench.step(number, [table]).to_pylist()
        copied += len(bench.epoch.stages[0].arriving)
    assert copied > 0
    assert bench.epoch.stages[0].routing.table.tolist() != before
    # copies of what the epoch before the last one no longer named are gone
    cached = {path.name for path in (tmp_path / "cache").rglob("*.arrow")}
    assert {name for name in cached if segment_epoch(name) < bench.epoch.number} <= named
    exact = oracle.last(batches, ["k"], "ts", 3, {"total": fx.sum("v")})
    assert oracle.canonical_rows(found) == oracle.canonical_rows(exact)
