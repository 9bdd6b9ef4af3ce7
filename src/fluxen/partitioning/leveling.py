"""Least movement that brings sites into a band: the arithmetic behind `slotted` and `slots`.

Equal loads are not needed, only a small ratio between the fullest and the emptiest site. Among all bands of that ratio
the cheapest is where what must leave the sites above equals what must reach the sites below; filling a new site only
up to the bottom of that band is what saves migration. Not in the paper; the bound it works against is the continuous
version of the problem, where load can be cut at will.

>>> import numpy as np
>>> low, high = band(np.array([4.0, 4.0, 4.0, 0.0]), 1.1)
>>> round(low, 3), round(high / low, 3)
(2.791, 1.1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fluxen.partitioning.hashing import SiteArray
from fluxen.partitioning.resources import per_site

__all__ = ["Leveling", "band"]

Floats: TypeAlias = NDArray[np.float64]
Sites: TypeAlias = NDArray[np.integer[Any]]
Band: TypeAlias = tuple[float, float]
_ROUNDING = 1e-12


def band(loads: Floats, ratio: float, immovable: Floats | None = None, *, spare: float = 0.0) -> Band:
    """The cheapest interval (low, ratio * low) to bring the loads into, with ``spare`` load yet to be placed.

    A site whose ``immovable`` load alone exceeds the top is left out: nothing can bring it in.
    """
    inside = np.ones(len(loads), dtype=np.bool_)
    floor = np.zeros(len(loads)) if immovable is None else immovable
    while True:
        # what a site left out has on top of its immovable load still goes to the others
        spill = spare + float((loads - floor)[~inside].sum())
        low = _cheapest_low(loads[inside], spill, ratio)
        stuck = inside & (floor > ratio * low)
        if not stuck.any() or int(inside.sum()) - int(stuck.sum()) < 1:
            return low, ratio * low
        inside &= ~stuck


def _cheapest_low(loads: Floats, spill: float, ratio: float) -> float:
    bottom, top = 0.0, (float(loads.sum()) + spill) / len(loads)
    for _ in range(60):
        low = (bottom + top) / 2
        missing = float(np.maximum(low - loads, 0.0).sum())
        surplus = float(np.maximum(loads - ratio * low, 0.0).sum()) + spill
        if missing < surplus:
            bottom = low
        else:
            top = low
    return (bottom + top) / 2


@dataclass(slots=True, kw_only=True, eq=False)
class Leveling:
    """Greedy rounding of the band to whole items: each step makes the move or swap that helps most.

    loads   one row of item loads per growth; ``base`` the load per site that stays where it is
    home    site of each item before: being there costs nothing, anywhere else costs ``state``
    places  where each item is now, updated by `run`
    thrift  improvement a unit of migration has to buy: above 1, a move must help at both ends
    """

    sites: int
    loads: tuple[Floats, ...]
    base: tuple[Floats, ...]
    weights: tuple[float, ...]
    state: Floats
    home: SiteArray
    places: SiteArray
    ratio: float
    thrift: float = 1.1

    def run(self, max_steps: int) -> SiteArray:
        """Move items until nothing helps; at most ``max_steps`` steps."""
        bands = [self._band(row) for row in range(len(self.loads))]
        for _ in range(max_steps):
            site_loads = [self._site_loads(row) for row in range(len(self.loads))]
            if not any(((x < low) | (x > high)).any() for x, (low, high) in zip(site_loads, bands)):
                break
            if not (self._move(site_loads, bands) or self._swap(site_loads, bands)):
                break
        return self.places

    def _site_loads(self, row: int) -> Floats:
        return self.base[row] + per_site(self.places, self.loads[row], self.sites)

    def _band(self, row: int) -> Band:
        largest = self.base[row].copy()
        if len(self.places):
            top = np.zeros(self.sites)
            np.maximum.at(top, self.places, self.loads[row])
            largest += top
        return band(self._site_loads(row), self.ratio, largest)

    def _gain(self, row: int, site_loads: list[Floats], bands: list[Band], site: Sites, change: Floats) -> Floats:
        """How much less a site violates its band, relative to the mean, when its load changes."""
        loads, (low, high) = site_loads[row], bands[row]

        def outside(x: Floats) -> Floats:
            return np.maximum(x - high, 0.0) + np.maximum(low - x, 0.0)

        gain: Floats = (outside(loads[site]) - outside(loads[site] + change)) * self.weights[row] / loads.mean()
        return gain

    def _price(self, items: NDArray[np.intp], target: NDArray[np.intp]) -> Floats:
        here = self.home[items] == self.places[items]
        there = self.home[items] == target
        price: Floats = self.state[items] * (here.astype(np.float64) - there) * self._unit()
        return price

    def _unit(self) -> float:
        """Migration in the unit of the gains: load relative to the mean load of a site."""
        return self.thrift * self.sites / max(_ROUNDING, float(self.state.sum() + self.base[0].sum()))

    def _move(self, site_loads: list[Floats], bands: list[Band]) -> bool:
        items = np.repeat(np.arange(len(self.places)), self.sites)
        target = np.tile(np.arange(self.sites), len(self.places))
        source = self.places[items]
        net = -self._price(items, target)
        for row, loads in enumerate(self.loads):
            net += self._gain(row, site_loads, bands, source, -loads[items])
            net += self._gain(row, site_loads, bands, target, loads[items])
        net[source == target] = 0.0
        if not len(net) or float(net.max()) <= _ROUNDING:
            return False
        best = int(np.argmax(net))
        self.places[items[best]] = target[best]
        return True

    def _swap(self, site_loads: list[Floats], bands: list[Band]) -> bool:
        """Exchange an item of the fullest site with one of the emptiest site, for the first growth."""
        full, empty = int(np.argmax(site_loads[0])), int(np.argmin(site_loads[0]))
        ours, theirs = np.flatnonzero(self.places == full), np.flatnonzero(self.places == empty)
        first, second = np.repeat(ours, len(theirs)), np.tile(theirs, len(ours))
        there, back = np.full(len(first), empty), np.full(len(first), full)
        net = -self._price(first, there) - self._price(second, back)
        for row, loads in enumerate(self.loads):
            change = loads[first] - loads[second]
            net += self._gain(row, site_loads, bands, back, -change) + self._gain(row, site_loads, bands, there, change)
        if not len(net) or float(net.max()) <= _ROUNDING:
            return False
        best = int(np.argmax(net))
        self.places[first[best]], self.places[second[best]] = empty, full
        return True
