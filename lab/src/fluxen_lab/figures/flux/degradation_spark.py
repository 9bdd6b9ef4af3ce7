"""Flux Figure 7 on Spark: throughput against the number of perturbed sites of eight (section 5.4).

The simulated figure with the paper's 32 sites is in `fluxen_lab.figures.flux.degradation`, which also judges this one.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fluxen.policies import FluxLoad, Static
from fluxen.sim.load import PERTURBED
from fluxen_lab.datagen.flux import uniform
from fluxen_lab.emulate.paced import SlowSites
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import draw
from fluxen_lab.figures.flux.degradation import CLAIMS, MUTATIONS, numbers
from fluxen_lab.figures.flux.on_spark import SITES, WAITING, Measured, stage

__all__ = ["FIGURE"]

COUNTS = (0, 1, 2, 4, 8)
_LAST = 2
"""Batches at the end over which a level is taken."""


def run(options: RunOptions) -> list[Row]:
    size = int(options.params.get("rows", 8_000))
    batches = uniform(int(options.params.get("batches", 8)), size, options.seed)
    rows: list[Row] = []
    left = options.params.get("left", PERTURBED)
    with stage(options) as spark:
        for count in options.params.get("counts", COUNTS):
            load = SlowSites(sites=tuple(range(count)), slowdown=1 / left)
            static = spark.run(f"static, {count} sites", batches[: _LAST + 1], Static(), load)
            policy = options.policy("balanced", FluxLoad(groups_per_move=4, guarded=False))
            balanced = spark.run(f"balanced, {count} sites", batches, policy, load)
            rows.append(
                {
                    "perturbed": count,
                    "static": _level(static),
                    "balanced": _level(balanced),
                    "static_whole": float(np.mean(static.whole_rates[-_LAST:])),
                    "balanced_whole": float(np.mean(balanced.whole_rates[-_LAST:])),
                    "moves": sum(groups for _, groups, _, _ in balanced.moves),
                }
            )
    for row in rows:
        row["ideal"] = rows[0]["static"] * (1 - (1 - left) * row["perturbed"] / SITES)
    return rows


def _level(measured: Measured) -> float:
    return float(np.mean(measured.rates[-_LAST:]))


plot = partial(
    draw,
    x="perturbed",
    lines={"ideal": "all capacity used", "balanced": "load balancing", "static": "static"},
    title="Steady throughput with perturbed sites, on Spark",
    xlabel=f"perturbed sites of {SITES}",
    ylabel="rows/s",
)


FIGURE = Figure(
    name="flux/7-spark",
    title="Graceful degradation with the number of perturbed sites, on Spark",
    run=run,
    plot=plot,
    by=("perturbed",),
    numbers=numbers,
    claims=CLAIMS,
    mutations=MUTATIONS,
    seeds=3,
    place="Spark",
    emulated=WAITING,
)
