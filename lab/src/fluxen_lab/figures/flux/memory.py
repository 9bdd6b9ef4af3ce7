"""Flux Figures 9 and 10: one site's memory is halved (section 6.2). Both figures show the same runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from fluxen.policies import FluxMemory, Static
from fluxen.sim.cluster import Cluster
from fluxen.sim.load import MemoryLoad
from fluxen.sim.simulator import Scenario
from fluxen_lab.figures.claim import Claim, Numbers, at_least, at_most, between
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import CLUSTER, PAPER, draw, first, simulate, steady

__all__ = ["LATENCY", "MEMORY_CLUSTER", "THROUGHPUT"]

START = 5.0
MEMORY_CLUSTER = Cluster(groups_per_site=128, group_bytes=6e6, memory=1e9)


def run(options: RunOptions) -> list[Row]:
    seconds = float(options.params.get("seconds", 100.0))
    quiet = Scenario(cluster=MEMORY_CLUSTER, seconds=seconds, step=5e-3, seed=options.seed)
    pressed = replace(quiet, loads=(MemoryLoad(sites=(0,), at=START, memory=options.params.get("left", 512e6)),))
    unloaded = simulate(options, "ample memory", replace(quiet, seconds=min(seconds, 20.0)), Static())
    static = simulate(options, "static", pressed, Static())
    policy = options.policy("memory", FluxMemory(min_collection=0.1, **PAPER))
    moved = simulate(options, "memory policy", pressed, policy)
    return [
        {
            "second": float(static.seconds[i]),
            "unloaded": unloaded.mean,
            "static": float(static.throughput[i]),
            "memory": float(moved.throughput[i]),
            "unloaded_latency_s": float(unloaded.latency.mean()),
            "static_latency_s": float(static.latency[i]),
            "memory_latency_s": float(moved.latency[i]),
            "moves": int(moved.moves[i]),
        }
        for i in range(len(static.seconds))
    ]


plot_throughput = partial(
    draw,
    x="second",
    lines={"unloaded": "ample memory", "memory": "memory policy", "static": "static"},
    title=f"Memory of one of 32 sites halved at {START:g} s",
    xlabel="second",
    ylabel="tuples/s",
)


plot_latency = partial(
    draw,
    x="second",
    lines={
        "unloaded_latency_s": "ample memory",
        "memory_latency_s": "memory policy",
        "static_latency_s": "static",
    },
    title=f"Memory of one of 32 sites halved at {START:g} s",
    xlabel="second",
    ylabel="mean latency (s)",
    log=("y",),
)


def numbers(rows: list[Row]) -> Numbers:
    unloaded, resident = rows[0]["unloaded"], rows[0]["unloaded_latency_s"]
    return {
        "least_of_unloaded": min(row["memory"] for row in rows) / unloaded,
        "static_of_unloaded": steady(rows, "static", 15) / unloaded,
        "memory_of_unloaded": steady(rows, "memory", 15) / unloaded,
        "recovered_at_s": first(rows, lambda row: row["second"] > 20 and row["memory"] > 0.95 * unloaded, 0.0),
        "static_latency": steady(rows, "static_latency_s", 15) / resident,
        "memory_latency": steady(rows, "memory_latency_s", 15) / resident,
    }


AMPLE = "no memory is taken away"
STATIC = "the memory policy replaced by Static"
MUTATIONS: dict[str, dict[str, Any]] = {AMPLE: {"left": 1e9}, STATIC: {"policies": {"memory": Static}}}
THROUGHPUT = Figure(
    name="flux/9",
    title="Throughput during memory balancing",
    run=run,
    plot=plot_throughput,
    by=("second",),
    numbers=numbers,
    claims=(
        Claim(
            claim="while the site writes a quarter of a gigabyte out, the stage all but stops",
            paper="grinds to a halt",
            bands={"least_of_unloaded": at_most(0.1)},
            mutation=AMPLE,
        ),
        Claim(
            claim="static stays slow",
            paper="a much reduced rate",
            bands={"static_of_unloaded": at_most(0.75)},
            mutation=AMPLE,
        ),
        Claim(
            claim="the memory policy recovers the unloaded throughput",
            paper="reaches the unloaded case",
            bands={"memory_of_unloaded": between(0.95, 1.01)},
            shown=("recovered_at_s",),
            mutation=STATIC,
        ),
    ),
    mutations=MUTATIONS,
    seeds=3,
    place="simulator",
    emulated=CLUSTER,
)
LATENCY = Figure(
    name="flux/10",
    title="Average latency during memory balancing",
    run=run,
    plot=plot_latency,
    by=("second",),
    numbers=numbers,
    claims=(
        Claim(
            claim="static's latency rises by orders of magnitude",
            paper="several orders of magnitude",
            bands={"static_latency": at_least(100)},
            mutation=AMPLE,
        ),
        Claim(
            claim="the memory policy returns to the in-memory latency",
            paper="returns to the in-memory latency",
            bands={"memory_latency": between(0.9, 1.1)},
            mutation=STATIC,
        ),
    ),
    mutations=MUTATIONS,
    seeds=3,
    place="simulator",
    emulated=CLUSTER,
)
