"""Consistent hashing: sites own arcs of a 128-bit ring. `slots` is the other fallback of a `function.HashPair`.

Every site has ``replicas`` points on the ring; a key belongs to the first point at or after its own position. The high
64 bits of a position decide, the low 64 bits break ties. The ring is cut into buckets (a power of two, several per
point): a bucket without a point answers at once, the others step through the point or two they hold. So a lookup costs
the same however many sites there are.

Guarantee: adding a site moves keys to that site only; removing the last one moves its keys only. A site's share is
1/N give or take about 1/sqrt(replicas). Section 4.1.1.

>>> import numpy as np
>>> keys = np.arange(1000, dtype=np.int64)
>>> before, after = Ring(sites=4).lookup(keys), Ring(sites=5).lookup(keys)
>>> sorted({int(site) for site in after[before != after]})
[4]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluxen.errors import ConfigError
from fluxen.partitioning.hashing import KeyArray, SiteArray, WordArray, as_keys, position

__all__ = ["Ring"]

_KEY_HIGH, _KEY_LOW, _POINT_HIGH, _POINT_LOW = range(4)
_BUCKETS_PER_POINT = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ring:
    """A consistent hash over ``sites`` sites; equal parameters give equal rings."""

    sites: int
    replicas: int = 1000
    seed: int = 0
    _high: WordArray = field(init=False, repr=False)
    _low: WordArray = field(init=False, repr=False)
    _owner: SiteArray = field(init=False, repr=False)
    _start: NDArray[np.int32] = field(init=False, repr=False)
    _direct: SiteArray = field(init=False, repr=False)
    _shift: np.uint64 = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.sites < 1 or self.replicas < 1:
            raise ConfigError(f"ring of {self.sites} sites with {self.replicas} replicas: both must be at least 1")
        self._place_points()
        self._cut_buckets()

    def _place_points(self) -> None:
        site = np.repeat(np.arange(self.sites, dtype=np.uint64), self.replicas)
        replica = np.tile(np.arange(self.replicas, dtype=np.uint64), self.sites)
        words = (site << np.uint64(32)) | replica
        high, low = position(words, self.seed, _POINT_HIGH), position(words, self.seed, _POINT_LOW)
        order = np.argsort(high, kind="stable")
        if bool((np.diff(high[order]) == 0).any()):
            order = np.lexsort((low, high))
        # the sentinel past the end is the first point again: positions after the last point wrap around
        object.__setattr__(self, "_high", high[order])
        object.__setattr__(self, "_low", low[order])
        object.__setattr__(self, "_owner", np.append(site[order], site[order[0]]).astype(np.int32))

    def _cut_buckets(self) -> None:
        points = len(self._high)
        bits = int(np.ceil(np.log2(points * _BUCKETS_PER_POINT)))
        shift = np.uint64(64 - bits)
        in_bucket = np.bincount((self._high >> shift).astype(np.int64), minlength=1 << bits)
        start = np.zeros((1 << bits) + 1, dtype=np.int32)
        np.cumsum(in_bucket, out=start[1:])
        object.__setattr__(self, "_shift", shift)
        object.__setattr__(self, "_start", start)
        object.__setattr__(self, "_direct", np.where(in_bucket == 0, self._owner[start[:-1]], np.int32(-1)))

    def lookup(self, keys: KeyArray) -> SiteArray:
        """The site of each key hash."""
        words = as_keys(keys)
        high = position(words, self.seed, _KEY_HIGH)
        bucket = (high >> self._shift).astype(np.int64)
        sites: SiteArray = self._direct[bucket]
        rest = np.flatnonzero(sites < 0)
        if len(rest):
            sites[rest] = self._owner[self._step(words[rest], high[rest], bucket[rest])]
        return sites

    def _step(self, words: WordArray, high: WordArray, bucket: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index of the first point at or after each position, starting from the bucket's first point."""
        index = self._start[bucket].astype(np.int64)
        last = self._start[bucket + 1]
        low: WordArray | None = None
        while True:
            open_ = np.flatnonzero(index < last)
            point = self._high[index[open_]]
            behind = point < high[open_]
            tie = point == high[open_]
            if tie.any():
                low = position(words, self.seed, _KEY_LOW) if low is None else low
                behind |= tie & (self._low[index[open_]] < low[open_])
            if not behind.any():
                return index
            index[open_[behind]] += 1

    def shares(self) -> NDArray[np.float64]:
        """The part of the ring each site owns; sums to one."""
        arcs = np.diff(self._high, prepend=self._high[-1])  # unsigned: the first one wraps around
        if len(arcs) == 1:
            return np.ones(1)
        return np.bincount(self._owner[:-1], weights=arcs / 2.0**64, minlength=self.sites).astype(np.float64)

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `from_dict` makes an equal ring."""
        return {"kind": "ring", "sites": self.sites, "replicas": self.replicas, "seed": self.seed}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Ring:
        """The inverse of `to_dict`."""
        return cls(sites=int(data["sites"]), replicas=int(data["replicas"]), seed=int(data["seed"]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ring) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return self.sites * 1_000_003 + self.replicas * 1009 + self.seed
