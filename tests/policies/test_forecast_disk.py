"""ForecastDisk: what it pushes, when, and what it moves into the room that makes."""

from __future__ import annotations

from typing import Any

import pytest

from fluxen.errors import ConfigError
from fluxen.policies import ForecastDisk
from fluxen.policies.base import Stats


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


@pytest.mark.parametrize("wrong", [{"smoothing": 1.0}, {"margin": 0.5}, {"inputs": 1}, {"ahead": 0.5}, {"spill": 0.0}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ForecastDisk(**wrong)
