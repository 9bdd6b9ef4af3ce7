"""Which partition group a key hash belongs to and which site owns it.

Spark evaluates the same two functions as SQL expressions in `fluxen.spark.route`; a test holds the two together.

A partition group is a contiguous interval of key hashes: group = floor((h + 2^63) / 2^64 * P), computed on the upper
32 bits. So rows sorted by hash are sorted by group as well, a group is one slice of a segment, and neither an index
nor a second sort key is needed. Heavy keys can have explicit groups of their own, numbered from P upwards. A key that
is dealt over several sites has a family of them (`fluxen.state.families`).

>>> r = Routing.even(partitions=4, sites=2)
>>> r.groups(np.array([-(2**63), -1, 0, 2**63 - 1])).tolist()
[0, 1, 2, 3]
>>> r.sites_of(np.array([0, 1, 2, 3])).tolist()
[0, 0, 1, 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fluxen.arrays import Groups, Ints, Json, Mask
from fluxen.errors import ConfigError
from fluxen.state.families import Family

MAX_PARTITIONS = 4096
MAX_SITES = 4096


def base_group(h: Ints, partitions: int) -> Groups:
    """The ordinary partition group of each key hash; monotone in the (signed) hash."""
    upper = (h >> np.int64(32)) + np.int64(2**31)
    return ((upper * np.int64(partitions)) >> np.int64(32)).astype(np.int32)


def group_start(group: int, partitions: int) -> int:
    """The first key hash of an ordinary partition group, for the group after the last one 2^63.

    >>> [group_start(g, 4) for g in (0, 2, 4)] == [-(2**63), 0, 2**63]
    True
    """
    return (-(-(group << 32) // partitions) - 2**31) << 32


def ranges(mask: Mask) -> tuple[tuple[int, int], ...]:
    """The set bits of `mask` as half-open ranges.

    >>> ranges(np.array([True, True, False, True]))
    ((0, 2), (3, 4))
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return tuple((int(a), int(b)) for a, b in zip(edges[::2], edges[1::2]))


