"""Partitioning functions in a running query: heavy keys found online, groups of their own, few moves.

The constructions are in `fluxen.partitioning`; here they meet the routing table. A partitioning function places keys;
to it, every partition group is one key (a hash of its id) with the group's share of the rows, and every heavy key is
itself. So the same function balances both, and what it moves is whole groups.

Heavy keys are tracked from the counts the sites report (their top keys per batch), in the sliding window of lossy
counters of Gedik's section 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluxen.partitioning import Frequencies, HashPair, Partitioner, Ring
from fluxen.sketches import LossyCounter, SlidingSketch
from fluxen.state.record import CommitRecord
from fluxen.state.routing import Routing, base_group
from fluxen.typing import Floats, Ints, Json

MAX_EXPLICIT = 256
"""Heavy keys that may have groups of their own; each costs a comparison per row in the split."""
WINDOW_ROWS = 1_000_000
DECAY = 0.7
"""Weight of the past in the smoothed rows of a group."""
HEAVY_SHARE = 0.001
"""Share of the rows from which a key is considered heavy."""
_OTHERS = -(2**63)
"""Stands for all rows whose keys the sites did not name."""
PATIENCE = 3
"""Batches between two functions built for balance: a new one must show its effect first."""


def group_keys(groups: Ints) -> Ints:
    """Key hashes that stand for partition groups: splitmix64 of the id."""
    with np.errstate(over="ignore"):
        z = (groups.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))).view(np.int64)


class Repartitioner:
    """Watches the load of groups and heavy keys and builds a new routing when balance or the number of sites asks."""

    def __init__(self, partitioner: Partitioner, *, divisible: bool = True) -> None:
        self.partitioner = partitioner
        self.divisible = divisible
        self.alpha = float(getattr(partitioner, "alpha", 1.2))
        self._sketch = SlidingSketch(LossyCounter(epsilon=1e-4), window=WINDOW_ROWS)
        self._rows: Floats = np.zeros(0)
        self._rested = 0

    def observe(self, routing: Routing, records: Sequence[CommitRecord]) -> None:
        """Take in what the sites reported about one batch."""
        rows = np.zeros(routing.size)
        for record in records:
            np.add.at(rows, np.array(record.groups.group, dtype=np.int64), record.groups.rows_in)
            named = [*record.heavy, (_OTHERS, sum(record.groups.rows_in) - sum(count for _, count in record.heavy))]
            keys, counts = (np.array(column, dtype=np.int64) for column in zip(*named))
            self._sketch.update(keys[counts > 0], counts[counts > 0])
        past = self._loads(routing)
        self._rows = rows if not self._rows.any() else DECAY * past + (1 - DECAY) * rows
        self._rested += 1

    def unbalanced(self, routing: Routing) -> bool:
        """Whether the busiest site has more than alpha times the rows of the idlest, and a new function may help."""
        if self._rested < PATIENCE or routing.sites == 1 or not self._rows.any():
            return False
        loads = np.bincount(routing.table, weights=self._loads(routing), minlength=routing.sites)
        return bool(loads.max() > self.alpha * max(loads.min(), 1e-9))

    def build(self, routing: Routing, sites: int) -> Routing:
        """The routing of a new function for `sites` sites."""
        total = max(float(self._rows.sum()), 1.0)
        heavy, counts = self._heavy(routing)
        known, shares = self._shares(routing, total, heavy, counts)
        frequencies = Frequencies.counted(known, np.floor(shares * 1e9).astype(np.int64), 1_000_000_000)
        function = self.partitioner.build(self._previous(routing, heavy), frequencies, sites)
        self._rested = 0
        explicit = function.explicit()
        for key in [int(h) for h in heavy if int(h) in explicit and routing.size < routing.partitions + MAX_EXPLICIT]:
            routing = routing.isolated(key, 0)
        table = function.lookup(self._placed_keys(routing)).astype(np.int32)
        return Routing(
            partitions=routing.partitions,
            sites=sites,
            table=table,
            explicit=routing.explicit,
            explicit_groups=routing.explicit_groups,
        )

    def _loads(self, routing: Routing) -> Floats:
        """Smoothed rows per group; groups of a newer routing have none yet."""
        loads = np.zeros(routing.size)
        loads[: len(self._rows)] = self._rows
        return loads

    def _placed_keys(self, routing: Routing) -> Ints:
        """The key by which a function places each group: a heavy key's own hash, or the group's stand-in."""
        keys = group_keys(np.arange(routing.size, dtype=np.int64))
        keys[routing.explicit_groups] = routing.explicit
        return keys

    def _previous(self, routing: Routing, heavy: Ints) -> HashPair:
        """What routes now as a function: groups where they are, and heavy keys with their groups."""
        keys = np.concatenate([self._placed_keys(routing), heavy])
        sites = np.concatenate([routing.table, routing.sites_of(routing.groups(heavy))])
        order = np.argsort(keys)
        return HashPair.placed(keys[order], sites[order], Ring(sites=routing.sites))

    def _heavy(self, routing: Routing) -> tuple[Ints, Floats]:
        """Keys not yet isolated that are worth it, with their share of the rows."""
        if not self.divisible or self._sketch.total == 0:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        held = self._sketch.frequent(HEAVY_SHARE)
        fresh = ~np.isin(held.keys, routing.explicit) & (held.keys != _OTHERS)
        return held.keys[fresh], held.counts[fresh] / self._sketch.total

    def _shares(self, routing: Routing, total: float, heavy: Ints, share: Floats) -> tuple[Ints, Floats]:
        """Keys and their shares: every group less the heavy keys about to leave it, and those keys."""
        groups = self._loads(routing) / total
        np.subtract.at(groups, base_group(heavy, routing.partitions), share)
        keys = np.concatenate([self._placed_keys(routing), heavy])
        shares = np.concatenate([np.maximum(groups, 0.0), share])
        return keys, shares / max(shares.sum(), 1e-9)

    def snapshot(self) -> Json:
        return {
            "sketch": self._sketch.to_dict(),
            "rows": self._rows.tolist(),
            "rested": self._rested,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._sketch = SlidingSketch.from_dict(state["sketch"])
        self._rows = np.array(state["rows"], dtype=np.float64)
        self._rested = state["rested"]
