"""Lossy counting (Manku and Motwani): forget keys that cannot be frequent at every window boundary. See also `sliding`.

A window is 1/epsilon rows. A key enters with the number of windows closed so far as its error and leaves at a boundary
when count plus error no longer exceeds the windows closed. A batch is one step even if it spans several windows: keys
that enter take the windows closed before the batch, and leaving is judged after it. That keeps the guarantee for any
cut of the stream into batches, and with counts instead of single rows.

Guarantee: undercounts by at most epsilon * total; holds at most (2 + ln(windows)) / epsilon keys after an update.
Merging sketches of several sites keeps epsilon (the errors and the totals both add up); the space bounds add up too,
until later updates evict. Section 4.1.2.

>>> import numpy as np
>>> counter = LossyCounter(epsilon=0.25)
>>> counter.update(np.array([5, 5, 1, 2]))
>>> counter.held().keys.tolist(), counter.max_error
([5], 1)
"""

from __future__ import annotations

import math
from typing import Any

from fluxen.errors import ConfigError
from fluxen.sketches.base import Counted, Counts, KeyArray, aggregate, combine

__all__ = ["LossyCounter"]


class LossyCounter:
    """Keys with at least epsilon of the rows, and few others."""

    __slots__ = ("_held", "_inherited", "_total", "epsilon", "window")

    def __init__(self, *, epsilon: float) -> None:
        if not 0.0 < epsilon < 1.0:
            raise ConfigError(f"lossy counter with epsilon {epsilon}: expected more than 0 and less than 1")
        self.epsilon = epsilon
        self.window = math.ceil(1.0 / epsilon)
        self._held = Counted.nothing()
        self._total = 0
        self._inherited = 0  # space the sketches merged in were entitled to

    @property
    def total(self) -> int:
        """Rows counted so far."""
        return self._total

    @property
    def max_error(self) -> int:
        """Windows closed: a key that is not held occurred at most this often."""
        return self._total // self.window

    @property
    def bound(self) -> int:
        """The most keys it can hold after an update."""
        return self._inherited + math.ceil(self.window * (2.0 + math.log(max(1, self.max_error))))

    def update(self, keys: KeyArray, counts: Counts | None = None) -> None:
        """Count a batch."""
        distinct, times = aggregate(keys, counts)
        batch = Counted(keys=distinct, counts=times, errors=times * 0)
        self._held = combine(self._held, batch, self.max_error, 0)
        self._total += int(times.sum())
        self._evict()

    def _evict(self) -> None:
        self._held = self._held.only(self._held.counts + self._held.errors > self.max_error)

    def merge(self, other: LossyCounter) -> None:
        """Add what a counter with the same epsilon counted elsewhere."""
        if other.epsilon != self.epsilon:
            raise ConfigError(f"merging lossy counters of epsilon {self.epsilon} and {other.epsilon}: must be equal")
        self._held = combine(self._held, other._held, self.max_error, other.max_error)
        self._inherited += other.bound
        self._total += other._total
        self._evict()

    def held(self) -> Counted:
        """All keys it holds."""
        return self._held

    def frequent(self, share: float) -> Counted:
        """Every key with at least ``share`` of the rows, perhaps others down to ``share - epsilon``."""
        return self._held.only(self._held.counts >= (share - self.epsilon) * self._total)

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `from_dict` makes an equal counter."""
        return {
            "kind": "lossy",
            "epsilon": self.epsilon,
            "total": self._total,
            "inherited": self._inherited,
            **self._held.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LossyCounter:
        """The inverse of `to_dict`."""
        made = cls(epsilon=float(data["epsilon"]))
        made._total, made._inherited = int(data["total"]), int(data["inherited"])
        made._held = Counted.from_dict(data)
        return made

    def __len__(self) -> int:
        return len(self._held.keys)
