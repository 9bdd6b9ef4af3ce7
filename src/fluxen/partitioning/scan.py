"""Scan: place tracked keys once, heaviest first, each where the utility is best. Shared arithmetic in `construction`.

Guarantee: R steps over N sites, so the cheapest construction; heavy keys are placed while there is still room to
compensate for them. Section 4.2.2, Algorithm 2.

>>> import numpy as np
>>> from fluxen.partitioning.resources import Frequencies
>>> two = Frequencies(keys=np.array([1, 2]), share=np.array([0.5, 0.4]))
>>> sorted(Scan().build(None, two, 2).explicit().values())
[0, 1]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fluxen.partitioning.base import HashPairPartitioner
from fluxen.partitioning.construction import Placement
from fluxen.partitioning.hashing import SiteArray
from fluxen.partitioning.resources import utility

__all__ = ["Scan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(HashPairPartitioner):
    """Explicit mappings by one pass over the keys in decreasing frequency.

    Example::

        query.adapt(partitioner=fx.Scan(alpha=1.1))
    """

    def place(self, placement: Placement) -> SiteArray:
        """A site for every tracked key."""
        places = np.full(len(placement.keys), -1, dtype=np.int32)
        site_loads = placement.empty()
        migration = placement.owed
        costs = placement.moved(np.arange(len(placement.keys)))
        for item in np.argsort(-placement.share, kind="stable").tolist():
            moved = costs[item]
            balance = placement.balance_after_adding_one(site_loads, item)
            best = int(np.argmin(utility(self.utility, balance, (migration + moved) / placement.ideal)))
            places[item] = best
            migration += float(moved[best])
            for loads, key_loads in zip(site_loads, placement.loads):
                loads[best] += key_loads[item]
        return places
