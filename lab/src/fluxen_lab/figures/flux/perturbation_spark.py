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
from fluxen_lab.figures.claim import Claim, Numbers, at_least, at_most, between, exactly
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import NO_LOAD, draw, steady
from fluxen_lab.figures.flux.on_spark import GROUPS_PER_SITE, SITES, UNCOUNTED, WAITING, stage

__all__ = ["FIGURE"]

START = 5
"""The batch at which the site slows down."""
SITE = 0
_SETTLED = 5
"""Batches at the end over which a level is taken."""


def run(options: RunOptions) -> list[Row]:
    batches = uniform(int(options.params.get("batches", 19)), int(options.params.get("rows", 8_000)), options.seed)
    load = SlowSites(sites=(SITE,), slowdown=1 / options.params.get("left", PERTURBED), since=START * SECOND)
    with stage(options) as spark:
        static = spark.run("static", batches, Static(), load)
        policy = options.policy("balanced", FluxLoad(groups_per_move=3, guarded=False))
        balanced = spark.run("load balancing", batches, policy, load)
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


def numbers(rows: list[Row]) -> Numbers:
    before = [row for row in rows if 1 <= row["batch"] < START]
    unloaded = float(np.mean([row["static"] for row in before]))
    whole = float(np.mean([row["static_whole"] for row in before]))
    fed = sum(row["rows"] for row in rows)
    return {
        "loss": 1 - steady(rows, "static", _SETTLED) / unloaded,
        "loss_whole_batches": 1 - steady(rows, "static_whole", _SETTLED) / whole,
        "offloaded_share": rows[-1]["offloaded"] / GROUPS_PER_SITE,
        "offloaded_before_share": max(row["offloaded"] for row in rows if row["batch"] <= START) / GROUPS_PER_SITE,
        "of_unloaded": steady(rows, "balanced", _SETTLED) / unloaded,
        "of_unloaded_whole_batches": steady(rows, "balanced_whole", _SETTLED) / whole,
        "static_missing": fed - rows[0]["static_results"],
        "balanced_missing": fed - rows[0]["balanced_results"],
    }


STATIC = "load balancing replaced by Static"
FIGURE = Figure(
    name="flux/6-spark",
    title="Balancing processing load after one site slows down, on Spark",
    run=run,
    plot=plot,
    by=("batch",),
    numbers=numbers,
    claims=(
        Claim(
            claim="static: one site's loss of 57 % becomes the whole stage's",
            paper="about 57 %",
            bands={"loss": between(0.5, 0.62)},
            shown=("loss_whole_batches",),
            mutation=NO_LOAD,
        ),
        Claim(
            claim=f"about half of the site's {GROUPS_PER_SITE} partition groups are offloaded, none before the load",
            paper="32 of 64",
            bands={"offloaded_share": between(0.35, 0.65), "offloaded_before_share": at_most(0.1)},
            mutation=STATIC,
        ),
        Claim(
            claim="throughput returns close to the unloaded line",
            paper="close; of 32 sites one lost 57 %, of eight that is 7 % of the capacity",
            bands={"of_unloaded": at_least(0.85)},
            shown=("of_unloaded_whole_batches",),
            mutation=STATIC,
        ),
        Claim(
            claim="every row has its result, moves or not",
            paper="no row is lost",
            bands={"static_missing": exactly(0), "balanced_missing": exactly(0)},
            mutation=UNCOUNTED,
            each_seed=True,
        ),
    ),
    mutations={
        NO_LOAD: {"left": 1.0},
        STATIC: {"policies": {"balanced": Static}},
        UNCOUNTED: {"uncounted": 1},
    },
    seeds=3,
    place="Spark",
    emulated=WAITING,
)
