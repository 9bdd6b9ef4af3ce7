"""Consistent hash: the baseline with the least migration and no idea of skew. The ring itself is in `ring`.

Guarantee: adding a site moves keys to that site only. Section 4.1.1.

>>> from fluxen.partitioning.resources import Frequencies
>>> ConsistentHash().build(None, Frequencies(), 4).size
0
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fluxen.partitioning.base import Partitioner
from fluxen.partitioning.function import HashPair, PartitioningFunction
from fluxen.partitioning.resources import Frequencies
from fluxen.partitioning.ring import Ring

__all__ = ["ConsistentHash"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistentHash(Partitioner):
    """A ring and no explicit mapping.

    Example::

        query.adapt(partitioner=fx.ConsistentHash(replicas=500))
    """

    replicas: int = 1000
    seed: int = 0
    alpha: ClassVar[float] = math.inf

    def build(self, previous: PartitioningFunction | None, frequencies: Frequencies, sites: int) -> HashPair:
        """The function for ``sites`` sites; history and frequencies do not matter."""
        return HashPair(fallback=Ring(sites=sites, replicas=self.replicas, seed=self.seed))
