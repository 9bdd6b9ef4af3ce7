"""Pairing sites from both ends of an order, and finding each donor's best group in one pass (Flux section 5.3).

Used by the Flux policies beside this file. Everything is a handful of array operations over sites and over groups, so
the cost of a decision grows linearly with the number of groups and not with the number of pairs.

>>> [part.tolist() for part in ends(np.array([2, 0, 1]), np.array([5, 4, 3]), np.array([True, False, True]))]
[[2], [5]]
>>> largest(np.array([4.0, 9.0, 7.0]), np.array([0, 0, 1]), np.array([True, False, True]), 2).tolist()
[0, 2]
"""

from __future__ import annotations

import numpy as np

from fluxen.policies.base import Bools, Floats, Ints

__all__ = ["ends", "largest", "slots"]


def ends(donors: Ints, receivers: Ints, passes: Bools) -> tuple[Ints, Ints]:
    """The pairs of a round: first with first, second with second, until one fails its test."""
    pairs = int(np.logical_and.accumulate(passes).sum()) if len(passes) else 0
    return donors[:pairs], receivers[:pairs]


def slots(donors: Ints, placement: Ints, sites: int) -> Ints:
    """For every group the position of its site among the donors, -1 if its site sheds nothing."""
    position = np.full(sites, -1, dtype=np.int64)
    position[donors] = np.arange(len(donors))
    return position[placement]


def largest(size: Floats, slot: Ints, allowed: Bools, pairs: int) -> Ints:
    """Per pair the row of its largest allowed group, the first one among equals; -1 where there is none."""
    rows = np.flatnonzero(allowed & (slot >= 0))
    best = np.full(pairs, -np.inf)
    np.maximum.at(best, slot[rows], size[rows])
    rows = rows[size[rows] == best[slot[rows]]]
    first = np.full(pairs, len(size), dtype=np.int64)
    np.minimum.at(first, slot[rows], rows)
    first[first == len(size)] = -1
    return first
