"""Flux Figures 9 and 10: one site's memory is halved (section 6.2). Both figures show the same runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fluxen.policies import FluxMemory, Static
from fluxen.sim.cluster import Cluster
from fluxen.sim.load import MemoryLoad
from fluxen.sim.simulator import Scenario
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import PAPER, draw, simulate, steady

__all__ = ["LATENCY", "MEMORY_CLUSTER", "THROUGHPUT"]

START = 5.0
MEMORY_CLUSTER = Cluster(groups_per_site=128, group_bytes=6e6, memory=1e9)


def run(options: RunOptions) -> list[Row]:
    seconds = float(options.params.get("seconds", 100.0))
    quiet = Scenario(cluster=MEMORY_CLUSTER, seconds=seconds, step=5e-3, seed=options.seed)
    pressed = replace(quiet, loads=(MemoryLoad(sites=(0,), at=START, memory=512e6),))
    unloaded = simulate(options, "ample memory", replace(quiet, seconds=min(seconds, 20.0)), Static())
    static = simulate(options, "static", pressed, Static())
    moved = simulate(options, "memory policy", pressed, FluxMemory(min_collection=0.1, **PAPER))
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


def throughput_claims(rows: list[Row]) -> list[Claim]:
    unloaded = rows[0]["unloaded"]
    stall = min(row["memory"] for row in rows) / unloaded
    static = steady(rows, "static", 15) / unloaded
    memory = steady(rows, "memory", 15) / unloaded
    back = next((row["second"] for row in rows if row["second"] > 20 and row["memory"] > 0.95 * unloaded), None)
    return [
        Claim(
            claim="while the site writes a quarter of a gigabyte out, the stage all but stops",
            holds=stall <= 0.1,
            measured=round(stall, 3),
            paper="grinds to a halt",
        ),
        Claim(claim="static stays slow", holds=static <= 0.75, measured=round(static, 3), paper="a much reduced rate"),
        Claim(
            claim="the memory policy recovers the unloaded throughput",
            holds=memory >= 0.95,
            measured={"of_unloaded": round(memory, 3), "recovered_at_s": back},
            paper="reaches the unloaded case",
        ),
    ]


def latency_claims(rows: list[Row]) -> list[Claim]:
    resident = rows[0]["unloaded_latency_s"]
    static = steady(rows, "static_latency_s", 15) / resident
    memory = steady(rows, "memory_latency_s", 15) / resident
    return [
        Claim(
            claim="static's latency rises by orders of magnitude",
            holds=static >= 100,
            measured=round(static),
            paper="several orders of magnitude",
        ),
        Claim(
            claim="the memory policy returns to the in-memory latency",
            holds=memory <= 1.1,
            measured=round(memory, 3),
            paper="returns to the in-memory latency",
        ),
    ]


THROUGHPUT = Figure(
    name="flux/9", title="Throughput during memory balancing", run=run, plot=plot_throughput, claims=throughput_claims
)
LATENCY = Figure(
    name="flux/10", title="Average latency during memory balancing", run=run, plot=plot_latency, claims=latency_claims
)
