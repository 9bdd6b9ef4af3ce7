"""Flux Figure 3: load that rotates over the sites, against buffers of growing size (section 4).

Every site in turn loses most of its processor for half a second. Exchange has the same memory as Flux, but divided
among its connections beforehand.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fluxen.policies import Static
from fluxen.sim.cluster import Cluster
from fluxen.sim.load import PERTURBED, CpuLoad
from fluxen.sim.simulator import Scenario
from fluxen_lab.figures.claim import Claim, Numbers, at_least, between
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import CLUSTER, NO_LOAD, draw, simulate

__all__ = ["FIGURE"]

KILOBYTES = (0, 16, 32, 64, 128, 256, 512)


def run(options: RunOptions) -> list[Row]:
    sites = int(options.params.get("sites", 32))
    sizes = options.params.get("kilobytes", KILOBYTES)
    base = Cluster(sites=sites)
    left = options.params.get("left", PERTURBED)
    rotating = tuple(CpuLoad(sites=(i,), start=0.5 * i, end=0.5 * (i + 1), share=left) for i in range(sites))
    quiet = Scenario(
        cluster=replace(base, buffer_tuples=0), seconds=0.5 * sites, step=4e-3, report=0.012, seed=options.seed
    )
    unloaded = simulate(options, "the unloaded cluster", quiet, Static()).mean
    rows: list[Row] = []
    for kilobytes in sizes:
        tuples = kilobytes * 1024 / base.tuple_bytes  # per producer
        exchange = replace(base, buffer_tuples=0, connection_tuples=base.connection_tuples + tuples / sites)
        row: Row = {"buffer_kb": kilobytes, "unloaded": unloaded}
        ours = {"divided": exchange, "nothing": replace(base, buffer_tuples=0)}
        flux = ours.get(options.params.get("flux", ""), replace(base, buffer_tuples=tuples))
        for name, cluster in (("exchange", exchange), ("flux", flux)):
            scenario = replace(quiet, cluster=cluster, loads=rotating)
            row[name] = simulate(options, f"{name}, {kilobytes} KB", scenario, Static()).mean
        rows.append(row)
    return rows


plot = partial(
    draw,
    x="buffer_kb",
    lines={"unloaded": "no load", "flux": "Flux: one buffer", "exchange": "Exchange: longer queues"},
    title="Load rotating over the sites, 0.5 s each",
    xlabel="buffer per producer (KB)",
    ylabel="tuples/s",
)


def numbers(rows: list[Row]) -> Numbers:
    ahead = [row["flux"] / row["exchange"] for row in rows[1:]]
    return {
        "without": rows[0]["flux"] / rows[0]["unloaded"],
        "least_over_exchange": min(ahead),
        "most_over_exchange": max(ahead),
        "with_most": rows[-1]["flux"] / rows[-1]["unloaded"],
    }


DIVIDED = "the buffer divided among the connections, as Exchange's memory is"
NO_BUFFER = "a buffer that holds nothing"
FIGURE = Figure(
    name="flux/3",
    title="Transient skew: buffer size against throughput",
    run=run,
    plot=plot,
    by=("buffer_kb",),
    numbers=numbers,
    claims=(
        Claim(
            claim="without a buffer the stage falls to about half of the unloaded throughput",
            paper="about half",
            bands={"without": between(0.4, 0.6)},
            mutation=NO_LOAD,
        ),
        Claim(
            claim="with equal memory Flux is at least as fast as Exchange, and clearly faster in between",
            paper="Flux quickly beats Exchange",
            bands={"least_over_exchange": at_least(0.98), "most_over_exchange": at_least(1.3)},
            mutation=DIVIDED,
        ),
        Claim(
            claim="with a large buffer Flux approaches the unloaded throughput",
            paper="approaches the unloaded case",
            bands={"with_most": between(0.93, 1.01)},
            mutation=NO_BUFFER,
        ),
    ),
    mutations={NO_LOAD: {"left": 1.0}, DIVIDED: {"flux": "divided"}, NO_BUFFER: {"flux": "nothing"}},
    seeds=3,
    place="simulator",
    emulated=CLUSTER,
)
