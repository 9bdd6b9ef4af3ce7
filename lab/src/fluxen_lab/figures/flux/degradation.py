"""Flux Figure 7: throughput against the number of perturbed sites (section 5.4)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fluxen.policies import FluxLoad, Static
from fluxen.policies.base import Policy
from fluxen.sim.load import PERTURBED, CpuLoad
from fluxen.sim.simulator import Scenario
from fluxen_lab.figures.claim import Claim, Numbers, above, at_least, at_most
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import CLUSTER, NO_LOAD, PAPER, draw, simulate

__all__ = ["CLAIMS", "FIGURE", "MUTATIONS", "numbers"]

COUNTS = (0, 1, 2, 4, 8, 16, 24, 32)


def run(options: RunOptions) -> list[Row]:
    rows: list[Row] = []
    left = options.params.get("left", PERTURBED)
    order = np.random.default_rng([options.seed, 7]).permutation(32)
    for count in options.params.get("counts", COUNTS):
        chosen = tuple(int(site) for site in order[:count])
        loads = (CpuLoad(sites=chosen, share=left),) if chosen else ()
        scenario = Scenario(seconds=50.0, step=4e-3, report=0.012, loads=loads, seed=options.seed)
        static = simulate(options, f"static, {count} sites", replace(scenario, seconds=16.0), Static())
        balanced = simulate(options, f"balanced, {count} sites", scenario, _policy(options))
        ideal = scenario.cluster.peak * (1 - (1 - left) * count / 32)
        rows.append({"perturbed": count, "ideal": ideal, "static": static.steady(6), "balanced": balanced.steady(15)})
    return rows


def _policy(options: RunOptions) -> Policy:
    return options.policy("balanced", FluxLoad(min_collection=0.1, **PAPER))


plot = partial(
    draw,
    x="perturbed",
    lines={"ideal": "all capacity used", "balanced": "load balancing", "static": "static"},
    title="Steady throughput with perturbed sites",
    xlabel="perturbed sites of 32",
    ylabel="tuples/s",
)


def numbers(rows: list[Row]) -> Numbers:
    lost = [1 - row["static"] / rows[0]["static"] for row in rows if row["perturbed"] > 0]
    x = np.array([row["perturbed"] for row in rows], dtype=float)
    y = np.array([row["balanced"] for row in rows], dtype=float)
    slope, offset = np.polyfit(x, y, 1)
    varies = float(((y - y.mean()) ** 2).sum())
    return {
        "least_lost": min(lost),
        "most_lost": max(lost),
        "r_squared": 1 - float(((y - slope * x - offset) ** 2).sum()) / varies if varies else None,
        "lost_per_site": -slope,
        "least_of_ideal": min(row["balanced"] / row["ideal"] for row in rows),
    }


STATIC = "load balancing replaced by Static"
CLAIMS = (
    Claim(
        claim="static drops at the first perturbed site and stays there",
        paper="drops once and remains there",
        bands={"least_lost": at_least(0.5), "most_lost": at_most(0.62)},
        mutation=NO_LOAD,
    ),
    Claim(
        claim="balanced degrades linearly with the number of perturbed sites",
        paper="linear",
        bands={"r_squared": at_least(0.97), "lost_per_site": above(0)},
        mutation=STATIC,
    ),
    Claim(
        claim="balanced uses at least 85 % of the capacity that is left",
        paper="smooth; no figure given",
        bands={"least_of_ideal": at_least(0.85)},
        mutation=STATIC,
    ),
)
MUTATIONS: dict[str, dict[str, Any]] = {NO_LOAD: {"left": 1.0}, STATIC: {"policies": {"balanced": Static}}}
FIGURE = Figure(
    name="flux/7",
    title="Graceful degradation with the number of perturbed sites",
    run=run,
    plot=plot,
    by=("perturbed",),
    numbers=numbers,
    claims=CLAIMS,
    mutations=MUTATIONS,
    seeds=3,
    place="simulator",
    emulated=CLUSTER,
)
