"""What a construction gives: a function from key hashes to sites. The constructions are the files named in `base`.

`HashPair` is the paper's structure: an explicit map for heavy keys in front of a fallback, a consistent `Ring` or a
table of `Slots`. `UniformFunction` is the baseline, hash modulo the number of sites. All are immutable, vectorized,
and turn into plain dicts of numbers and strings (no pickle in a checkpoint) and back with `from_dict`.

Guarantee: total (every int64 has a site in 0..N-1) and constant time per key. Section 4.1, Algorithm 1.

>>> import numpy as np
>>> heavy = HashPair.of({7: 2}, Ring(sites=3))
>>> int(heavy.lookup(np.array([7]))[0]), heavy.size
(2, 1)
>>> from_dict(heavy.to_dict()) == heavy
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fluxen.errors import CheckpointError, ConfigError
from fluxen.partitioning.hashing import KeyArray, SiteArray, as_keys, position
from fluxen.partitioning.ring import Ring
from fluxen.partitioning.slots import Slots

__all__ = ["Fallback", "HashPair", "PartitioningFunction", "UniformFunction", "from_dict"]

Fallback: TypeAlias = Ring | Slots
_UNIFORM = 9
_FORMAT = 1
_CHUNK = 1 << 15  # the temporary arrays of a lookup stay in the cache


class PartitioningFunction(Protocol):
    """A site for every key hash."""

    @property
    def sites(self) -> int:
        """How many sites: lookups answer 0..sites-1."""

    @property
    def size(self) -> int:
        """How many keys have an explicit mapping."""

    def lookup(self, keys: KeyArray) -> SiteArray:
        """The site of each key hash."""

    def explicit(self) -> dict[int, int]:
        """The explicit mappings: key hash -> site."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `from_dict` makes an equal function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformFunction:
    """Hash modulo the number of sites: balanced without skew, moves almost everything when the number changes."""

    sites: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sites < 1:
            raise ConfigError(f"uniform hash over {self.sites} sites: at least one is needed")

    @property
    def size(self) -> int:
        """No explicit mappings."""
        return 0

    def lookup(self, keys: KeyArray) -> SiteArray:
        """The site of each key hash."""
        return (position(as_keys(keys), self.seed, _UNIFORM) % np.uint64(self.sites)).astype(np.int32)

    def explicit(self) -> dict[int, int]:
        """No explicit mappings."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `from_dict` makes an equal function."""
        return {"format": _FORMAT, "kind": "uniform", "sites": self.sites, "seed": self.seed}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HashPair:
    """Explicit map of heavy keys, then the fallback.

    ``keys`` ascend, ``places`` are their sites and ``weights`` the frequencies they had when they were placed.
    """

    fallback: Fallback
    keys: KeyArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    places: SiteArray = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    weights: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    _filter: NDArray[np.bool_] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.places) or (len(self.keys) > 1 and bool((self.keys[1:] <= self.keys[:-1]).any())):
            raise ConfigError("explicit map: keys must ascend without repeats and have one site each")
        if len(self.places) and not (int(self.places.min()) >= 0 and int(self.places.max()) < self.sites):
            raise ConfigError(f"explicit map names a site outside 0 to {self.sites - 1}")
        if len(self.weights) != len(self.keys):
            object.__setattr__(self, "weights", np.zeros(len(self.keys)))
        # 64 entries per key: all but about 2 % of the other keys are answered without a search
        bits = max(10, len(self.keys).bit_length() + 6)
        table = np.zeros(1 << bits, dtype=np.bool_)
        table[as_keys(self.keys) & np.uint64(len(table) - 1)] = True
        object.__setattr__(self, "_filter", table)

    @classmethod
    def of(cls, explicit: Mapping[int, int], fallback: Fallback) -> HashPair:
        """From a dict of key hash -> site."""
        keys = np.array(sorted(explicit), dtype=np.int64)
        return cls(
            fallback=fallback, keys=keys, places=np.array([explicit[int(k)] for k in keys], dtype=np.int32).reshape(-1)
        )

    @classmethod
    def placed(cls, keys: KeyArray, places: SiteArray, fallback: Fallback) -> HashPair:
        """From arrays in any order."""
        order = np.argsort(keys, kind="stable")
        return cls(fallback=fallback, keys=keys[order].astype(np.int64), places=places[order].astype(np.int32))

    @property
    def sites(self) -> int:
        """How many sites: lookups answer 0..sites-1."""
        return self.fallback.sites

    @property
    def size(self) -> int:
        """How many keys have an explicit mapping."""
        return len(self.keys)

    def lookup(self, keys: KeyArray) -> SiteArray:
        """The site of each key hash: the explicit map first, then the fallback."""
        if len(keys) <= _CHUNK:
            return self._lookup(keys)
        sites = np.empty(len(keys), dtype=np.int32)
        for start in range(0, len(keys), _CHUNK):
            sites[start : start + _CHUNK] = self._lookup(keys[start : start + _CHUNK])
        return sites

    def _lookup(self, keys: KeyArray) -> SiteArray:
        sites = self.fallback.lookup(keys)
        if len(self.keys):
            maybe = np.flatnonzero(self._filter[as_keys(keys) & np.uint64(len(self._filter) - 1)])
            wanted = np.asarray(keys)[maybe]
            index = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
            hit = self.keys[index] == wanted
            sites[maybe[hit]] = self.places[index[hit]]
        return sites

    def explicit(self) -> dict[int, int]:
        """The explicit mappings: key hash -> site."""
        return dict(zip(self.keys.tolist(), self.places.tolist()))

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `from_dict` makes an equal function."""
        return {
            "format": _FORMAT,
            "kind": "pair",
            "fallback": self.fallback.to_dict(),
            "keys": self.keys.tolist(),
            "places": self.places.tolist(),
            "weights": self.weights.tolist(),
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashPair) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return self.fallback.__hash__() * 31 + len(self.keys)


def from_dict(data: Mapping[str, Any]) -> HashPair | UniformFunction:
    """The function that ``to_dict`` described; anything else is a `CheckpointError`."""
    if data.get("format") != _FORMAT:
        raise CheckpointError(
            f"partitioning function has format {data.get('format')!r}: this version reads format {_FORMAT}"
        )
    try:
        if data["kind"] == "uniform":
            return UniformFunction(sites=int(data["sites"]), seed=int(data["seed"]))
        if data["kind"] == "pair":
            return HashPair(
                fallback=_fallback(data["fallback"]),
                keys=np.asarray(data["keys"], dtype=np.int64),
                places=np.asarray(data["places"], dtype=np.int32),
                weights=np.asarray(data["weights"], dtype=np.float64),
            )
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise CheckpointError(f"partitioning function cannot be read: {type(error).__name__}: {error}") from error
    raise CheckpointError(f"partitioning function of unknown kind {data['kind']!r}: expected 'uniform' or 'pair'")


def _fallback(data: dict[str, Any]) -> Fallback:
    kinds: dict[str, Any] = {"ring": Ring.from_dict, "slots": Slots.from_dict}
    made: Fallback = kinds[data["kind"]](data)
    return made
