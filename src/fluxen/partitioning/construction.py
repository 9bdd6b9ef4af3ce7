"""The state of a construction under way: loads per site, penalties of candidate placements, all at once in numpy.

`scan`, `redist` and `readj` differ in which candidates they look at; the arithmetic is here. Loads count tracked keys
only, as in the paper (`slotted` also counts what the fallback places). Section 4.2.1, Equations 18 to 20.

>>> import numpy as np
>>> spread_after_adding(np.array([3.0, 1.0]), np.array([1.0, 4.0])).tolist()
[[3.0, 1.0], [6.0, 2.0]]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fluxen.partitioning.function import Fallback, PartitioningFunction
from fluxen.partitioning.hashing import KeyArray, SiteArray
from fluxen.partitioning.resources import Frequencies, Resources, beta, tolerance

__all__ = ["Placement", "ideal_share", "spread_after_adding"]

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """The problem one construction solves.

    keys, share    tracked keys and their frequencies
    old            site of each key so far; may be a site that no longer exists
    new            site the new fallback would give each key
    loads          one row of key loads per balanced growth, ``weights`` its exponent in the geometric mean
    state          memory load of each key: what migrating it costs
    owed           migration already unavoidable: keys tracked no longer whose fallback site is another
    ideal          migration cost of an ideal function, over all keys tracked before or now
    """

    sites: int
    theta: float
    keys: KeyArray
    share: Floats
    old: SiteArray
    new: SiteArray
    loads: tuple[Floats, ...]
    weights: tuple[float, ...]
    state: Floats
    owed: float
    ideal: float

    @classmethod
    def of(
        cls,
        previous: PartitioningFunction,
        fallback: Fallback,
        tracked: Frequencies,
        frequencies: Frequencies,
        resources: Resources,
        alpha: float,
    ) -> Placement:
        """Set up the construction of ``fallback`` plus explicit mappings, coming from ``previous``."""
        dropped = np.array(sorted(set(previous.explicit()) - set(tracked.keys.tolist())), dtype=np.int64)
        leaving = beta(resources.memory, frequencies.of(dropped))
        owed = float(leaving[previous.lookup(dropped) != fallback.lookup(dropped)].sum())
        state = beta(resources.memory, tracked.share)
        growths = resources.balanced()
        total = float(state.sum()) + float(leaving.sum())
        return cls(
            sites=fallback.sites,
            theta=tolerance(alpha=alpha, sites=fallback.sites) or 1e-9,
            keys=tracked.keys,
            share=tracked.share,
            old=previous.lookup(tracked.keys),
            new=fallback.lookup(tracked.keys),
            loads=tuple(beta(growth, tracked.share) for growth, _ in growths),
            weights=tuple(weight for _, weight in growths),
            state=state,
            owed=owed,
            ideal=total * ideal_share(previous.sites, fallback.sites) or 1.0,
        )

    def balance_after_adding(self, site_loads: list[Floats], items: NDArray[np.intp]) -> Floats:
        """rho for every item on every site: an array of shape (items, sites)."""
        penalty = np.ones((len(items), self.sites))
        for loads, placed, weight in zip(self.loads, site_loads, self.weights):
            added = loads[items]
            mean = (placed.sum() + added) / self.sites
            penalty *= (spread_after_adding(placed, added) / (self.theta * mean)[:, None]) ** weight
        return penalty

    def balance_after_adding_one(self, site_loads: list[Floats], item: int) -> Floats:
        """rho for one item on every site; `balance_after_adding` without the cost of its generality."""
        penalty = np.ones(self.sites)
        for loads, placed, weight in zip(self.loads, site_loads, self.weights):
            after = placed + loads[item]
            emptiest = int(placed.argmin())
            least, placed[emptiest] = placed[emptiest], np.inf
            next_least, placed[emptiest] = placed.min(), least
            low = np.minimum(after, least)
            low[emptiest] = min(after[emptiest], next_least)
            mean = (placed.sum() + loads[item]) / self.sites
            spread = (np.maximum(after, placed.max()) - low) / (self.theta * mean)
            penalty *= spread if weight == 1.0 else spread**weight
        return penalty

    def balance_of(self, spreads: list[Floats]) -> Floats:
        """rho when all tracked keys are placed, from the max-min spread of each growth."""
        penalty = np.ones_like(spreads[0])
        for loads, spread, weight in zip(self.loads, spreads, self.weights):
            penalty *= (spread / (self.theta * loads.sum() / self.sites)) ** weight
        return penalty

    def moved(self, items: NDArray[np.intp]) -> Floats:
        """Migration cost of each item on each site: an array of shape (items, sites)."""
        away = self.old[items][:, None] != np.arange(self.sites)[None, :]
        cost: Floats = away * self.state[items][:, None]
        return cost


def ideal_share(old_sites: int, new_sites: int) -> float:
    """The part of all state that has to move in the ideal: 1/N for one site more (Equation 10), and its mirror."""
    return max(1, abs(new_sites - old_sites)) / max(old_sites, new_sites)


def spread_after_adding(placed: Floats, added: Floats) -> Floats:
    """max - min over sites once each of ``added`` goes to each site: an array of shape (added, sites)."""
    after = placed[None, :] + added[:, None]
    order = np.argsort(placed, kind="stable")
    least_other = np.full(len(placed), placed[order[0]])
    least_other[order[0]] = placed[order[1]]
    spread: Floats = np.maximum(after, placed.max()) - np.minimum(after, least_other[None, :])
    return spread
