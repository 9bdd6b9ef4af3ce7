"""The minimum collection time that tunes itself."""

from __future__ import annotations

import json

import pytest

from fluxen.errors import ConfigError
from fluxen.policies.flux.rounds import Tuner


def test_moving_a_group_again_doubles_the_minimum_up_to_the_ceiling() -> None:
    tuner = Tuner(floor=0.1, ceiling=0.5)
    seen = []
    for _ in range(5):
        tuner.ended([3])
        seen.append(tuner.value)
    assert seen == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])


def test_moving_different_groups_is_progress_and_shrinks_it_to_the_floor() -> None:
    tuner = Tuner(floor=0.1, ceiling=10, decay=0.5)
    for _ in range(4):
        tuner.ended([3])
    assert tuner.value == pytest.approx(0.8)
    for pg in range(100, 110):
        tuner.ended([pg])
    assert tuner.value == pytest.approx(0.1)


def test_a_second_move_long_after_the_first_does_not_count() -> None:
    tuner = Tuner(floor=0.1, ceiling=10, window=4)
    tuner.ended([3])
    for _ in range(4):
        tuner.ended([])
    tuner.ended([3])
    assert tuner.value == pytest.approx(0.1)


def test_what_it_remembers_is_bounded_and_restored() -> None:
    tuner = Tuner(window=4)
    for pg in range(1000):
        tuner.ended([pg])
    state = json.loads(json.dumps(tuner.snapshot()))
    assert len(state["moved"]) <= 4
    other = Tuner(window=4)
    other.restore(state)
    for each in (tuner, other):
        each.ended([999])
    assert other.value == tuner.value > tuner.floor


def test_a_floor_above_the_ceiling_is_an_error() -> None:
    with pytest.raises(ConfigError, match="floor"):
        Tuner(floor=2, ceiling=1)
