"""Batches that follow a latency: limits double and halve, rarely, and only where it pays."""

from __future__ import annotations

import numpy as np
import pytest

from fluxen.control.batches import BatchSizes


class Source:
    """A source with so many rows to give per batch at most, and batches that cost a fixed time and one per row."""

    def __init__(self, *, target: float, fixed: float = 0.45, per_row: float = 0.9e-6, limit: int = 150_000) -> None:
        self.sizes = BatchSizes(target=target)
        self.fixed, self.per_row, self.limit = fixed, per_row, limit
        self.available = float("inf")
        self.noise, self.rng = 0.08, np.random.default_rng(3)
        self.changes: list[float] = []
        self.least = 1.0

    def run(self, batches: int) -> Source:
        for _ in range(batches):
            rows = min(self.limit * self.sizes.factor, self.available)
            work = self.per_row * rows
            seconds = (self.fixed + work) * self.rng.lognormal(0.0, self.noise)
            if self.sizes.after(rows=rows, seconds=seconds, busy=0.6 * work) is not None:
                self.changes.append(self.sizes.factor)
                self.sizes.started(1.0, smallest=self.sizes.factor * self.limit <= self.least)
        return self

    @property
    def takes(self) -> float:
        return self.fixed + self.per_row * self.limit * self.sizes.factor


def test_with_a_backlog_batches_grow_towards_the_target_and_stay() -> None:
    source = Source(target=1.0).run(60)
    assert 0.7 <= source.takes <= 1.1
    assert len(source.changes) <= 3
    before = list(source.changes)
    assert source.run(200).changes == before


def test_batches_that_take_too_long_become_smaller() -> None:
    source = Source(target=1.0, limit=3_000_000).run(60)
    assert source.takes <= 1.3
    assert source.sizes.factor < 1


def test_the_smallest_limit_is_not_halved_again_and_again() -> None:
    source = Source(target=0.1, limit=8)
    source.least = 1.0
    source.run(300)
    assert len(source.changes) <= 3


def test_a_source_with_no_more_to_give_is_asked_once() -> None:
    source = Source(target=5.0)
    source.available = 100_000
    source.run(100)
    assert len(source.changes) <= 1
    source.available = 4_000_000  # a backlog has come: now the limit holds batches back
    source.run(100)
    assert 2.5 <= source.takes <= 5.5


def test_work_that_grows_with_the_rows_alone_is_not_worth_more_than_one_try() -> None:
    source = Source(target=10.0, fixed=0.02, per_row=1e-5)
    assert len(source.run(100).changes) <= 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("target", [0.8, 1.0, 1.5, 2.5])
def test_steady_input_means_no_restart_once_sizes_have_settled(seed: int, target: float) -> None:
    source = Source(target=target)
    source.rng = np.random.default_rng(seed)
    settled = list(source.run(60).changes)
    assert source.run(200).changes == settled
