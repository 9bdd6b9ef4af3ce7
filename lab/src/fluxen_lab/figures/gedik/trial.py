"""One trial of Gedik's evaluation: grow from one site to N by one construction and measure what came out.

The workload is in datagen/gedik.py; the figures in `balance`, `size`, `timing` and `ours` are sweeps of these trials.
Every construction step adds one site, as a function depends on its predecessors. Section 5.1, Table 1.

>>> row = measure("readj", Setting(sites=3, domain=1000), run=0)[-1]
>>> row["sites"], row["m"] > 0
(3, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluxen.partitioning import (
    ConsistentHash,
    Frequencies,
    Partitioner,
    PartitioningFunction,
    Readj,
    Redist,
    Resources,
    Scan,
    Slotted,
    UniformHash,
    tracking_threshold,
)
from fluxen.partitioning.metrics import imbalance, migration, objective
from fluxen.partitioning.resources import Utility
from fluxen_lab.datagen.gedik import counted, key_hashes, zipf
from fluxen_lab.figures.figure import Row

__all__ = [
    "ALGORITHMS",
    "CONSTRUCTIONS",
    "Setting",
    "chain",
    "frequencies",
    "make",
    "mean",
    "measure",
    "pick",
    "values_of",
]

CONSTRUCTIONS = ("scan", "redist", "readj")
ALGORITHMS = ("uniform", "consistent", *CONSTRUCTIONS, "slotted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Parameters of a trial with the defaults of the paper's Table 1."""

    sites: int = 10
    alpha: float = 1.2
    resources: str = "LCL"
    domain: int = 1_000_000
    z: float = 1.0
    sigma: float = 0.1
    utility: Utility = "APM"

    @property
    def delta(self) -> float:
        """From which frequency on keys are tracked."""
        return tracking_threshold(
            Resources.of(self.resources), alpha=self.alpha, sigma=self.sigma, sites=self.sites, domain=self.domain
        )


def make(name: str, setting: Setting, run: int) -> Partitioner:
    """The construction called ``name``; each run has its own hash seed."""
    if name == "uniform":
        return UniformHash(seed=run)
    if name == "consistent":
        return ConsistentHash(seed=run)
    if name == "slotted":
        return Slotted(alpha=setting.alpha, sigma=setting.sigma, resources=setting.resources, seed=run)
    kinds: dict[str, Any] = {"scan": Scan, "redist": Redist, "readj": Readj}
    made: Partitioner = kinds[name](
        alpha=setting.alpha, sigma=setting.sigma, resources=setting.resources, utility=setting.utility, seed=run
    )
    return made


def frequencies(setting: Setting, run: int) -> Frequencies:
    """What the sketch knows; its error is a tenth of the tracking threshold."""
    return counted(setting.domain, setting.z, run, 0.1 * setting.delta)


def chain(name: str, setting: Setting, run: int) -> Iterator[PartitioningFunction]:
    """The functions for 1, 2, ... up to the setting's number of sites, each built from the one before."""
    partitioner, known = make(name, setting, run), frequencies(setting, run)
    function: PartitioningFunction | None = None
    first = setting.sites - 1 if name in ("uniform", "consistent") else 1  # these two have no memory
    for sites in range(max(1, first), setting.sites + 1):
        function = partitioner.build(function, known, sites)
        yield function


def measure(
    name: str, setting: Setting, run: int, *, judge: Sequence[str] = (), every: Iterable[int] = ()
) -> list[Row]:
    """Rows with b, b_s, b_c, b_n, m, objective, explicit: one per resources in ``judge`` and number of sites.

    ``judge`` defaults to the resources built for, ``every`` to the last number of sites only.
    """
    wanted = set(every) or {setting.sites}
    share, keys = zipf(setting.domain, setting.z), key_hashes(setting.domain, run)
    functions: Iterable[PartitioningFunction] = chain(name, setting, run)
    if wanted != {setting.sites} and name in ("uniform", "consistent"):
        functions = (make(name, setting, run).build(None, Frequencies(), n) for n in range(1, setting.sites + 1))
    rows: list[Row] = []
    before: PartitioningFunction | None = None
    places = None
    for function in functions:
        if function.sites in wanted and before is not None:
            old = before.lookup(keys) if places is None else places
            places = function.lookup(keys)
            sites = (before.sites, function.sites)
            for letters in judge or (setting.resources,):
                resources = Resources.of(letters)
                b = imbalance(places, share, function.sites, resources, alpha=setting.alpha)
                m = migration(old, places, share, sites, resources)
                rows.append(
                    {
                        "algorithm": name,
                        "run": run,
                        "sites": function.sites,
                        "resources": letters,
                        "z": setting.z,
                        "sigma": setting.sigma,
                        "utility": setting.utility,
                        "domain": setting.domain,
                        **b,
                        "m": m,
                        "objective": objective(b["b"], m),
                        "explicit": function.size,
                    }
                )
        else:
            places = None
        before = function
    return rows


def pick(rows: Iterable[Row], **where: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[column] == value for column, value in where.items())]


def mean(rows: Iterable[Row], column: str, **where: Any) -> float:
    """Mean of a column over the rows with these values; that is, over the runs."""
    return float(np.mean([row[column] for row in pick(rows, **where)]))


def values_of(rows: Iterable[Row], column: str) -> list[float]:
    """The values of a column, each once, in order."""
    return sorted({row[column] for row in rows})
