"""Three streams with Poisson arrivals whose keys load one site more than the others.

Zhu and Rundensteiner, sections 5.1 and 5.2: streams A, B and C, 100 partitions, one machine with half of the workload
and the rest spread evenly over all machines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fluxen.arrays import Ints

__all__ = ["NAMES", "PARTITIONS", "Workload", "at_sites"]

NAMES = ("a", "b", "c")
PARTITIONS = 100
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """`rate(stream, second)` gives each stream's arrivals per second; a batch is `step` seconds of them."""

    rate: Callable[[str, float], float]
    seconds: float
    step: float
    hot: float = 0.5
    """share of the rows that only site 0 gets, besides its even part of the others"""
    seed: int = 1

    @property
    def batches(self) -> int:
        return round(self.seconds / self.step)

    def tables(self, keys: list[Ints]) -> dict[str, list[pa.Table]]:
        """Per stream one table per batch; `keys` are those of each site."""
        rng = np.random.default_rng(self.seed)
        made: dict[str, list[pa.Table]] = {name: [] for name in NAMES}
        for number in range(self.batches):
            start = number * self.step
            for name in NAMES:
                count = int(rng.poisson(self.rate(name, start) * self.step))
                # given their number, the arrivals of a Poisson process are uniform
                ts = np.sort(rng.integers(int(start * 1e6), int((start + self.step) * 1e6), count))
                site = np.where(rng.random(count) < self.hot, 0, rng.integers(0, len(keys), count))
                pick = rng.random(count)
                key = np.array([keys[s][int(p * len(keys[s]))] for s, p in zip(site, pick)], dtype=np.int64)
                made[name].append(pa.table({"k": key, "ts": pa.array(ts).cast(_TIME)}))
        return made


def at_sites(sites_of: Callable[[Ints], Ints], sites: int, per_site: int) -> list[Ints]:
    """Keys 0, 1, 2, ... divided by the site that owns them, `per_site` of each."""
    candidates = np.arange(per_site * sites * 20, dtype=np.int64)
    where = sites_of(candidates)
    return [candidates[where == site][:per_site] for site in range(sites)]
