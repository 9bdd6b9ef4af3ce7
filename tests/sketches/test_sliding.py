"""What the sliding window covers, and how lossy counting behaves at its boundaries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.effort import examples

from fluxen.errors import ConfigError
from fluxen.sketches import LossyCounter, SlidingSketch, SpaceSaving


@given(
    window=st.integers(10, 200),
    counters=st.integers(2, 6),
    batches=st.lists(st.integers(0, 150), min_size=1, max_size=40),
)
@examples(60)
def test_it_covers_the_window_and_at_most_one_step_more(window: int, counters: int, batches: list[int]) -> None:
    recent = SlidingSketch(LossyCounter(epsilon=0.001), window=window, counters=counters)
    passed = 0
    for size in batches:
        recent.update(np.arange(passed, passed + size, dtype=np.int64))
        passed += size
        assert recent.total >= min(passed, window)
        assert recent.total <= recent.step * counters
        # every row it covers is one of the last ones, without a gap
        held = recent.held().keys
        assert held.tolist() == list(range(passed - recent.total, passed))
    assert recent.step * counters <= window * counters / (counters - 1) + counters


def test_a_key_that_has_stopped_is_forgotten_and_a_new_one_found() -> None:
    recent = SlidingSketch(LossyCounter(epsilon=0.01), window=1000)
    recent.update(np.zeros(5000, dtype=np.int64))
    assert recent.frequent(0.5).keys.tolist() == [0]
    recent.update(np.ones(1600, dtype=np.int64))
    assert recent.frequent(0.1).keys.tolist() == [1]


def test_a_batch_larger_than_the_window_counts_as_its_rows_in_order() -> None:
    keys = np.arange(1000, dtype=np.int64) // 100
    at_once = SlidingSketch(SpaceSaving(capacity=50), window=200)
    at_once.update(keys)
    one_by_one = SlidingSketch(SpaceSaving(capacity=50), window=200)
    for key in keys:
        one_by_one.update(np.array([key]))
    assert at_once.total == one_by_one.total
    assert at_once.held().keys.tolist() == one_by_one.held().keys.tolist()
    assert set(at_once.held().keys.tolist()) <= {7, 8, 9}


@pytest.mark.parametrize(("window", "counters"), [(10, 1), (1, 3), (0, 2)])
def test_impossible_windows_are_refused(window: int, counters: int) -> None:
    with pytest.raises(ConfigError, match="sliding window"):
        SlidingSketch(LossyCounter(epsilon=0.1), window=window, counters=counters)


def test_a_prototype_that_has_counted_is_refused() -> None:
    used = LossyCounter(epsilon=0.1)
    used.update(np.array([1]))
    with pytest.raises(ConfigError, match="counted"):
        SlidingSketch(used, window=10)


def test_single_rows_follow_the_textbook_lossy_counter() -> None:
    rows = np.random.default_rng(1).zipf(1.3, 3000) % 500
    counter, window = LossyCounter(epsilon=0.02), 50
    book: dict[int, list[int]] = {}
    for number, key in enumerate(rows.tolist(), start=1):
        counter.update(np.array([key]))
        closed = (number - 1) // window
        book.setdefault(key, [0, closed])[0] += 1
        if number % window == 0:
            book = {k: entry for k, entry in book.items() if sum(entry) > number // window}
        held = counter.held()
        assert dict(zip(held.keys.tolist(), held.counts.tolist())) == {
            k: count for k, (count, error) in book.items() if count + error > number // window
        }


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1])
def test_an_impossible_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        LossyCounter(epsilon=epsilon)


def test_only_like_sketches_merge() -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        LossyCounter(epsilon=0.1).merge(LossyCounter(epsilon=0.2))
    with pytest.raises(ConfigError, match="counters"):
        SpaceSaving(capacity=3).merge(SpaceSaving(capacity=4))
    with pytest.raises(ConfigError, match="sliding"):
        SlidingSketch(SpaceSaving(capacity=3), window=10).merge(SlidingSketch(SpaceSaving(capacity=3), window=20))
