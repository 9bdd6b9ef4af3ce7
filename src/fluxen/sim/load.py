"""What happens to the cluster: how keys are distributed, which sites lose processor time or memory, and when.

Consumed by `fluxen.sim.simulator`; `fluxen.sim.scenario` reads the same things from a file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Floats

__all__ = ["PERTURBED", "CpuLoad", "MemoryLoad", "self_similar", "uniform", "zipf"]

PERTURBED = 0.43
"""Share of a processor that 100 us of foreign work every 150 us left the operator in the paper (a loss of 57 %)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLoad:
    """Foreign work leaves these sites only `share` of their processor from `start` to `end`."""

    sites: tuple[int, ...]
    start: float = 0.0
    end: float = np.inf
    share: float = PERTURBED

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1 or self.end < self.start:
            raise ConfigError(f"CPU load: expected share in (0, 1] and start <= end, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLoad:
    """These sites have `memory` bytes for state from `at` on."""

    sites: tuple[int, ...]
    at: float
    memory: float

    def __post_init__(self) -> None:
        if not self.memory > 0:
            raise ConfigError(f"memory load: expected a positive number of bytes, got {self.memory}")


def uniform(groups: int) -> Floats:
    """Every partition group gets the same share of the tuples."""
    return np.full(groups, 1.0 / groups)


def self_similar(groups: int, *, keys: int = 16_384, skew: float = 0.8, seed: int = 0) -> Floats:
    """A share `skew` of the tuples to a share 1 - `skew` of the keys, again within those, and so on; keys are hashed.

    >>> bool(0.2 < self_similar(2048).max() < 0.3)  # one partition group has a quarter of an 80/20 workload
    True
    """
    if not 0.5 <= skew < 1:
        raise ConfigError(f"self-similar keys: expected a skew in [0.5, 1), got {skew}")
    exponent = np.log(skew) / np.log(1 - skew)
    below = (np.arange(keys + 1) / keys) ** exponent
    return _hashed(np.diff(below), groups, seed)


def zipf(groups: int, *, keys: int = 16_384, z: float = 1.0, seed: int = 0) -> Floats:
    """The k-th most frequent key gets tuples in proportion to k ** -z; keys are hashed."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -z
    return _hashed(weights / weights.sum(), groups, seed)


def _hashed(weights: Floats, groups: int, seed: int) -> Floats:
    """Spread keys evenly over the groups, popularity in random order, as a good hash would."""
    order = np.random.default_rng([seed, 17]).permutation(len(weights))
    return np.bincount(order % groups, weights=weights, minlength=groups).astype(np.float64)
