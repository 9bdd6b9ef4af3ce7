"""Uniform hash: the baseline that moves nearly everything when the number of sites changes. See also `consistent`.

Guarantee: a site gets 1/N of the keys; going from N to N+1 sites moves N/(N+1) of them. Section 1.

>>> from fluxen.partitioning.resources import Frequencies
>>> UniformHash().build(None, Frequencies(), 4)
UniformFunction(sites=4, seed=0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fluxen.partitioning.base import Partitioner
from fluxen.partitioning.function import PartitioningFunction, UniformFunction
from fluxen.partitioning.resources import Frequencies

__all__ = ["UniformHash"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformHash(Partitioner):
    """Hash modulo the number of sites.

    Example::

        query.adapt(partitioner=fx.UniformHash())
    """

    seed: int = 0
    alpha: ClassVar[float] = math.inf

    def build(self, previous: PartitioningFunction | None, frequencies: Frequencies, sites: int) -> UniformFunction:
        """The function for ``sites`` sites; history and frequencies do not matter."""
        return UniformFunction(sites=sites, seed=self.seed)
