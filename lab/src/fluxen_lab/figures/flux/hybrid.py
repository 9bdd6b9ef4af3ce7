"""Flux section 6.3: processor and memory load at once, under each policy. The paper states the result only."""

from __future__ import annotations

from functools import partial

from fluxen.policies import FluxHybrid, FluxLoad, FluxMemory, Static
from fluxen.policies.base import Policy
from fluxen.sim.load import CpuLoad, MemoryLoad
from fluxen.sim.simulator import Scenario
from fluxen_lab.figures.claim import Claim, Numbers, at_least, at_most
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import CLUSTER, PAPER, draw, simulate, steady
from fluxen_lab.figures.flux.memory import MEMORY_CLUSTER

__all__ = ["FIGURE"]

START = 5.0
LAST = 25


def run(options: RunOptions) -> list[Row]:
    scenario = Scenario(
        cluster=MEMORY_CLUSTER,
        seconds=float(options.params.get("seconds", 200.0)),
        step=8e-3,
        report=0.016,
        loads=(MemoryLoad(sites=(0,), at=START, memory=512e6), CpuLoad(sites=(1, 2), start=START)),
        seed=options.seed,
    )
    policies: dict[str, Policy] = {
        "static": Static(),
        "load": FluxLoad(min_collection=0.1, **PAPER),
        "memory": FluxMemory(min_collection=0.1, **PAPER),
        "hybrid": options.policy("hybrid", FluxHybrid(min_collection=0.1, **PAPER)),
    }
    results = {name: simulate(options, name, scenario, policy) for name, policy in policies.items()}
    rows: list[Row] = []
    for i, second in enumerate(results["static"].seconds):
        row: Row = {"second": float(second)}
        for name, result in results.items():
            row[name] = float(result.throughput[i])
            row[f"{name}_latency_s"] = float(result.latency[i])
        rows.append(row)
    return rows


plot = partial(
    draw,
    x="second",
    lines={"hybrid": "hybrid", "load": "load policy", "memory": "memory policy", "static": "static"},
    title="One site short of memory, two short of processor",
    xlabel="second",
    ylabel="tuples/s",
)


def numbers(rows: list[Row]) -> Numbers:
    names = ("static", "load", "memory", "hybrid")
    rate = {name: steady(rows, name, LAST) for name in names}
    latency = {name: steady(rows, f"{name}_latency_s", LAST) for name in names}
    return {
        "rate_of_better": rate["hybrid"] / max(rate["load"], rate["memory"]),
        "latency_of_better": latency["hybrid"] / min(latency["load"], latency["memory"]),
        **{f"{name}_rate": rate[name] for name in names},
        **{f"{name}_latency_s": latency[name] for name in names},
    }


NO_LOAD_POLICY = "the hybrid replaced by the memory policy"
NO_MEMORY_POLICY = "the hybrid replaced by the load policy"
FIGURE = Figure(
    name="flux/hybrid",
    title="Mixed processor and memory load (section 6.3)",
    run=run,
    plot=plot,
    by=("second",),
    numbers=numbers,
    claims=(
        Claim(
            claim="in the end hybrid's throughput is at least that of either policy (within 3 %)",
            paper="outperforms the other policies",
            bands={"rate_of_better": at_least(0.97)},
            shown=("static_rate", "load_rate", "memory_rate", "hybrid_rate"),
            mutation=NO_LOAD_POLICY,
        ),
        Claim(
            claim="in the end hybrid's latency is at most that of either policy (within 1 %)",
            paper="outperforms the other policies",
            bands={"latency_of_better": at_most(1.01)},
            shown=("static_latency_s", "load_latency_s", "memory_latency_s", "hybrid_latency_s"),
            mutation=NO_MEMORY_POLICY,
        ),
    ),
    mutations={
        NO_LOAD_POLICY: {"policies": {"hybrid": partial(FluxMemory, min_collection=0.1, **PAPER)}},
        NO_MEMORY_POLICY: {"policies": {"hybrid": partial(FluxLoad, min_collection=0.1, **PAPER)}},
    },
    seeds=3,
    place="simulator",
    emulated=CLUSTER,
)
