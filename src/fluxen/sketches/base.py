"""What every frequency sketch can do. One file per sketch: `lossy`, `spacesaving`; `sliding` forgets the past.

A sketch counts key hashes (int64) of a stream in little space and answers which keys are frequent. Sites count per
batch, so updates take arrays; the coordinator merges what the sites counted. Frequencies go to
`fluxen.partitioning.Frequencies.counted`.

Guarantee of every sketch: for each key, ``count <= true count <= count + error``, a key that is not held occurred at
most ``max_error`` times, and ``max_error <= epsilon * total``. So a key that makes up at least ``share`` of the stream,
with ``share`` above epsilon, is always among ``frequent(share)``. Section 4.1.2.

>>> import numpy as np
>>> from fluxen.sketches import LossyCounter
>>> sketch = LossyCounter(epsilon=0.1)
>>> sketch.update(np.array([7, 7, 7, 1, 2, 7, 3, 7, 4, 7, 5, 7]))
>>> sketch.frequent(0.5).keys.tolist()
[7]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fluxen.errors import CheckpointError, ConfigError

__all__ = ["Counted", "Counts", "FrequencySketch", "KeyArray", "aggregate", "combine"]

KeyArray: TypeAlias = NDArray[np.int64]
Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counted:
    """Keys in ascending order with the least number of times each occurred and how many more it may have been."""

    keys: KeyArray
    counts: Counts
    errors: Counts

    @classmethod
    def nothing(cls) -> Counted:
        """No keys."""
        none = np.empty(0, dtype=np.int64)
        return cls(keys=none, counts=none.copy(), errors=none.copy())

    def only(self, keep: NDArray[np.bool_] | NDArray[np.intp]) -> Counted:
        """A part of the keys."""
        return Counted(keys=self.keys[keep], counts=self.counts[keep], errors=self.errors[keep])

    def to_dict(self) -> dict[str, list[int]]:
        """Plain lists."""
        return {"keys": self.keys.tolist(), "counts": self.counts.tolist(), "errors": self.errors.tolist()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Counted:
        """The inverse of `to_dict`."""
        keys, counts, errors = (np.asarray(data[name], dtype=np.int64) for name in ("keys", "counts", "errors"))
        if not len(keys) == len(counts) == len(errors) or bool((keys[1:] <= keys[:-1]).any()):
            raise CheckpointError("sketch cannot be read: expected ascending keys with a count and an error each")
        return cls(keys=keys, counts=counts, errors=errors)


class FrequencySketch(Protocol):
    """Counts keys of a stream in bounded space."""

    @property
    def total(self) -> int:
        """Rows counted so far."""

    @property
    def max_error(self) -> int:
        """A key that is not held occurred at most this often."""

    @property
    def bound(self) -> int:
        """The most keys it can hold after an update."""

    def update(self, keys: KeyArray, counts: Counts | None = None) -> None:
        """Count a batch: keys in order of arrival, or keys with how often each occurred."""

    def merge(self, other: Any) -> None:
        """Add what another sketch of the same kind and parameters counted."""

    def held(self) -> Counted:
        """All keys it holds."""

    def frequent(self, share: float) -> Counted:
        """Every key that makes up at least ``share`` of the rows, perhaps others down to ``share - epsilon``."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the class's ``from_dict`` makes an equal sketch of it."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FrequencySketch:
        """The inverse of `to_dict`."""

    def __len__(self) -> int:
        """Keys held."""


def aggregate(keys: KeyArray, counts: Counts | None) -> tuple[KeyArray, Counts]:
    """Distinct keys in ascending order with their counts."""
    keys = np.asarray(keys, dtype=np.int64)
    if counts is None:
        distinct, times = np.unique(keys, return_counts=True)
        return distinct, times.astype(np.int64)
    counts = np.asarray(counts, dtype=np.int64)
    if len(counts) != len(keys) or (len(counts) and int(counts.min()) < 0):
        raise ConfigError(f"sketch update: {len(keys)} keys with {len(counts)} counts; one count of 0 or more per key")
    distinct, where = np.unique(keys, return_inverse=True)
    summed = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(summed, where.reshape(-1), counts)
    return distinct[summed > 0], summed[summed > 0]


def combine(ours: Counted, theirs: Counted, our_miss: int, their_miss: int) -> Counted:
    """Sum of two sets of counts; a key one side does not hold may have occurred there up to that side's miss."""
    keys = np.union1d(ours.keys, theirs.keys)
    counts, errors = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
    for side, miss in ((ours, our_miss), (theirs, their_miss)):
        at = np.searchsorted(keys, side.keys)
        absent = np.ones(len(keys), dtype=np.bool_)
        absent[at] = False
        counts[at] += side.counts
        errors[at] += side.errors
        errors[absent] += miss
    return Counted(keys=keys, counts=counts, errors=errors)