def mask_of(spans: tuple[tuple[int, int], ...], size: int) -> Mask:
    """The inverse of `ranges`."""
    mask = np.zeros(size, dtype=np.bool_)
    for low, high in spans:
        mask[low:high] = True
    return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """One epoch's routing table: data, never code, so that a new table costs no compilation."""

    partitions: int
    sites: int
    table: Groups
    """site of each group, ordinary ones first, then the explicit ones"""
    explicit: Ints
    """sorted key hashes that have a group of their own; the i-th has group `explicit_groups[i]`"""
    explicit_groups: Groups
    families: tuple[Family, ...] = ()
    """keys whose rows are dealt over several groups; every member's hash is explicit"""
    retired: tuple[int, ...] = ()
    """hashes of members of families that have ended, as long as files may hold rows under them; explicit as well"""

    @staticmethod
    def even(*, partitions: int, sites: int) -> Routing:
        """Neighbouring groups on one site: a site's state is then one slice of every shared segment."""
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise ConfigError(
                f"partitions must be between 1 and {MAX_PARTITIONS}, got {partitions}; 256 suits most queries"
            )
        if not 1 <= sites <= min(MAX_SITES, partitions):
            raise ConfigError(
                f"sites must be between 1 and the number of partitions ({partitions}), got {sites}; "
                "use about one site per core"
            )
        table = (np.arange(partitions, dtype=np.int64) * sites // partitions).astype(np.int32)
        empty = np.zeros(0, dtype=np.int64)
        return Routing(
            partitions=partitions, sites=sites, table=table, explicit=empty, explicit_groups=empty.astype(np.int32)
        )

    def shared(self, shares: Sequence[float]) -> Routing:
        """The ordinary groups over the same sites in these shares, neighbouring groups on one site."""
        if len(shares) != self.sites or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise ConfigError(f"placement needs {self.sites} shares that add up to 1, got {tuple(shares)}")
        ends = np.round(np.cumsum(shares) * self.partitions).astype(np.int64)
        table = self.table.copy()
        table[: self.partitions] = np.searchsorted(ends, np.arange(self.partitions), side="right").clip(
            0, self.sites - 1
        )
        return replace(self, table=table)

    @property
    def size(self) -> int:
        """Number of group ids in use, explicit ones included."""
        return len(self.table)

    @property
    def copies(self) -> bool:
        """Whether the groups are copies kept by the sender of a move, which no table of offsets knows."""
        return False

    def groups(self, h: Ints) -> Groups:
        """The partition group of each key hash."""
        group = base_group(h, self.partitions)
        if len(self.explicit):
            at = np.minimum(np.searchsorted(self.explicit, h), len(self.explicit) - 1)
            group = np.where(self.explicit[at] == h, self.explicit_groups[at], group)
        return group

    def sites_of(self, groups: Groups) -> Groups:
        return self.table[groups]

    def owned(self, site: int) -> Mask:
        """Which groups `site` owns."""
        mine: Mask = self.table == site
        return mine

    def moved(self, groups: Groups, receiver: int) -> Routing:
        """The same table with `groups` at `receiver`."""
        table = self.table.copy()
        table[groups] = receiver
        return replace(self, table=table)

    def rescaled(self, sites: int) -> Routing:
        """The same groups over another number of sites, moving as few of them as balance allows."""
        even = Routing.even(partitions=self.partitions, sites=sites)
        room = np.bincount(even.table, minlength=sites)
        table = np.full(self.size, -1, dtype=np.int32)
        for group in range(self.partitions):
            site = int(self.table[group])
            if site < sites and room[site] > 0:
                table[group] = site
                room[site] -= 1
        for group in np.flatnonzero(table[: self.partitions] < 0).tolist():
            site = int(np.argmax(room))
            table[group] = site
            room[site] -= 1
        table[self.partitions :] = self.table[self.partitions :] % sites
        for family in self.families:  # one after the other from where the first one is, so that they stay apart
            groups = self.members(family)
            table[groups] = (table[groups[0]] + np.arange(len(groups))) % sites
        return replace(self, sites=sites, table=table)

    def isolated(self, h: int, site: int) -> Routing:
        """The same table with key hash `h` in an explicit group of its own at `site`."""
        at = int(np.searchsorted(self.explicit, h))
        if at < len(self.explicit) and self.explicit[at] == h:
            return self.moved(self.explicit_groups[at : at + 1], site)
        group = np.int32(self.size)
        return replace(
            self,
            table=np.append(self.table, np.int32(site)),
            explicit=np.insert(self.explicit, at, h),
            explicit_groups=np.insert(self.explicit_groups, at, group),
        )

    def returned(self, h: int) -> Routing:
        """The same table with key hash `h` in its ordinary group again; its group id is free."""
        at = int(np.searchsorted(self.explicit, h))
        if at == len(self.explicit) or self.explicit[at] != h:
            return self
        table = self.table.copy()
        table[self.explicit_groups[at]] = table[base_group(self.explicit[at : at + 1], self.partitions)[0]]
        return replace(
            self,
            table=table,
            explicit=np.delete(self.explicit, at),
            explicit_groups=np.delete(self.explicit_groups, at),
        )

    def own_groups(self) -> dict[int, int]:
        """Key hash -> group of the keys that have one of their own."""
        return dict(zip(self.explicit.tolist(), self.explicit_groups.tolist()))

    # ---- families

    def members(self, family: Family) -> Groups:
        """The groups of a family, that of the key itself first."""
        return self.groups(np.array(family.members, dtype=np.int64))

    def dealt(self) -> Ints:
        """The hashes of all members of families."""
        return np.array([h for family in self.families for h in family.members], dtype=np.int64)

    def heads(self, h: Ints) -> Ints:
        """The keys' own hashes: those of members of families told apart no longer."""
        if not self.families:
            return h
        found = h.copy()
        for family in self.families:
            found[np.isin(h, family.members)] = family.h
        return found

    def copied(self, number: int, h: Ints) -> Mask | None:
        """Which of these rows of an input are there a second time, as every member of a family needs them."""
        others = [member for family in self.families if family.dealt != number for member in family.members[1:]]
        return np.isin(h, others) if others else None

    def to_json(self) -> Json:
        return {
            "partitions": self.partitions,
            "sites": self.sites,
            "table": self.table.tolist(),
            "explicit": self.explicit.tolist(),
            "explicit_groups": self.explicit_groups.tolist(),
            "families": [family.to_json() for family in self.families],
            "retired": self.retired,
        }

    @staticmethod
    def from_json(data: Json) -> Routing:
        return Routing(
            partitions=data["partitions"],
            sites=data["sites"],
            table=np.array(data["table"], dtype=np.int32),
            explicit=np.array(data["explicit"], dtype=np.int64),
            explicit_groups=np.array(data["explicit_groups"], dtype=np.int32),
            families=tuple(Family.from_json(family) for family in data.get("families", ())),
            retired=tuple(data.get("retired", ())),
        )
