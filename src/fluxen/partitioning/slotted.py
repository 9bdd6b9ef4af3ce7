"""Slotted: explicit mappings in front of a table of slots, both levelled into a band. Ours; compare `readj`, `redist`.

Three things differ from the paper's constructions. The fallback is a table of equal slots (`slots`) re-dealt from its
predecessor, so the keys without a mapping are spread evenly by count instead of within the few percent of a random
ring. Heavy keys are placed knowing what the slots already put on each site, keys just below the threshold included.
And a site is filled only into a band (`leveling`), part of the tolerated imbalance, which saves the last few percent
of migration. Keys between ``fine * delta`` and delta ride with their slot unless moving one closes a gap.

Guarantee: slots per site stay within the band, one slot more or less; a step is taken only when it lowers imbalance
by more than the migration it costs.

>>> import numpy as np
>>> from fluxen.partitioning.resources import Frequencies
>>> two = Frequencies(keys=np.array([1, 2]), share=np.array([0.3, 0.3]))
>>> sorted(Slotted().build(None, two, 2).explicit().values())
[0, 1]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fluxen.errors import ConfigError
from fluxen.partitioning.base import Partitioner
from fluxen.partitioning.function import HashPair, PartitioningFunction
from fluxen.partitioning.hashing import SiteArray
from fluxen.partitioning.leveling import Leveling
from fluxen.partitioning.resources import Frequencies, Loads, Resources, beta, heavy, tolerance, tracking_threshold
from fluxen.partitioning.slots import Slots

__all__ = ["Slotted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slotted(Partitioner):
    """Heavy keys explicit, the rest in slots, both re-dealt with the least movement.

    alpha, sigma, resources  as in the paper's constructions
    slack   part of the tolerance alpha - 1 within which sites may differ; more slack, less migration
    fine    keys down to this part of delta may be mapped explicitly to close a gap
    bits    2**bits slots

    Example::

        query.adapt(partitioner=fx.Slotted(slack=0.5))
    """

    alpha: float = 1.2
    sigma: float = 0.1
    resources: str = "LCL"
    slack: float = 0.25
    fine: float = 0.35
    bits: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        resources = Resources.of(self.resources)
        tracking_threshold(resources, alpha=self.alpha, sigma=self.sigma, sites=2, domain=1)
        if not 0.0 <= self.slack <= 1.0 or not 0.0 < self.fine <= 1.0:
            raise ConfigError(f"slack is {self.slack} and fine is {self.fine}: both are parts of 1")

    @property
    def ratio(self) -> float:
        """Largest ratio between sites that is left alone."""
        return 1.0 + (self.alpha - 1.0) * self.slack

    def build(self, previous: PartitioningFunction | None, frequencies: Frequencies, sites: int) -> HashPair:
        """The function for ``sites`` sites."""
        resources = Resources.of(self.resources)
        explicit = heavy(frequencies, resources, alpha=self.alpha, sigma=self.sigma, sites=sites)
        if isinstance(previous, HashPair) and self._unchanged(previous, explicit, frequencies, sites):
            return previous
        table = self._previous_table(previous, sites).deal(sites, self.ratio)
        before: PartitioningFunction = previous or HashPair(fallback=table)
        finest = self.fine * self.sigma * tolerance(alpha=self.alpha, sites=sites) / sites
        items = frequencies.at_least(min(finest, float(explicit.share.min(initial=1.0))))
        places = self._level(before, table, items, explicit, resources)
        keep = np.isin(items.keys, explicit.keys) | (places != table.lookup(items.keys))
        return HashPair(fallback=table, keys=items.keys[keep], places=places[keep], weights=items.share[keep])

    def _previous_table(self, previous: PartitioningFunction | None, sites: int) -> Slots:
        if isinstance(previous, HashPair) and isinstance(previous.fallback, Slots):
            return previous.fallback
        return Slots.fresh(sites=previous.sites if previous else sites, bits=self.bits, seed=self.seed)

    def _level(
        self,
        before: PartitioningFunction,
        table: Slots,
        items: Frequencies,
        explicit: Frequencies,
        resources: Resources,
    ) -> SiteArray:
        home, slot_site = before.lookup(items.keys), table.lookup(items.keys)
        mapped = np.array(list(before.explicit()), dtype=np.int64)
        pinned = np.isin(items.keys, explicit.keys) | np.isin(items.keys, mapped)
        places = np.where(pinned & (home < table.sites), home, slot_site).astype(np.int32)
        if items.loads is not None:
            return self._level_measured(table.sites, items.loads, home, places)
        growths = resources.balanced()
        rest = max(0.0, 1.0 - float(items.share.sum()))
        per_key = rest / max(1, items.domain - len(items.keys))
        base = {"linear": rest, "quadratic": rest * per_key}
        leveling = Leveling(
            sites=table.sites,
            loads=tuple(beta(growth, items.share) for growth, _ in growths),
            base=tuple(base[growth] * table.shares() for growth, _ in growths),
            weights=tuple(weight for _, weight in growths),
            state=beta(resources.memory, items.share),
            home=home,
            places=places,
            ratio=self.ratio,
        )
        return leveling.run(4 * len(items.keys))

    def _level_measured(self, sites: int, loads: Loads, home: SiteArray, places: SiteArray) -> SiteArray:
        """The same with what a running query has measured."""
        leveling = Leveling(
            sites=sites,
            loads=loads.resources,
            base=loads.base,
            weights=(1 / len(loads.resources),) * len(loads.resources),
            state=loads.state,
            home=home,
            places=places,
            ratio=self.ratio,
        )
        return leveling.run(4 * len(places))

    def _unchanged(self, previous: HashPair, explicit: Frequencies, frequencies: Frequencies, sites: int) -> bool:
        return (
            isinstance(previous.fallback, Slots)
            and previous.sites == sites
            and bool(np.isin(explicit.keys, previous.keys).all())
            and np.array_equal(previous.weights, frequencies.of(previous.keys))
        )
