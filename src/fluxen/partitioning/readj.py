"""Readj: leave tracked keys where they are and readjust by moves and swaps while balance improves.

At each step every move of a key and every swap of two keys that lowers the balance penalty is a candidate, and the one
with the best gain in utility per frequency moved is made. Only steps that touch a fullest or an emptiest site can lower
the penalty, so only those are evaluated. Shared arithmetic in `construction`.

Guarantee: the balance penalty falls with every step, and a key moves at most ``moves_per_key`` times, so it ends.
Section 4.2.4, Algorithm 4 (its inner ``break`` read as ``continue`` and the last utility updated once per step, as the
text around it says).

>>> import numpy as np
>>> from fluxen.partitioning.resources import Frequencies
>>> two = Frequencies(keys=np.array([1, 2]), share=np.array([0.5, 0.4]))
>>> sorted(Readj().build(None, two, 2).explicit().values())
[0, 1]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fluxen.partitioning.base import HashPairPartitioner
from fluxen.partitioning.construction import Floats, Placement
from fluxen.partitioning.hashing import SiteArray
from fluxen.partitioning.resources import per_site, utility

__all__ = ["Readj"]

_NOTHING = -1  # the second key of a move
_ROUNDING = 1.0 - 1e-12  # an improvement smaller than this is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Readj(HashPairPartitioner):
    """Explicit mappings by moves and swaps from where the keys are now.

    Example::

        query.adapt(partitioner=fx.Readj())  # or partitioner="readj"
    """

    moves_per_key: int = 5

    one_site_at_a_time: ClassVar[bool] = False

    def place(self, placement: Placement) -> SiteArray:
        """A site for every tracked key."""
        search = _Search(placement)
        while True:
            first, second, target = search.candidates(search.moves < self.moves_per_key)
            balance = search.balance_after(first, second, target)
            better = np.flatnonzero(balance < search.balance() * _ROUNDING)
            if not len(better):
                return search.places
            first, second, target = first[better], second[better], target[better]
            cost = search.migration + search.migration_of(first, second, target)
            now = utility(self.utility, np.array([search.balance()]), np.array([search.migration]) / placement.ideal)
            gain = now - utility(self.utility, balance[better], cost / placement.ideal)
            best = int(np.argmax(gain / np.abs(search.net(placement.share, first, second))))
            search.apply(int(first[best]), int(second[best]), int(target[best]))


class _Search:
    """Where the keys are during the search. A step is (first, second, target): first goes to target, second back."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        # Counted frequencies tie exactly, and so do two new, empty sites. Then no single step lowers the penalty and
        # the search would end. A part in 10^9 per key and per site tells them apart and changes nothing else.
        self.loads = tuple(loads * (1.0 + _apart(len(loads))) for loads in placement.loads)
        gone = placement.old >= placement.sites
        self.places: SiteArray = np.where(gone, placement.new, placement.old).astype(np.int32)
        self.moves = np.zeros(len(placement.keys), dtype=np.int64)
        self.migration = placement.owed + float(placement.state[gone].sum())
        self.site_loads = [
            base + per_site(self.places, loads, placement.sites) + loads.mean() * _apart(placement.sites)
            for loads, base in zip(self.loads, placement.base)
        ]

    def balance(self) -> float:
        """rho of the present placement."""
        spreads = [np.array([loads.max() - loads.min()]) for loads in self.site_loads]
        return float(self.placement.balance_of(spreads)[0])

    def candidates(self, free: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """All steps that touch a fullest or emptiest site, as parallel arrays."""
        sites = self.placement.sites
        extreme = np.unique([f(loads) for loads in self.site_loads for f in (np.argmax, np.argmin)])
        items = np.flatnonzero(free)
        inside = items[np.isin(self.places[items], extreme)]
        outside = items[~np.isin(self.places[items], extreme)]
        steps = [
            _pairs(inside, np.arange(sites), move=True),  # from an extreme site to anywhere
            _pairs(outside, extreme, move=True),  # from elsewhere to an extreme site
            _pairs(inside, outside, move=False),
            _pairs(inside, inside, move=False),
        ]
        first, second, target = (np.concatenate(part) for part in zip(*steps))
        swap = second != _NOTHING
        target[swap] = self.places[second[swap]]
        real = (target != self.places[first]) & ~(swap & (second < first) & np.isin(target, extreme))
        real &= self.net(self.placement.share, first, second) != 0.0  # equal keys are not worth a swap
        return first[real], second[real], target[real]

    def net(self, values: Floats, first: NDArray[np.intp], second: NDArray[np.intp]) -> Floats:
        """What a step carries from the first key's site to the target, for any value per key."""
        net: Floats = values[first] - np.where(second == _NOTHING, 0.0, values[second])
        return net

    def balance_after(self, first: NDArray[np.intp], second: NDArray[np.intp], target: NDArray[np.intp]) -> Floats:
        """rho after each step."""
        source = self.places[first]
        spreads = []
        for loads, key_loads in zip(self.site_loads, self.loads):
            net = self.net(key_loads, first, second)
            most, least = _others(loads)
            giver, taker = loads[source] - net, loads[target] + net
            high = np.maximum(np.maximum(giver, taker), most[source, target])
            spreads.append(high - np.minimum(np.minimum(giver, taker), least[source, target]))
        return self.placement.balance_of(spreads)

    def migration_of(self, first: NDArray[np.intp], second: NDArray[np.intp], target: NDArray[np.intp]) -> Floats:
        """Change in migration cost by each step (Equation 22); negative when a key returns to its old site."""
        source, old, state = self.places[first], self.placement.old, self.placement.state
        there = state[first] * ((old[first] == source).astype(np.int8) - (old[first] == target))
        back = state[second] * ((old[second] == target).astype(np.int8) - (old[second] == source))
        change: Floats = there + np.where(second == _NOTHING, 0.0, back)
        return change

    def apply(self, first: int, second: int, target: int) -> None:
        """Make one step."""
        step = np.array([first]), np.array([second]), np.array([target])
        self.migration += float(self.migration_of(*step)[0])
        source = self.places[first]
        for loads, key_loads in zip(self.site_loads, self.loads):
            net = float(self.net(key_loads, step[0], step[1])[0])
            loads[source] -= net
            loads[target] += net
        self.places[first] = target
        self.moves[first] += 1
        if second != _NOTHING:
            self.places[second] = source
            self.moves[second] += 1


def _apart(count: int) -> Floats:
    """Small numbers that are all different."""
    return 1e-9 * np.modf(np.arange(count, dtype=np.float64) * 0.6180339887498949)[0]


def _pairs(
    items: NDArray[np.intp], others: NDArray[np.intp], *, move: bool
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Every item with every other: a site to move to, or a key to swap with."""
    first = np.repeat(items, len(others))
    other = np.tile(others, len(items)).astype(np.intp)
    nothing = np.full(len(first), _NOTHING, dtype=np.intp)
    return (first, nothing, other) if move else (first, other, nothing.copy())


def _others(loads: Floats) -> tuple[Floats, Floats]:
    """For every pair of sites the largest and the smallest load of all other sites, as two N x N arrays."""
    sites = len(loads)
    order = np.argsort(loads, kind="stable")
    rows, columns = np.arange(sites)[:, None], np.arange(sites)[None, :]
    most, least = np.full((sites, sites), -np.inf), np.full((sites, sites), np.inf)
    for site in order[:3]:  # at most two are excluded, so the third is always there
        least = np.where((rows != site) & (columns != site), np.minimum(least, loads[site]), least)
    for site in order[-3:]:
        most = np.where((rows != site) & (columns != site), np.maximum(most, loads[site]), most)
    return most, least
