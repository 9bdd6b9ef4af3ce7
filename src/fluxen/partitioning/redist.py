"""Redist: place tracked keys from scratch, at each step the key and site with the best utility per frequency.

Like `scan` but free in the order; that buys lower migration for R times the work. Shared arithmetic in `construction`.

Guarantee: R steps over at most R x N candidates, each step one numpy expression. Section 4.2.3, Algorithm 3.

>>> import numpy as np
>>> from fluxen.partitioning.resources import Frequencies
>>> two = Frequencies(keys=np.array([1, 2]), share=np.array([0.5, 0.4]))
>>> sorted(Redist().build(None, two, 2).explicit().values())
[0, 1]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fluxen.partitioning.base import HashPairPartitioner
from fluxen.partitioning.construction import Placement
from fluxen.partitioning.hashing import SiteArray
from fluxen.partitioning.resources import utility

__all__ = ["Redist"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redist(HashPairPartitioner):
    """Explicit mappings by repeated best choice among all keys not yet placed.

    Example::

        query.adapt(partitioner=fx.Redist(sigma=0.2))
    """

    def place(self, placement: Placement) -> SiteArray:
        """A site for every tracked key."""
        places = np.full(len(placement.keys), -1, dtype=np.int32)
        site_loads = placement.empty()
        migration = placement.owed
        left = np.argsort(-placement.share, kind="stable")  # ties go to the heavier key
        moved = placement.moved(left)
        while len(left):
            balance = placement.balance_after_adding(site_loads, left)
            value = utility(self.utility, balance, (migration + moved) / placement.ideal)
            row, best = divmod(int(np.argmin(value / placement.share[left][:, None])), placement.sites)
            item = left[row]
            places[item] = best
            migration += float(moved[row, best])
            for loads, key_loads in zip(site_loads, placement.loads):
                loads[best] += key_loads[item]
            left, moved = np.delete(left, row), np.delete(moved, row, axis=0)
        return places
