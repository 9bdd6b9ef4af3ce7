"""What every construction of a partitioning function has in common. What they build is in `function`.

A `Partitioner` is a frozen configuration; ``build(previous, frequencies, sites)`` makes the next function out of the
last one, what a sketch knows about the stream, and the new number of sites. One file per construction: `uniform`,
`consistent`, `scan`, `redist`, `readj` (the paper's) and `slotted` (ours).

Guarantee: a build depends on its arguments only, and moves nothing when neither the number of sites nor the
frequencies changed. Section 4.2.

>>> from fluxen.partitioning import Readj, Frequencies
>>> first = Readj().build(None, Frequencies(), 2)
>>> Readj().build(first, Frequencies(), 3).sites
3
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fluxen.errors import ConfigError
from fluxen.partitioning.construction import Placement
from fluxen.partitioning.function import HashPair, PartitioningFunction
from fluxen.partitioning.hashing import SiteArray
from fluxen.partitioning.resources import Frequencies, Resources, Utility, heavy, tolerance, utility
from fluxen.partitioning.ring import Ring

__all__ = ["HashPairPartitioner", "Partitioner"]


class Partitioner(ABC):
    """Builds the next partitioning function from the last; a frozen configuration.

    >>> from fluxen.partitioning import Frequencies, UniformHash
    >>> int(UniformHash().build(None, Frequencies(), 4).lookup(np.arange(1000)).max())
    3
    """

    __slots__ = ()

    @property
    @abstractmethod
    def alpha(self) -> float:
        """Tolerated ratio between the most and the least loaded site; infinite for functions that do not balance."""

    @abstractmethod
    def build(
        self, previous: PartitioningFunction | None, frequencies: Frequencies, sites: int
    ) -> PartitioningFunction:
        """The function for ``sites`` sites; ``previous`` is None for the first function of a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HashPairPartitioner(Partitioner):
    """What `Scan`, `Redist` and `Readj` share: parameters, which keys are explicit, the ring behind them.

    alpha      tolerated ratio between the most and the least loaded site
    sigma      part of that tolerance left to keys without an explicit mapping; smaller tracks more keys
    resources  growth of memory, computation, communication: "LCL" and so on
    utility    how balance and migration penalties combine
    replicas   points per site on the ring
    """

    alpha: float = 1.2
    sigma: float = 0.1
    resources: str = "LCL"
    utility: Utility = "APM"
    replicas: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        Resources.of(self.resources)
        tolerance(alpha=self.alpha, sites=2)
        if not 0.0 < self.sigma <= 1.0:
            raise ConfigError(f"sigma is {self.sigma}: expected more than 0 and at most 1")
        utility(self.utility, np.zeros(1), np.zeros(1))

    one_site_at_a_time: ClassVar[bool] = True
    """Grow step by step, as in the paper. With several empty sites the balance penalty, a matter of the fullest and
    the emptiest, cannot reward filling one of them."""

    def build(self, previous: PartitioningFunction | None, frequencies: Frequencies, sites: int) -> HashPair:
        """The function for ``sites`` sites."""
        if previous is not None and self.one_site_at_a_time:
            for between in range(previous.sites + 1, sites):
                previous = self._step(previous, frequencies, between)
        return self._step(previous, frequencies, sites)

    def _step(self, previous: PartitioningFunction | None, frequencies: Frequencies, sites: int) -> HashPair:
        ring = Ring(sites=sites, replicas=self.replicas, seed=self.seed)
        tracked = self.tracked(frequencies, sites)
        if isinstance(previous, HashPair) and unchanged(previous, tracked, ring):
            return previous
        placement = Placement.of(
            previous or HashPair(fallback=ring), ring, tracked, frequencies, Resources.of(self.resources), self.alpha
        )
        trivial = sites == 1 or not len(tracked.keys)
        places = np.zeros(len(tracked.keys), dtype=np.int32) if trivial else self.place(placement)
        return HashPair(fallback=ring, keys=tracked.keys, places=places, weights=tracked.share)

    def tracked(self, frequencies: Frequencies, sites: int) -> Frequencies:
        """The keys that get an explicit mapping."""
        return heavy(frequencies, Resources.of(self.resources), alpha=self.alpha, sigma=self.sigma, sites=sites)

    @abstractmethod
    def place(self, placement: Placement) -> SiteArray:
        """A site for every tracked key; the construction itself."""


def unchanged(previous: HashPair, tracked: Frequencies, fallback: Ring) -> bool:
    """Whether the previous function was built for the same sites, keys and frequencies."""
    return (
        previous.fallback == fallback
        and np.array_equal(previous.keys, tracked.keys)
        and np.array_equal(previous.weights, tracked.share)
    )
