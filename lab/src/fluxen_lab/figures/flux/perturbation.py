"""Flux Figure 6: one of 32 sites loses 57 % of its processor for good (section 5.4)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fluxen.policies import FluxLoad, Static
from fluxen.sim.cluster import Cluster
from fluxen.sim.load import PERTURBED, CpuLoad
from fluxen.sim.simulator import Scenario
from fluxen_lab.figures.claim import Claim, Numbers, between
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import CLUSTER, NO_LOAD, PAPER, draw, first, offloaded, simulate, steady

__all__ = ["FIGURE"]

START = 2.0
SITE = 0


def run(options: RunOptions) -> list[Row]:
    seconds = float(options.params.get("seconds", 45.0))
    cluster = Cluster(buffer_tuples=options.params.get("buffer_tuples", Cluster().buffer_tuples))
    quiet = Scenario(cluster=cluster, seconds=seconds, seed=options.seed)
    left = options.params.get("left", PERTURBED)
    loaded = replace(quiet, loads=(CpuLoad(sites=(SITE,), start=START, share=left),))
    unloaded = simulate(options, "without load", quiet, Static())
    static = simulate(options, "static", loaded, Static())
    policy = options.policy("balanced", FluxLoad(min_collection=0.1, **PAPER))
    balanced = simulate(options, "load balancing", loaded, policy)
    given = offloaded(balanced, SITE)
    return [
        {
            "second": float(unloaded.seconds[i]),
            "unloaded": float(unloaded.throughput[i]),
            "static": float(static.throughput[i]),
            "balanced": float(balanced.throughput[i]),
            "offloaded": given[i],
            "moves": int(balanced.moves[i]),
        }
        for i in range(len(unloaded.seconds))
    ]


plot = partial(
    draw,
    x="second",
    lines={"unloaded": "no load", "balanced": "load balancing", "static": "static"},
    title=f"One of 32 sites perturbed at {START:g} s",
    xlabel="second",
    ylabel="tuples/s",
)


def numbers(rows: list[Row]) -> Numbers:
    unloaded = steady(rows, "unloaded", 10)
    felt = first(rows, lambda row: row["static"] < 0.8 * unloaded, START)
    moved = first(rows, lambda row: row["offloaded"] > 0, START)
    return {
        "loss": 1 - steady(rows, "static", 10) / unloaded,
        "felt_after_s": felt,
        "moved_after_s": moved,
        "moved_after_felt_s": None if felt is None or moved is None else moved - felt,
        "offloaded": rows[-1]["offloaded"],
        "of_unloaded": steady(rows, "balanced", 10) / unloaded,
    }


NO_BUFFER = "no skew buffer"
STATIC = "load balancing replaced by Static"
FIGURE = Figure(
    name="flux/6",
    title="Balancing processing load after one site slows down",
    run=run,
    plot=plot,
    by=("second",),
    numbers=numbers,
    claims=(
        Claim(
            claim="static: one site's loss of 57 % becomes the whole stage's",
            paper="about 57 %",
            bands={"loss": between(0.5, 0.62)},
            mutation=NO_LOAD,
        ),
        Claim(
            claim="the skew buffer hides the load for seconds, and balancing starts once it is full",
            paper="about 4 s of slack, balancing feels it at the same time",
            bands={"felt_after_s": between(3, 7), "moved_after_felt_s": between(-1.5, 1.5)},
            shown=("moved_after_s",),
            mutation=NO_BUFFER,
        ),
        Claim(
            claim="about 32 of the site's 64 partition groups are offloaded",
            paper=32,
            bands={"offloaded": between(24, 40)},
            mutation=STATIC,
        ),
        Claim(
            claim="throughput returns close to the unloaded line",
            paper="close; the site's lost share is 1.8 %",
            bands={"of_unloaded": between(0.9, 1.01)},
            mutation=STATIC,
        ),
    ),
    mutations={
        NO_LOAD: {"left": 1.0},
        NO_BUFFER: {"buffer_tuples": 0.0},
        STATIC: {"policies": {"balanced": Static}},
    },
    seeds=3,
    place="simulator",
    emulated=CLUSTER,
)
