"""The manager keeps its invariants whatever a policy suggests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.effort import examples

from fluxen.control import Event, Limits, Manager, next_placement
from fluxen.errors import CheckpointError, ConfigError
from fluxen.policies import FluxLoad, Random
from fluxen.policies.base import (
    Cleanup,
    Move,
    Policy,
    Repartition,
    Replan,
    Rescale,
    Spill,
    Split,
    Stats,
    Suggestion,
    Unspill,
)


class Scripted(Policy):
    """Says what it was told to, once."""

    def __init__(self, *suggestions: Suggestion) -> None:
        self.suggestions: Sequence[Suggestion] = suggestions
        self.seen: list[Stats] = []

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        self.seen.append(stats)
        said, self.suggestions = self.suggestions, ()
        return said

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        return None


def stage(**columns: Any) -> Stats:
    values: dict[str, Any] = {"sites": 3, "placement": [0, 0, 1, 2], "bytes": [10, 20, 30, 40], "capacity": [100] * 3}
    return Stats.build(**{**values, **columns})


def move(*pgs: int, donor: int = 0, receiver: int = 1) -> Move:
    return Move(pgs=pgs, donor=donor, receiver=receiver, why="test")


def refusal(suggestion: Suggestion, stats: Stats | None = None, limits: Limits | None = None) -> str:
    manager = Manager(policy=Scripted(suggestion), limits=limits)
    assert manager.step(stats or stage(), now=1.0) == ()
    [event] = manager.events
    assert event.outcome == "refused"
    return event.reason


def test_an_accepted_move_becomes_an_action_and_then_a_done_event() -> None:
    manager = Manager(policy=Scripted(move(1)))
    [action] = manager.step(stage(), now=5.0)
    assert (action.suggestion, action.started, action.bytes) == (move(1), 5.0, 20)
    assert [event.outcome for event in manager.events] == ["running"]
    event = manager.finish(action.id, now=7.0)
    assert (event.outcome, event.when, event.duration, event.bytes, event.why) == ("done", 5.0, 2.0, 20, "test")
    assert manager.running == ()
    assert manager.events == (event,)


def test_a_failed_action_is_logged_with_its_error_and_frees_its_sites() -> None:
    manager = Manager(policy=Scripted(move(1)))
    [action] = manager.step(stage(), now=1.0)
    assert manager.finish(action.id, now=2.0, error="executor lost").outcome == "failed"
    assert len(manager.submit([move(1)], stage(), now=3.0)) == 1


@pytest.mark.parametrize(
    ("suggestion", "reason"),
    [
        (move(9), "does not exist"),
        (move(0, receiver=7), "site 7 does not exist"),
        (move(0, donor=-1), "site -1 does not exist"),
        (move(2), "is at site 1, not at site 0"),
        (move(), "names no partition group"),
        (move(0, 0), "twice"),
        (move(0, receiver=0), "both site 0"),
        (Spill(site=0, pgs=(3,), why=""), "is at site 2"),
        (Unspill(site=0, pgs=(0,), why=""), "nothing on disk"),
        (Cleanup(site=0, pgs=(0,), why=""), "nothing on disk"),
        (Rescale(sites=0, why=""), "at least one site"),
        (Rescale(sites=3, why=""), "already has 3"),
        (Replan(site=4, tree="(0 1)", why=""), "site 4 does not exist"),
        (Repartition(explicit=(), placement=((0, 8),), why=""), "site 8"),
        (Repartition(explicit=(), placement=((9, 0),), why=""), "group 9 does not exist"),
        (Repartition(explicit=((7, 4),), placement=((5, 0),), why=""), "group 5 does not exist"),
        (Repartition(explicit=((2**63, 4),), placement=(), why=""), "no hash of 64 bits"),
        (Split(key=-(2**63) - 1, dealt=0, sites=(0, 1), why=""), "no hash of 64 bits"),
    ],
)
def test_nonsense_is_refused_with_its_reason(suggestion: Suggestion, reason: str) -> None:
    assert reason in refusal(suggestion)


def test_a_key_leaves_its_group_only_where_the_operator_knows_keys() -> None:
    isolate = Repartition(explicit=((7, 4),), placement=((4, 0),), why="")
    assert "stay together" in refusal(isolate, limits=Limits(divisible=False))
    assert len(Manager(policy=Scripted(isolate)).step(stage(), now=1.0)) == 1


def test_of_a_spilled_group_only_what_is_in_memory_needs_room_at_the_receiver() -> None:
    stats = stage(spilled=[0, 500, 0, 0], capacity=[100, 50, 100])
    [action] = Manager(policy=Scripted(move(1))).step(stats, now=1.0)
    assert action.bytes > 500
    assert "room" in refusal(move(1), stage(spilled=[0, 500, 0, 0], capacity=[100, 49, 100]))


def test_a_receiver_without_memory_refuses_and_one_with_exactly_enough_accepts() -> None:
    assert "room for 19 bytes" in refusal(move(1), stage(capacity=[100, 49, 100]))
    assert len(Manager(policy=Scripted(move(1))).step(stage(capacity=[100, 50, 100]), now=1.0)) == 1
    assert "room" in refusal(move(1), stage(capacity=[100, 50, 100]), Limits(headroom=0.9))


def test_one_adaptation_per_site_at_a_time_within_a_step_and_across_steps() -> None:
    policy = Scripted(move(0), move(2, donor=1, receiver=2))
    manager = Manager(policy=policy)
    [action] = manager.step(stage(), now=1.0)
    assert action.suggestion == move(0)
    assert manager.submit([Spill(site=1, pgs=(2,), why="")], stage(), now=2.0) == ()
    manager.finish(action.id, now=3.0)
    assert len(manager.submit([Spill(site=1, pgs=(2,), why="")], stage(), now=4.0)) == 1


def test_an_adaptation_of_the_whole_stage_waits_for_all_others_and_keeps_them_out() -> None:
    manager = Manager(policy=Scripted(move(0)))
    [action] = manager.step(stage(), now=1.0)
    assert manager.submit([Rescale(sites=5, why="")], stage(), now=2.0) == ()
    manager.finish(action.id, now=3.0)
    [rescale] = manager.submit([Rescale(sites=5, why="")], stage(), now=4.0)
    assert manager.submit([move(3, donor=2, receiver=1)], stage(), now=5.0) == ()
    manager.finish(rescale.id, now=6.0)
    assert len(manager.submit([move(3, donor=2, receiver=1)], stage(), now=7.0)) == 1


def test_cool_down_refuses_until_it_is_over() -> None:
    manager = Manager(policy=Scripted(move(0)), limits=Limits(site_cooldown=2.0, group_cooldown=10.0))
    [action] = manager.step(stage(), now=1.0)
    manager.finish(action.id, now=2.0)
    after = stage(placement=[1, 0, 1, 2])
    assert manager.submit([move(1)], after, now=3.9) == ()
    [second] = manager.submit([move(1)], after, now=4.0)
    manager.finish(second.id, now=5.0)
    assert manager.submit([move(0, donor=1, receiver=2)], after, now=11.9) == ()
    assert len(manager.submit([move(0, donor=1, receiver=2)], after, now=12.0)) == 1


def test_a_policy_sees_which_groups_are_under_way() -> None:
    policy = Scripted(move(1))
    manager = Manager(policy=policy)
    manager.step(stage(), now=1.0)
    manager.step(stage(), now=2.0)
    assert [seen.moving.tolist() for seen in policy.seen] == [[False] * 4, [False, True, False, False]]


def test_a_refusal_that_repeats_is_one_entry_with_a_count() -> None:
    manager = Manager(policy=Scripted())
    for now in (1.0, 2.0, 3.0):
        manager.submit([move(9)], stage(), now=now)
    [event] = manager.events
    assert (event.count, event.when, event.last) == (3, 1.0, 3.0)
    assert [fresh.count for fresh in manager.new_events()] == [1, 2]
    assert manager.new_events() == ()


def test_a_refusal_in_every_round_is_told_more_and_more_rarely() -> None:
    """Whatever group it names and whatever numbers its reason holds."""
    manager = Manager(policy=Scripted())
    told = []
    for now in range(5_000):
        sizes = [10 + now, 20, 30, 90]
        manager.submit([move(now % 2, receiver=2)], stage(bytes=sizes, capacity=[10_000, 100, 95]), now=float(now))
        told += manager.new_events()
    assert len(told) <= 13
    [event] = manager.events
    assert (event.count, event.last, event.kind) == (5_000, 4_999.0, "move")
    assert "room for" in event.reason


def test_the_log_is_bounded() -> None:
    manager = Manager(policy=Scripted(), kept=5)
    sites = stage(sites=30, capacity=[100] * 30)
    for donor in range(20):
        manager.submit([move(100 + donor, donor=donor, receiver=29)], sites, now=1.0)
    assert len(manager.events) == 5
    assert "group 119" in manager.events[-1].what


def test_finishing_twice_is_an_error() -> None:
    manager = Manager(policy=Scripted(move(0)))
    [action] = manager.step(stage(), now=1.0)
    manager.finish(action.id, now=2.0)
    with pytest.raises(ConfigError, match="is not running"):
        manager.finish(action.id, now=3.0)


def test_a_snapshot_of_another_version_is_refused() -> None:
    manager = Manager(policy=Scripted())
    with pytest.raises(CheckpointError, match="version 99"):
        manager.restore({**manager.snapshot(), "version": 99})


def test_a_restored_log_keeps_counting_the_refusals_it_had() -> None:
    manager = Manager(policy=Scripted())
    manager.submit([move(9)], stage(), now=1.0)
    stored = [Event.from_dict(json.loads(json.dumps(event.to_dict()))) for event in manager.new_events()]
    other = Manager(policy=Scripted())
    other.restore(json.loads(json.dumps(manager.snapshot())), events=stored)
    other.submit([move(9)], stage(), now=2.0)
    [event] = other.events
    assert event.count == 2


def test_next_placement_applies_moves_and_repartitions_and_leaves_the_table_alone() -> None:
    manager = Manager(policy=Scripted(move(0, 1, receiver=2)))
    table = np.array([0, 0, 1, 2])
    moved = next_placement(np.arange(4), table, manager.step(stage(), now=1.0))
    assert moved.tolist() == [2, 2, 1, 2]
    assert table.tolist() == [0, 0, 1, 2]


@examples(60)
@given(data=st.data())
def test_no_site_is_ever_in_two_actions_and_a_restored_manager_decides_alike(data: st.DataObject) -> None:
    sites, groups = 5, 12
    seed = data.draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)
    table = rng.integers(0, sites, groups)
    manager = Manager(
        policy=Random(seed=seed, moves=4), limits=Limits(site_cooldown=data.draw(st.sampled_from([0.0, 1.5])))
    )
    for now in range(12):
        stats = Stats.build(sites=sites, placement=table, bytes=rng.integers(1, 50, groups), capacity=[150] * sites)
        twin = Manager(policy=Random(seed=seed, moves=4), limits=manager.limits)
        twin.restore(json.loads(json.dumps(manager.snapshot())))
        actions = manager.step(stats, now=float(now))
        assert twin.step(stats, now=float(now)) == actions
        used = [s for a in manager.running for s in (a.suggestion.donor, a.suggestion.receiver)]  # type: ignore[union-attr]
        assert len(used) == len(set(used))
        for action in manager.running:
            if data.draw(st.booleans()):
                table = next_placement(np.arange(groups), table, [action])
                manager.finish(action.id, now=now + 0.5)


def test_the_manager_drives_flux_load_through_its_rounds() -> None:
    """A busy site gives one group per round to the idle one until both are equally busy."""
    table = np.array([0] * 8 + [1, 1])
    manager = Manager(policy=FluxLoad(min_collection=1.0, groups_per_move=1))
    for now in range(1, 30):
        rows = np.ones(10)
        load = np.bincount(table, minlength=2) / 10
        stats = Stats.build(sites=2, placement=table, rows_in=rows, busy=load, idle=1 - load)
        for action in manager.step(stats, now=float(now)):
            table = next_placement(np.arange(10), table, [action])
            manager.finish(action.id, now=float(now))
    assert np.bincount(table).tolist() == [5, 5]
    assert len([event for event in manager.events if event.outcome == "done"]) == 3
