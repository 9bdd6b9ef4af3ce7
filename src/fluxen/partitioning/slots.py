"""A table of slots: the other fallback of a `function.HashPair`, consistent by construction instead of by chance.

The circle is cut into 2**bits equal slots and a table says which site owns each. Where `ring` places points at random
and gets shares of 1/N give or take a few percent, a slot table is re-dealt from its predecessor: every site ends with
the same number of slots, one more or less, and only the surplus changes hands.

Guarantee: after ``deal(sites)`` sites differ by at most one slot, and no table as even moves fewer slots.
Not in the paper; used by `slotted`.

>>> table = Slots.fresh(sites=3, bits=4)
>>> table.counts().tolist()
[6, 5, 5]
>>> more = table.deal(4)
>>> more.counts().tolist(), int((more.table != table.table).sum())
([4, 4, 4, 4], 4)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluxen.errors import CheckpointError, ConfigError
from fluxen.partitioning.hashing import KeyArray, SiteArray, as_keys, position
from fluxen.partitioning.leveling import band

__all__ = ["Slots"]

_KEY = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slots:
    """2**bits slots, each owned by one of ``sites`` sites."""

    sites: int
    table: SiteArray
    seed: int = 0

    def __post_init__(self) -> None:
        size = len(self.table)
        if self.sites < 1 or size < self.sites or size & (size - 1):
            raise ConfigError(
                f"slot table of {size} slots for {self.sites} sites: the slots must be a power of two, at least one "
                "per site; choose more bits"
            )

    @classmethod
    def fresh(cls, *, sites: int, bits: int = 12, seed: int = 0) -> Slots:
        """A table for the first function of a query: slots dealt round robin."""
        return cls(sites=sites, table=(np.arange(1 << bits) % sites).astype(np.int32), seed=seed)

    def slot(self, keys: KeyArray) -> NDArray[np.int64]:
        """The slot of each key hash; depends on the seed and the number of slots only."""
        bits = len(self.table).bit_length() - 1
        if bits == 0:
            return np.zeros(len(keys), dtype=np.int64)
        return (position(as_keys(keys), self.seed, _KEY) >> np.uint64(64 - bits)).astype(np.int64)

    def lookup(self, keys: KeyArray) -> SiteArray:
        """The site of each key hash."""
        found: SiteArray = self.table[self.slot(keys)]
        return found

    def counts(self) -> NDArray[np.int64]:
        """Slots per site."""
        return np.bincount(self.table, minlength=self.sites).astype(np.int64)

    def shares(self) -> NDArray[np.float64]:
        """The part of the circle each site owns; sums to one."""
        return self.counts() / len(self.table)

    def deal(self, sites: int, ratio: float = 1.0) -> Slots:
        """The nearest table for another number of sites in which no site has over ``ratio`` times another's slots."""
        table = self.table.copy()
        table[table >= sites] = -1
        have = np.bincount(table[table >= 0], minlength=sites)
        quota = _quota(have, len(table), ratio)
        for site in np.flatnonzero(have > quota):
            mine = np.flatnonzero(table == site)
            # spread over the circle, so that the slots taken do not come from one stretch
            surplus = int(have[site] - quota[site])
            table[mine[np.linspace(0, len(mine) - 1, surplus, dtype=np.int64)]] = -1
        free = np.flatnonzero(table < 0)
        missing = np.maximum(quota - have, 0)
        table[free] = np.repeat(np.arange(sites), missing).astype(np.int32)
        return Slots(sites=sites, table=table, seed=self.seed)

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `from_dict` makes an equal table."""
        return {"kind": "slots", "sites": self.sites, "seed": self.seed, "table": self.table.tolist()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Slots:
        """The inverse of `to_dict`."""
        sites, table = int(data["sites"]), np.asarray(data["table"], dtype=np.int32)
        if len(table) and not (int(table.min()) >= 0 and int(table.max()) < sites):
            raise CheckpointError(f"slot table names site {int(table.max())}: expected sites 0 to {sites - 1}")
        return cls(sites=sites, table=table, seed=int(data["seed"]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slots) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return self.sites * 1_000_003 + len(self.table) * 1009 + self.seed


def _quota(have: NDArray[np.int64], slots: int, ratio: float) -> NDArray[np.int64]:
    """Slots each site should own: within the cheapest band, as near as possible to what it has."""
    spare = slots - int(have.sum())  # slots of sites that are gone
    if spare == 0 and int(have.min()) > 0 and int(have.max()) <= int(np.ceil(ratio * (int(have.min()) + 1))):
        return have.astype(np.int64)  # as good as whole slots allow
    low, high = band(have.astype(np.float64), ratio, spare=float(spare))
    quota = np.clip(have, int(low), max(int(low), int(np.ceil(high))))
    while (off := slots - int(quota.sum())) != 0:
        # rounding: one slot at a time to the emptiest, or from the fullest; ties leave a site as it is
        order = np.lexsort((np.sign(off) * (quota - have), np.sign(off) * quota))
        quota[order[: min(abs(off), len(quota))]] += np.sign(off)
    return quota
