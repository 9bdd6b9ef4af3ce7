"""One trial of Gedik's evaluation: grow from one site to N by one construction and measure what came out.

The workload is in datagen/gedik.py; the figures in `balance`, `size`, `timing` and `ours` are sweeps of these trials.
Every construction step adds one site, as a function depends on its predecessors. Section 5.1, Table 1.

>>> row = measure("readj", Setting(sites=3, domain=1000), run=0)[-1]
>>> row["sites"], row["m"] > 0
(3, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
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
    "KEY",
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
KEY = ("algorithm", "sites", "resources", "z", "sigma", "utility", "domain")
"""Columns that tell the rows of `measure` apart."""


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
    instead: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    """A mutation: by field, or "algorithm", what is used where something else was asked for and is told."""

    def used(self, name: str, asked: Any) -> Any:
        return self.instead.get(name, {}).get(asked, asked)

    def resolved(self, algorithm: str) -> tuple[str, Setting]:
        """The algorithm and the setting that are really used."""
        swapped = self.instead.get("algorithm", {})
        algorithm = swapped.get((algorithm, self.utility), swapped.get(algorithm, algorithm))
        return algorithm, self.real()

    def real(self) -> Setting:
        """What is really used."""
        known = {one.name for one in fields(self)} & set(self.instead)
        return replace(self, instead={}, **{name: self.used(name, getattr(self, name)) for name in known})

    @property
    def delta(self) -> float:
        """From which frequency on keys are tracked."""
        return tracking_threshold(
            Resources.of(self.resources), alpha=self.alpha, sigma=self.sigma, sites=self.sites, domain=self.domain
        )


def make(name: str, setting: Setting, run: int) -> Partitioner:
    """The construction called ``name``; each run has its own hash seed."""
    name, setting = setting.resolved(name)
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
    setting = setting.real()
    return counted(setting.domain, setting.z, run, 0.1 * setting.delta)


def chain(name: str, setting: Setting, run: int) -> Iterator[PartitioningFunction]:
    """The functions for 1, 2, ... up to the setting's number of sites, each built from the one before."""
    name, setting = setting.resolved(name)
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
    algorithm, real = setting.resolved(name)
    wanted = set(every) or {real.sites}
    share, keys = zipf(real.domain, real.z), key_hashes(real.domain, run)
    functions: Iterable[PartitioningFunction] = chain(algorithm, real, run)
    if wanted != {real.sites} and algorithm in ("uniform", "consistent"):
        functions = (make(algorithm, real, run).build(None, Frequencies(), n) for n in range(1, real.sites + 1))
    rows: list[Row] = []
    before: PartitioningFunction | None = None
    places = None
    for function in functions:
        if function.sites in wanted and before is not None:
            old = before.lookup(keys) if places is None else places
            places = function.lookup(keys)
            sites = (before.sites, function.sites)
            for letters in judge or (setting.resources,):
                resources = Resources.of(setting.used("resources", letters))
                b = imbalance(places, share, function.sites, resources, alpha=setting.alpha)
                m = migration(old, places, share, sites, resources)
                rows.append(
                    {
                        "algorithm": name,
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
