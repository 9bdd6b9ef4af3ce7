"""Flux Figure 6 on Spark: one of eight sites loses 57 % of its processor for good (section 5.4).

The simulated figure with the paper's 32 sites is in `fluxen_lab.figures.flux.perturbation`.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fluxen.policies import FluxLoad, Static
from fluxen.sim.load import PERTURBED
from fluxen_lab.datagen.flux import SECOND, uniform
from fluxen_lab.emulate.paced import SlowSites
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import draw, steady
from fluxen_lab.figures.flux.on_spark import GROUPS_PER_SITE, SITES, stage

__all__ = ["FIGURE"]

START = 5
"""The batch at which the site slows down."""
SITE = 0
_SETTLED = 5
"""Batches at the end over which a level is taken."""


def run(options: RunOptions) -> list[Row]:
    batches = uniform(int(options.params.get("batches", 19)), int(options.params.get("rows", 8_000)), options.seed)
    load = SlowSites(sites=(SITE,), slowdown=1 / PERTURBED, since=START * SECOND)
    with stage(options) as spark:
        static = spark.run("static", batches, Static(), load)
        balanced = spark.run("load balancing", batches, FluxLoad(groups_per_move=3, guarded=False), load)
    given = balanced.offloaded(SITE)
    return [
        {
            "batch": i,
            "rows": table.num_rows,
            "static": static.rates[i],
            "balanced": balanced.rates[i],
            "static_whole": static.whole_rates[i],
            "balanced_whole": balanced.whole_rates[i],
            "offloaded": given[i],
            "static_results": static.results,
            "balanced_results": balanced.results,
        }
        for i, table in enumerate(batches)
    ]


plot = partial(
    draw,
    x="batch",
    lines={
        "balanced": "load balancing",
        "static": "static",
        "balanced_whole": "load balancing, with the fixed cost of a batch",
        "static_whole": "static, with the fixed cost of a batch",
    },
    title=f"One of {SITES} sites perturbed at batch {START}, on Spark",
    xlabel="batch",
    ylabel="rows/s",
)


def claims(rows: list[Row]) -> list[Claim]:
    before = [row for row in rows if 1 <= row["batch"] < START]
    unloaded = float(np.mean([row["static"] for row in before]))
    whole = float(np.mean([row["static_whole"] for row in before]))
    loss = 1 - steady(rows, "static", _SETTLED) / unloaded
    back = steady(rows, "balanced", _SETTLED) / unloaded
    early = [row["offloaded"] for row in rows if row["batch"] <= START]
    groups = rows[-1]["offloaded"]
    fed = sum(row["rows"] for row in rows)
    return [
        Claim(
            claim="static loses about 57 %",
            holds=0.5 <= loss <= 0.62,
            measured={
                "stage": round(loss, 3),
                "whole_batches": round(1 - steady(rows, "static_whole", _SETTLED) / whole, 3),
            },
            paper="about 57 %",
        ),
        Claim(
            claim=f"about half of the site's {GROUPS_PER_SITE} partition groups are offloaded, none before the load",
            holds=0.35 <= groups / GROUPS_PER_SITE <= 0.65 and max(early) <= 0.1 * GROUPS_PER_SITE,
            measured={"offloaded": groups, "before_the_load": max(early)},
            paper="32 of 64",
        ),
        Claim(
            claim="throughput returns close to the unloaded line",
            holds=back >= 0.85,
            measured={
                "stage": round(back, 3),
                "whole_batches": round(steady(rows, "balanced_whole", _SETTLED) / whole, 3),
                "all_capacity_used": round(1 - (1 - PERTURBED) / SITES, 3),
            },
            paper="close; of 32 sites one lost 57 %, of eight that is 7 % of the capacity",
        ),
        Claim(
            claim="every row has its result, moves or not",
            holds=rows[0]["static_results"] == rows[0]["balanced_results"] == fed,
            measured=rows[0]["balanced_results"] - fed,
            paper="no row is lost",
        ),
    ]


FIGURE = Figure(
    name="flux/6-spark",
    title="Balancing processing load after one site slows down, on Spark",
    run=run,
    plot=plot,
    claims=claims,
)
