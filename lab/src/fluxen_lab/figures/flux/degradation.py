"""Flux Figure 7: throughput against the number of perturbed sites (section 5.4)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from fluxen.policies import FluxLoad, Static
from fluxen.sim.load import PERTURBED, CpuLoad
from fluxen.sim.simulator import Scenario
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import PAPER, draw, simulate

__all__ = ["FIGURE"]

COUNTS = (0, 1, 2, 4, 8, 16, 24, 32)


def run(options: RunOptions) -> list[Row]:
    rows: list[Row] = []
    order = np.random.default_rng([options.seed, 7]).permutation(32)
    for count in options.params.get("counts", COUNTS):
        chosen = tuple(int(site) for site in order[:count])
        loads = (CpuLoad(sites=chosen),) if chosen else ()
        scenario = Scenario(seconds=50.0, step=4e-3, report=0.012, loads=loads, seed=options.seed)
        static = simulate(options, f"static, {count} sites", replace(scenario, seconds=16.0), Static())
        balanced = simulate(options, f"balanced, {count} sites", scenario, FluxLoad(min_collection=0.1, **PAPER))
        ideal = scenario.cluster.peak * (1 - (1 - PERTURBED) * count / 32)
        rows.append({"perturbed": count, "ideal": ideal, "static": static.steady(6), "balanced": balanced.steady(15)})
    return rows


plot = partial(
    draw,
    x="perturbed",
    lines={"ideal": "all capacity used", "balanced": "load balancing", "static": "static"},
    title="Steady throughput with perturbed sites",
    xlabel="perturbed sites of 32",
    ylabel="tuples/s",
)


def claims(rows: list[Row]) -> list[Claim]:
    perturbed = [row for row in rows if row["perturbed"] > 0]
    lost = [1 - row["static"] / rows[0]["static"] for row in perturbed]
    x = np.array([row["perturbed"] for row in rows], dtype=float)
    y = np.array([row["balanced"] for row in rows], dtype=float)
    slope, offset = np.polyfit(x, y, 1)
    fit = 1 - float(((y - slope * x - offset) ** 2).sum() / ((y - y.mean()) ** 2).sum())
    share = min(row["balanced"] / row["ideal"] for row in rows)
    return [
        Claim(
            claim="static drops at the first perturbed site and stays there",
            holds=min(lost) >= 0.5 and max(lost) <= 0.62,
            measured={"least": round(min(lost), 3), "most": round(max(lost), 3)},
            paper="drops once and remains there",
        ),
        Claim(
            claim="balanced degrades linearly with the number of perturbed sites",
            holds=fit >= 0.97 and slope < 0,
            measured={"r_squared": round(fit, 4), "loss_per_site": round(-slope)},
            paper="linear",
        ),
        Claim(
            claim="balanced uses at least 85 % of the capacity that is left",
            holds=share >= 0.85,
            measured=round(share, 3),
            paper="smooth; no figure given",
        ),
    ]


FIGURE = Figure(
    name="flux/7", title="Graceful degradation with the number of perturbed sites", run=run, plot=plot, claims=claims
)
