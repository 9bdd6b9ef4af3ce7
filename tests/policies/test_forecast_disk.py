"""ForecastDisk: what it pushes, when, and what it moves into the room that makes."""

from __future__ import annotations

from typing import Any

import pytest

from fluxen.errors import ConfigError
from fluxen.policies import ForecastDisk
from fluxen.policies.base import Stats
from fluxen.policies.disk.relocating import Relocator
from fluxen.policies.disk.spilling import Spiller


def state(sizes: list[float], results: list[float], spilled: list[float] | None = None, **given: Any) -> Stats:
    """Two sites of two groups each, 100 bytes of memory at each site."""
    return Stats.build(
        sites=2,
        placement=[0, 0, 1, 1],
        bytes=sizes,
        rows_out=results,
        capacity=[100, 100],
        **({} if spilled is None else {"spilled": spilled}),
        **given,
    )


def told(policy: ForecastDisk, stats: Stats, now: float) -> list[tuple[Any, ...]]:
    """What is suggested: pushes as (site, groups), moves as (from, to, groups)."""
    made: list[tuple[Any, ...]] = []
    for s in policy.suggest(stats, now):
        where = (s.donor, s.receiver) if s.kind == "move" else (s.site,)
        made.append((s.kind, *where, s.pgs))
    return made


def test_the_cheap_site_makes_room_and_a_productive_group_moves_into_it() -> None:
    policy = ForecastDisk()
    assert told(policy, state([29, 68, 50, 47], [90, 80, 5, 4]), 1.0) == []
    # the whole cluster is three batches from full; what site 0 would have to push is worth ten times more
    assert told(policy, state([30, 68, 50, 48], [90, 80, 5, 4]), 2.0) == [("spill", 1, (3,))]
    moved = told(policy, state([31, 68, 51, 2], [90, 80, 5, 0], [0, 0, 0, 48]), 3.0)
    assert moved == [("move", 0, 1, (0,))]


def test_nothing_is_pushed_ahead_for_what_is_worth_as_much() -> None:
    policy = ForecastDisk()
    told(policy, state([47, 50, 50, 47], [90, 80, 70, 60]), 1.0)
    assert told(policy, state([48, 50, 50, 48], [90, 80, 70, 60]), 2.0) == []


def test_a_site_that_must_push_pushes_one_group_and_not_a_share_of_its_state() -> None:
    policy = ForecastDisk()
    told(policy, state([40, 50, 50, 40], [90, 80, 70, 60]), 1.0)
    # another ten bytes are expected at each site, ten are left
    assert told(policy, state([48, 53, 53, 46], [90, 80, 70, 60]), 2.0) == [
        ("spill", 0, (1,)),
        ("spill", 1, (3,)),
    ]


def test_a_group_on_disk_comes_back_when_it_promises_more_than_what_goes_for_it() -> None:
    policy = ForecastDisk(smoothing=0.0)
    quiet = state([40, 40, 40, 20], [90, 2, 70, 60], [0, 0, 0, 40])
    told(policy, quiet, 1.0)
    # group 3: with three inputs, three times the state gives nine times its 600 results
    hot = state([40, 40, 40, 20], [90, 2, 70, 600], [0, 0, 0, 40])
    assert told(policy, hot, 2.0) == [("unspill", 1, (3,))]


def test_it_goes_on_after_a_restart_as_if_there_had_been_none() -> None:
    batches = [
        state([30 + 6 * i, 34 + 6 * i, 36 + 5 * i, 33 + 5 * i], [90 + 10 * i, 80, 5, 4 - i / 4]) for i in range(6)
    ]
    straight, first = ForecastDisk(), ForecastDisk()
    expected = [told(straight, stats, float(i)) for i, stats in enumerate(batches)]
    assert any(expected)
    found = [told(first, stats, float(i)) for i, stats in enumerate(batches[:3])]
    second = ForecastDisk()
    second.restore(first.snapshot())
    found += [told(second, stats, float(i)) for i, stats in enumerate(batches[3:], start=3)]
    assert found == expected


def test_what_leaves_the_disk_takes_the_room_it_made_along() -> None:
    """Windows turn state over: a site that is full of what it had to push is not an empty one."""
    relocator, before = Relocator(threshold=0.8, gap=0.0, guarded=True), Spiller(spill=0.0)

    def load(sizes: list[float], spilled: list[float], made_room: tuple[int, ...] = ()) -> list[float]:
        stats = state(sizes, [1, 1, 1, 1], spilled)
        relocator.made_room = made_room
        relocator.observe(stats, before)
        before.observe(stats)
        return [float(share) for share in relocator.load(stats)]

    assert load([40, 40, 50, 50], [0, 0, 0, 0]) == [0.8, 1.0]
    assert load([0, 40, 50, 50], [40, 0, 0, 0], made_room=(0,)) == [0.4, 1.0]
    assert load([20, 40, 50, 50], [20, 0, 0, 0]) == [0.6, 1.0]
    assert load([20, 0, 50, 50], [0, 40, 0, 0]) == [0.6, 1.0]
    assert load([20, 40, 50, 50], [0, 40, 0, 0]) == [1.0, 1.0]
    restored = Relocator(threshold=0.8, gap=0.0, guarded=True)
    assert load([20, 0, 50, 50], [0, 80, 0, 0], made_room=(1,)) == [0.6, 1.0]
    restored.restore(relocator.snapshot())
    assert restored.load(state([20, 0, 50, 50], [1, 1, 1, 1], [0, 80, 0, 0])).tolist() == [0.6, 1.0]


@pytest.mark.parametrize("wrong", [{"smoothing": 1.0}, {"margin": 0.5}, {"inputs": 1}, {"ahead": 0.5}, {"spill": 0.0}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ForecastDisk(**wrong)
