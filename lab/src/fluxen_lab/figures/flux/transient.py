"""Flux Figure 3: load that rotates over the sites, against buffers of growing size (section 4).

Every site in turn loses most of its processor for half a second. Exchange has the same memory as Flux, but divided
among its connections beforehand.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fluxen.policies import Static
from fluxen.sim.cluster import Cluster
from fluxen.sim.load import CpuLoad
from fluxen.sim.simulator import Scenario
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import draw, simulate

__all__ = ["FIGURE"]

KILOBYTES = (0, 16, 32, 64, 128, 256, 512)


def run(options: RunOptions) -> list[Row]:
    sites = int(options.params.get("sites", 32))
    sizes = options.params.get("kilobytes", KILOBYTES)
    base = Cluster(sites=sites)
    rotating = tuple(CpuLoad(sites=(i,), start=0.5 * i, end=0.5 * (i + 1)) for i in range(sites))
    quiet = Scenario(
        cluster=replace(base, buffer_tuples=0), seconds=0.5 * sites, step=4e-3, report=0.012, seed=options.seed
    )
    unloaded = simulate(options, "the unloaded cluster", quiet, Static()).mean
    rows: list[Row] = []
    for kilobytes in sizes:
        tuples = kilobytes * 1024 / base.tuple_bytes  # per producer
        exchange = replace(base, buffer_tuples=0, connection_tuples=base.connection_tuples + tuples / sites)
        row: Row = {"buffer_kb": kilobytes, "unloaded": unloaded}
        for name, cluster in (("exchange", exchange), ("flux", replace(base, buffer_tuples=tuples))):
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


def claims(rows: list[Row]) -> list[Claim]:
    none = rows[0]["flux"] / rows[0]["unloaded"]
    ahead = [row["flux"] / row["exchange"] for row in rows[1:]]
    most = rows[-1]["flux"] / rows[-1]["unloaded"]
    return [
        Claim(
            claim="without a buffer the stage falls to about half of the unloaded throughput",
            holds=0.4 <= none <= 0.6,
            measured=round(none, 3),
            paper="about half",
        ),
        Claim(
            claim="with equal memory Flux is at least as fast as Exchange, and clearly faster in between",
            holds=min(ahead) >= 0.98 and max(ahead) >= 1.3,
            measured={"min": round(min(ahead), 3), "max": round(max(ahead), 3)},
            paper="Flux quickly beats Exchange",
        ),
        Claim(
            claim="with a large buffer Flux approaches the unloaded throughput",
            holds=most >= 0.93,
            measured=round(most, 3),
            paper="approaches the unloaded case",
        ),
    ]


FIGURE = Figure(
    name="flux/3", title="Transient skew: buffer size against throughput", run=run, plot=plot, claims=claims
)
