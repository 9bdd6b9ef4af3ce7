"""What a partitioning function places in a running query: partition groups and heavy keys, and the table that follows.

`fluxen.control.keys.repartition` has them placed and judges the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fluxen.arrays import Floats, Groups, Ints
from fluxen.control.keys.loads import BYTES
from fluxen.state.routing import Routing, base_group

MAX_EXPLICIT = 1024
"""Heavy keys that may have groups of their own at a time."""
TRACKED = 256
"""Groups and keys a function may place anew, those with most load; the others stay where they are."""


def group_keys(groups: Ints) -> Ints:
    """Key hashes that stand for partition groups: splitmix64 of the id."""
    with np.errstate(over="ignore"):
        z = (groups.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))).view(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """What a function places: all groups, less the heavy keys in them, and these keys."""

    routing: Routing
    heavy: Ints
    loads: dict[str, Floats]

    @property
    def keys(self) -> Ints:
        """The key by which a function places each item: a key's own hash, or a group's stand-in."""
        keys = group_keys(np.arange(self.routing.size, dtype=np.int64))
        keys[self.routing.explicit_groups] = self.routing.explicit
        return np.concatenate([keys, self.heavy])

    def sites(self, routing: Routing) -> Groups:
        """Where each item is under a table made from the items' own."""
        heavy = routing.sites_of(routing.groups(self.heavy))
        return np.concatenate([routing.table[: self.routing.size], heavy]).astype(np.int32)

    def per_site(self, name: str, routing: Routing) -> Floats:
        return per_site(self.sites(routing), self.loads[name], routing.sites)

    def stretch(self, names: Sequence[str], routing: Routing) -> float:
        """Load of the busiest site over the mean: the geometric mean over the resources (as Equation 11)."""
        found = [self.per_site(name, routing) for name in names]
        return float(np.prod([loads.max() / loads.mean() for loads in found if loads.sum() > 0]) ** (1 / len(names)))

    def best(self, names: Sequence[str], sites: int) -> float:
        """The least stretch any placement can have: an item cannot be divided."""
        totals = {name: float(self.loads[name].sum()) for name in names}
        least = [max(1.0, sites * float(self.loads[n].max()) / total) for n, total in totals.items() if total > 0]
        return float(np.prod(least) ** (1 / len(names)))

    def moved(self, after: Routing) -> float:
        """Bytes of items whose site changes."""
        return float(self.loads[BYTES][self.sites(self.routing) != self.sites(after)].sum())


def table_of(routing: Routing, heavy: Ints, places: Groups, sites: int) -> Routing:
    """The table with groups in their places; keys that are elsewhere than theirs get groups of their own."""
    size = routing.size
    room = MAX_EXPLICIT - len(routing.explicit)
    following = replace(routing, sites=sites, table=places[:size].astype(np.int32))
    bases = base_group(heavy, routing.partitions)
    apart = (places[size:] >= 0) & (places[size:] != places[bases])
    for at in np.flatnonzero(apart)[: max(room, 0)].tolist():
        following = following.isolated(int(heavy[at]), int(places[size + at]))
    return following


def per_site(sites: Groups, loads: Floats, count: int) -> Floats:
    return np.bincount(sites, weights=loads, minlength=count).astype(np.float64)


def none() -> Ints:
    """No keys."""
    return np.zeros(0, dtype=np.int64)
