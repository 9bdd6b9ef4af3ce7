"""LazyDisk and ActiveDisk do what Algorithms 1 and 2 of Liu-07 say, and learn from what happened."""

from __future__ import annotations

from typing import Any

import pytest

from fluxen.policies import ActiveDisk, LazyDisk
from fluxen.policies.base import Stats


def state(sizes: list[float], results: list[float], spilled: list[float] | None = None, **given: Any) -> Stats:
    """Two sites of two groups each, 100 bytes of memory at each site."""
    values: dict[str, Any] = {"placement": [0, 0, 1, 1], "bytes": sizes, "rows_out": results, "capacity": [100, 100]}
    return Stats.build(sites=2, spilled=[0.0] * 4 if spilled is None else spilled, **{**values, **given})


def kinds(policy: Any, stats: Stats, now: float) -> list[str]:
    return [suggestion.kind for suggestion in policy.suggest(stats, now)]


UNEVEN = [400.0, 400.0, 4.0, 4.0]


@pytest.mark.parametrize("guarded", [True, False])
def test_nothing_is_forced_out_while_a_relocation_is_due_and_waits_for_its_gap(guarded: bool) -> None:
    policy = ActiveDisk(query_memory=1000, gap=10.0, pressure=0.4, guarded=guarded)
    assert kinds(policy, state([20, 75, 5, 15], UNEVEN), 1.0) == ["move"]
    moved = [1, 0, 1, 1]
    # the move has happened, loads are still apart, and the gap has not passed: Algorithm 2 has nothing to say
    for now in (2.0, 5.0, 10.0):
        assert kinds(policy, state([20, 75, 5, 15], UNEVEN, placement=moved), now) == []
    # loads are even: now it has
    assert kinds(policy, state([20, 45, 5, 15], UNEVEN, placement=moved), 10.5) == ["spill"]


def test_what_is_forced_out_is_capped_by_what_is_on_disk_because_of_it() -> None:
    policy = ActiveDisk(query_memory=230, gap=1.0)
    even = [45.0, 45.0, 40.0, 45.0]
    assert kinds(policy, state(even, UNEVEN), 1.0) == ["spill"]
    disk = [0.0, 0.0, 0.0, 45.0]
    # 45 bytes have been forced out, more than the 30 that the query lacks; the same again while they are there
    for now in (2.0, 3.0, 4.0):
        assert "spill" not in kinds(policy, state([45, 45, 40, 5], UNEVEN, disk), now)
    # their window has passed, and nothing is on disk any more
    assert kinds(policy, state(even, UNEVEN), 5.0) == ["spill"]


def test_a_forced_spill_that_was_refused_does_not_count() -> None:
    policy = ActiveDisk(query_memory=230, gap=1.0)
    for now in (1.0, 2.0, 3.0):
        assert kinds(policy, state([45, 45, 40, 45], UNEVEN), now) == ["spill"]


def test_a_relocation_that_was_refused_starts_no_gap() -> None:
    policy = LazyDisk(gap=100.0)
    skewed = state([30, 30, 10, 10], [1, 1, 1, 1], placement=[0, 0, 0, 1])
    assert kinds(policy, skewed, 1.0) == ["move"]
    assert kinds(policy, skewed, 2.0) == ["move"]
    under_way = state([30, 30, 10, 10], [1, 1, 1, 1], placement=[0, 0, 0, 1], moving=[False, False, True, False])
    assert kinds(policy, under_way, 3.0) == []
    assert kinds(policy, skewed, 4.0) == []


def test_state_that_does_not_grow_is_not_expected_to_double() -> None:
    """Everything fits, and has done so for long: there is nothing to make room for, however unproductive a site is."""
    policy = ActiveDisk(gap=1.0)
    for now in range(1, 200):
        assert kinds(policy, state([40, 40, 40, 40], UNEVEN), float(now)) == [] or now < 8
    growing = ActiveDisk(gap=1.0)
    done = [kinds(growing, state([now / 2] * 4, UNEVEN), float(now)) for now in range(1, 90)]
    assert ["spill"] in done


def test_sites_of_unlike_memory_are_filled_alike() -> None:
    policy = LazyDisk()
    assert kinds(policy, state([20, 20, 10, 10], [1] * 4, capacity=[100, 50]), 1.0) == []
    [move] = policy.suggest(state([20, 20, 20, 20], [1] * 4, capacity=[400, 50]), 2.0)
    assert (move.donor, move.receiver) == (1, 0)  # type: ignore[union-attr]


def test_sites_that_must_spill_do_not_relocate_because_of_when_they_did() -> None:
    policy = LazyDisk(gap=1.0)
    for now in range(1, 40):
        low, high = ([50.0, 10.0], [50.0, 45.0]) if now % 2 else ([50.0, 45.0], [50.0, 10.0])
        disk = [0.0, 60.0, 0.0, 60.0]
        assert "move" not in kinds(policy, state([*low, *high], [1] * 4, disk), float(now))
