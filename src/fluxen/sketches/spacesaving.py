"""Space-Saving for batches: a fixed number of counters, the least of them given up first. Beside `lossy`.

A batch is added exactly, then only the ``capacity`` keys with the largest possible counts stay; the largest possible
count that had to go becomes the error of every key that enters later. This is the mergeable form (Agarwal et al. 2012),
which for single rows gives the classic counters.

Guarantee: undercounts by at most total / (capacity + 1), never holds more than ``capacity`` keys; both also after
merging any number of sketches. At equal epsilon it holds a fixed 1/epsilon keys where lossy counting's number grows
with the stream. Not in the paper.

>>> import numpy as np
>>> sketch = SpaceSaving(capacity=2)
>>> sketch.update(np.array([5, 5, 5, 1, 1, 2]))
>>> sketch.held().keys.tolist(), sketch.max_error
([1, 5], 1)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fluxen.errors import ConfigError
from fluxen.sketches.base import Counted, Counts, KeyArray, aggregate, combine

__all__ = ["SpaceSaving"]


class SpaceSaving:
    """The ``capacity`` most frequent keys."""

    __slots__ = ("_held", "_max_error", "_total", "capacity")

    def __init__(self, *, capacity: int) -> None:
        if capacity < 1:
            raise ConfigError(f"space-saving sketch with {capacity} counters: at least one is needed")
        self.capacity = capacity
        self._held = Counted.nothing()
        self._total = 0
        self._max_error = 0

    @classmethod
    def of(cls, *, epsilon: float) -> SpaceSaving:
        """With as many counters as an undercount of epsilon needs."""
        return cls(capacity=math.ceil(1.0 / epsilon))

    @property
    def epsilon(self) -> float:
        """Largest possible undercount, relative to the total."""
        return 1.0 / (self.capacity + 1)

    @property
    def total(self) -> int:
        """Rows counted so far."""
        return self._total

    @property
    def max_error(self) -> int:
        """A key that is not held occurred at most this often."""
        return self._max_error

    @property
    def bound(self) -> int:
        """The most keys it can hold after an update."""
        return self.capacity

    def update(self, keys: KeyArray, counts: Counts | None = None) -> None:
        """Count a batch."""
        distinct, times = aggregate(keys, counts)
        batch = Counted(keys=distinct, counts=times, errors=times * 0)
        self._keep_largest(combine(self._held, batch, self._max_error, 0))
        self._total += int(times.sum())

    def _keep_largest(self, counted: Counted) -> None:
        possible = counted.counts + counted.errors
        if len(possible) > self.capacity:
            order = np.argsort(-possible, kind="stable")
            self._max_error = max(self._max_error, int(possible[order[self.capacity]]))
            # a key that may not occur more often than one given up says nothing: Misra-Gries drops it too
            keep = np.zeros(len(possible), dtype=np.bool_)
            keep[order[: self.capacity]] = True
            counted = counted.only(keep & (possible > self._max_error))
        self._held = counted

    def merge(self, other: SpaceSaving) -> None:
        """Add what a sketch with as many counters counted elsewhere."""
        if other.capacity != self.capacity:
            raise ConfigError(f"merging sketches of {self.capacity} and {other.capacity} counters: must be equal")
        both = combine(self._held, other._held, self._max_error, other._max_error)
        self._max_error += other._max_error
        self._total += other._total
        self._keep_largest(both)

    def held(self) -> Counted:
        """All keys it holds."""
        return self._held

    def frequent(self, share: float) -> Counted:
        """Every key with at least ``share`` of the rows, perhaps others down to ``share - epsilon``."""
        return self._held.only(self._held.counts >= (share - self.epsilon) * self._total)

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `from_dict` makes an equal sketch."""
        return {
            "kind": "spacesaving",
            "capacity": self.capacity,
            "total": self._total,
            "max_error": self._max_error,
            **self._held.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SpaceSaving:
        """The inverse of `to_dict`."""
        made = cls(capacity=int(data["capacity"]))
        made._total, made._max_error = int(data["total"]), int(data["max_error"])
        made._held = Counted.from_dict(data)
        return made

    def __len__(self) -> int:
        return len(self._held.keys)
