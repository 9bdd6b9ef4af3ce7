"""The workload of Gedik's evaluation: Zipf-distributed keys, counted by a sketch. Trials over it are in figures/gedik.

The k-th most frequent of ``domain`` keys has frequency proportional to 1/k**z. A run draws fresh key hashes, so each
run places the heavy keys elsewhere, and a fresh stream of a million rows (fewer for a tiny domain); constructions see
what lossy counting makes of that stream, metrics use the true frequencies. Section 5.1.

>>> zipf(3, 1.0).round(3).tolist()
[0.545, 0.273, 0.182]
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fluxen.partitioning import Frequencies
from fluxen.partitioning.hashing import mix64
from fluxen.sketches import LossyCounter

__all__ = ["ROWS", "counted", "key_hashes", "stream", "zipf"]

ROWS = 1_000_000
Floats: TypeAlias = NDArray[np.float64]
Keys: TypeAlias = NDArray[np.int64]


@lru_cache(maxsize=2)
def zipf(domain: int, z: float) -> Floats:
    """Frequencies of the keys, most frequent first."""
    weight = 1.0 / np.arange(1, domain + 1, dtype=np.float64) ** z
    share: Floats = weight / weight.sum()
    return share


@lru_cache(maxsize=2)
def key_hashes(domain: int, run: int) -> Keys:
    """Distinct key hashes, as good as random, different in every run."""
    ranks = np.arange(domain, dtype=np.uint64) + np.uint64((run + 1) << 40)
    return mix64(ranks).view(np.int64)


@lru_cache(maxsize=2)
def stream(domain: int, z: float, run: int) -> Keys:
    """Key hashes of the rows of one run, in order of arrival."""
    rows = min(ROWS, 100 * domain)
    draws = np.random.default_rng([run, domain, round(z * 1000)]).random(rows)
    ranks = np.minimum(np.searchsorted(np.cumsum(zipf(domain, z)), draws), domain - 1)
    drawn: Keys = key_hashes(domain, run)[ranks]
    return drawn


@lru_cache(maxsize=4)
def counted(domain: int, z: float, run: int, epsilon: float) -> Frequencies:
    """What a lossy counter with this epsilon knows at the end of the run's stream."""
    counter = LossyCounter(epsilon=epsilon)
    for batch in np.array_split(stream(domain, z, run), 10):
        counter.update(batch)
    held = counter.held()
    return Frequencies.counted(held.keys, held.counts, counter.total, domain=domain)
