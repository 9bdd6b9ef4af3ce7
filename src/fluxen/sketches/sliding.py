"""A sliding window over a stream, emulated by a few tumbling sketches. The sketches are `lossy` and `spacesaving`.

Of ``counters`` sketches started one after the other, ``window / (counters - 1)`` rows apart, the oldest answers. When
it has seen its share it starts afresh and the next oldest takes over.

Guarantee: once ``window`` rows have passed, what answers covers at least the last ``window`` and at most the last
``window * counters / (counters - 1)`` rows, give or take the count of a single entry of an update. The error is that
of the sketch over what it covers. Section 4.1.2, Figure 2.

>>> import numpy as np
>>> from fluxen.sketches import LossyCounter
>>> recent = SlidingSketch(LossyCounter(epsilon=0.01), window=100)
>>> recent.update(np.zeros(1000, dtype=np.int64))
>>> recent.update(np.ones(150, dtype=np.int64))
>>> recent.frequent(0.5).keys.tolist()
[1]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fluxen.errors import ConfigError
from fluxen.sketches.base import Counted, Counts, KeyArray
from fluxen.sketches.lossy import LossyCounter
from fluxen.sketches.spacesaving import SpaceSaving

__all__ = ["SlidingSketch"]

BaseSketch = LossyCounter | SpaceSaving


class SlidingSketch:
    """The last ``window`` rows or somewhat more, counted by sketches like ``prototype``."""

    __slots__ = ("_blank", "_rows", "_sketches", "counters", "step", "window")

    def __init__(self, prototype: BaseSketch, *, window: int, counters: int = 3) -> None:
        if counters < 2 or window < counters - 1:
            raise ConfigError(f"sliding window of {window} rows on {counters} sketches: need at least 2 and some rows")
        self._blank = prototype.to_dict()
        if prototype.total:
            raise ConfigError("sliding window: the sketch it is made of must not have counted anything yet")
        self.window = window
        self.step = -(-window // (counters - 1))
        self._rows = 0  # since the last hand-over
        self.counters = counters
        self._sketches = [self._fresh()]

    def _fresh(self) -> BaseSketch:
        return _base(self._blank)

    @property
    def active(self) -> BaseSketch:
        """The sketch that answers now."""
        return self._sketches[0]

    @property
    def epsilon(self) -> float:
        """Largest possible undercount, relative to the total."""
        return self.active.epsilon

    @property
    def total(self) -> int:
        """Rows the answering sketch covers."""
        return self.active.total

    @property
    def max_error(self) -> int:
        """A key that is not held occurred at most this often in what is covered."""
        return self.active.max_error

    @property
    def bound(self) -> int:
        """The most keys it can hold after an update, over all its sketches."""
        return sum(sketch.bound for sketch in self._sketches)

    def update(self, keys: KeyArray, counts: Counts | None = None) -> None:
        """Count a batch; it is cut where a hand-over falls into it."""
        keys = np.asarray(keys, dtype=np.int64)
        weights = np.ones(len(keys), dtype=np.int64) if counts is None else np.asarray(counts, dtype=np.int64)
        if len(weights) != len(keys):
            raise ConfigError(f"sketch update: {len(keys)} keys with {len(weights)} counts; one count per key")
        while len(keys):
            passed = np.cumsum(weights)
            cut = int(np.searchsorted(passed, self.step - self._rows)) + 1
            part = None if counts is None else weights[:cut]
            for sketch in self._sketches:
                sketch.update(keys[:cut], part)
            self._rows += int(passed[min(cut, len(keys)) - 1])
            if self._rows >= self.step:
                self.hand_over()
            keys, weights = keys[cut:], weights[cut:]

    def count(self, keys: KeyArray, counts: Counts) -> None:
        """Count a batch as a whole, however many rows it has; `hand_over` is then the caller's business.

        Entries of `update` come in the order of their rows. Counts of a batch that several sites report have no order,
        and cutting them would leave one sketch with some sites' rows and the next with the others'.
        """
        for sketch in self._sketches:
            sketch.update(keys, counts)
        self._rows += int(np.sum(counts))

    @property
    def since(self) -> int:
        """Rows since the last hand-over."""
        return self._rows

    def hand_over(self) -> None:
        """Let the next oldest sketch answer from now on."""
        self._rows = 0
        if len(self._sketches) == self.counters:
            del self._sketches[0]
        self._sketches.append(self._fresh())

    def merge(self, other: SlidingSketch) -> None:
        """Add what another site counted, sketch by sketch from the oldest on.

        Each site's part keeps its own window: the sum covers between ``window`` and the upper end of every site. Meant
        for asking the whole once; go on updating the parts, whose hand-overs follow their own rows.
        """
        if other.counters != self.counters or other.window != self.window:
            raise ConfigError("merging sliding windows of different length or number of sketches")
        for age, theirs in enumerate(other._sketches):
            if age == len(self._sketches):
                self._sketches.append(self._fresh())
            self._sketches[age].merge(theirs)  # type: ignore[arg-type]

    def held(self) -> Counted:
        """All keys the answering sketch holds."""
        return self.active.held()

    def frequent(self, share: float) -> Counted:
        """Every key with at least ``share`` of the rows covered, perhaps others down to ``share - epsilon``."""
        return self.active.frequent(share)

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `from_dict` makes an equal sketch."""
        return {
            "kind": "sliding",
            "window": self.window,
            "counters": self.counters,
            "rows": self._rows,
            "blank": dict(self._blank),
            "sketches": [sketch.to_dict() for sketch in self._sketches],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SlidingSketch:
        """The inverse of `to_dict`."""
        made = cls(_base(data["blank"]), window=int(data["window"]), counters=int(data["counters"]))
        made._rows = int(data["rows"])
        made._sketches = [_base(sketch) for sketch in data["sketches"]]
        return made

    def __len__(self) -> int:
        return sum(len(sketch) for sketch in self._sketches)


def _base(data: dict[str, Any]) -> BaseSketch:
    return LossyCounter.from_dict(data) if data["kind"] == "lossy" else SpaceSaving.from_dict(data)
