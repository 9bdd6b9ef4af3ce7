"""The state of a construction under way: loads per site, penalties of candidate placements, all at once in numpy.

`scan`, `redist` and `readj` differ in which candidates they look at; the arithmetic is here. Loads count tracked keys
only, as in the paper (`slotted` also counts what the fallback places), unless a running query has measured what else
there is (`resources.Loads`). Section 4.2.1, Equations 18 to 20.

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
from fluxen.partitioning.resources import Frequencies, Loads, Resources, beta, tolerance

__all__ = ["Placement", "ideal_share", "spread_after_adding"]

Floats: TypeAlias = NDArray[np.float64]
_NOTHING = 1e-300  # a resource nobody uses is balanced


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """The problem one construction solves.

    keys, share    tracked keys and their frequencies
    old            site of each key so far; may be a site that no longer exists
    new            site the new fallback would give each key
    loads          one row of key loads per balanced growth, ``weights`` its exponent in the geometric mean
    base           per growth the load of each site besides these keys
    state          memory load of each key: what migrating it costs
    owed           migration already unavoidable: keys tracked no longer whose fallback site is another
    ideal          migration cost of an ideal function, over all keys tracked before or now
    """

    sites: int
    thetas: tuple[float, ...]
    keys: KeyArray
    share: Floats
    old: SiteArray
    new: SiteArray
    loads: tuple[Floats, ...]
    weights: tuple[float, ...]
    base: tuple[Floats, ...]
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
        measured = tracked.loads or _modelled(tracked.share, resources, alpha, fallback.sites)
        total = float(measured.state.sum()) + float(leaving.sum())
        return cls(
            sites=fallback.sites,
            thetas=tuple(tolerance(alpha=a, sites=fallback.sites) or 1e-9 for a in measured.alphas),
            keys=tracked.keys,
            share=tracked.share,
            old=previous.lookup(tracked.keys),
            new=fallback.lookup(tracked.keys),
            loads=measured.resources,
            weights=_weights(resources)
            if tracked.loads is None
            else (1 / len(measured.alphas),) * len(measured.alphas),
            base=tuple(_resized(base, fallback.sites) for base in measured.base),
            state=measured.state,
            owed=owed,
            ideal=total * ideal_share(previous.sites, fallback.sites) or 1.0,
        )

    def empty(self) -> list[Floats]:
        """Loads per site before any key is placed."""
        return [base.copy() for base in self.base]

    def balance_after_adding(self, site_loads: list[Floats], items: NDArray[np.intp]) -> Floats:
        """rho for every item on every site: an array of shape (items, sites)."""
        penalty = np.ones((len(items), self.sites))
        for loads, placed, weight, theta in zip(self.loads, site_loads, self.weights, self.thetas):
            added = loads[items]
            mean = np.maximum((placed.sum() + added) / self.sites, _NOTHING)
            penalty *= (spread_after_adding(placed, added) / (theta * mean)[:, None]) ** weight
        return penalty

    def balance_after_adding_one(self, site_loads: list[Floats], item: int) -> Floats:
        """rho for one item on every site; `balance_after_adding` without the cost of its generality."""
        penalty = np.ones(self.sites)
        for loads, placed, weight, theta in zip(self.loads, site_loads, self.weights, self.thetas):
            after = placed + loads[item]
            emptiest = int(placed.argmin())
            least, placed[emptiest] = placed[emptiest], np.inf
            next_least, placed[emptiest] = placed.min(), least
            low = np.minimum(after, least)
            low[emptiest] = min(after[emptiest], next_least)
            mean = max((placed.sum() + loads[item]) / self.sites, _NOTHING)
            spread = (np.maximum(after, placed.max()) - low) / (theta * mean)
            penalty *= spread if weight == 1.0 else spread**weight
        return penalty

    def balance_of(self, spreads: list[Floats]) -> Floats:
        """rho when all tracked keys are placed, from the max-min spread of each growth."""
        penalty = np.ones_like(spreads[0])
        for loads, base, spread, weight, theta in zip(self.loads, self.base, spreads, self.weights, self.thetas):
            mean = max((loads.sum() + base.sum()) / self.sites, _NOTHING)
            penalty *= (spread / (theta * mean)) ** weight
        return penalty

    def moved(self, items: NDArray[np.intp]) -> Floats:
        """Migration cost of each item on each site: an array of shape (items, sites)."""
        away = self.old[items][:, None] != np.arange(self.sites)[None, :]
        cost: Floats = away * self.state[items][:, None]
        return cost


def _modelled(share: Floats, resources: Resources, alpha: float, sites: int) -> Loads:
    """The paper's loads: functions of the frequency, and nothing besides the tracked keys."""
    growths = resources.balanced()
    return Loads(
        resources=tuple(beta(growth, share) for growth, _ in growths),
        base=tuple(np.zeros(sites) for _ in growths),
        alphas=(alpha,) * len(growths),
        state=beta(resources.memory, share),
    )


def _weights(resources: Resources) -> tuple[float, ...]:
    return tuple(weight for _, weight in resources.balanced())


def _resized(base: Floats, sites: int) -> Floats:
    """On the way from some sites to others there are fewer or more than the base was made for."""
    return np.resize(np.append(base, np.zeros(max(0, sites - len(base)))), sites)


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
