"""Flux Figure 3 on Spark: load that rotates over eight sites, against skew buffers of growing size (section 4).

The simulated figure with the paper's 32 sites is in `fluxen_lab.figures.flux.transient`. There a site is slow for half
a second; here it is slow for about two micro-batches, because what passes within one of them slows nobody else down.
"""

from __future__ import annotations

from functools import partial

from fluxen.policies import Static
from fluxen.sim.load import PERTURBED
from fluxen_lab.datagen.flux import uniform
from fluxen_lab.emulate.paced import Rotating
from fluxen_lab.figures.claim import Claim, Numbers, above, at_least, at_most, between, exactly
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import NO_LOAD, draw
from fluxen_lab.figures.flux.on_spark import SITES, UNCOUNTED, WAITING, Measured, stage

__all__ = ["FIGURE"]

KILOBYTES = (0, 16, 48, 128)
SLOW_SECONDS = 3.0
"""How long each site is slow in its turn."""
HEADROOM = 1.15
"""Time budget of a site, in units of what its rows take without load."""
_SECONDS_PER_ROW = 1e-3


def run(options: RunOptions) -> list[Row]:
    count = int(options.params.get("batches", 20))
    size = int(options.params.get("rows", 8_000))
    batches = uniform(count, size, options.seed)
    load = Rotating(sites=SITES, slowdown=1 / options.params.get("left", PERTURBED), seconds=SLOW_SECONDS)
    rows: list[Row] = []
    with stage(options) as spark:
        quiet = spark.run("no load", batches[: count // 2], Static())
        budget = f"{round(1000 * HEADROOM * _SECONDS_PER_ROW * size / SITES)} milliseconds"
        for kilobytes in options.params.get("kilobytes", KILOBYTES):
            buffered = kilobytes and options.params.get("buffer", True)
            limits = {"time_budget": budget, "skew_buffer": kilobytes << 10} if buffered else {}
            loaded = spark.run(f"a buffer of {kilobytes} KB", batches, Static(), load, **limits)
            rows.append(
                {
                    "buffer_kb": kilobytes,
                    "unloaded": _rate(quiet),
                    "rate": _rate(loaded),
                    "unloaded_slowest_s": max(quiet.busy[1:]),
                    "slowest_s": max(loaded.busy),
                    "most_waiting": max(sum(site["waiting_rows"] for site in each) for each in loaded.sites),
                    "latency_s": sum(loaded.latency) / len(loaded.latency),
                    "missing": count * size - loaded.results,
                }
            )
    return rows


def _rate(measured: Measured) -> float:
    """Rows over the time the slowest site was busy, the batches after the last rows included."""
    return sum(measured.rows) / sum(measured.busy)


plot = partial(
    draw,
    x="buffer_kb",
    lines={"unloaded": "no load", "rate": "load rotating over the sites"},
    title=f"Each of {SITES} sites slow for {SLOW_SECONDS:g} s in turn, on Spark",
    xlabel="skew buffer per site (KB)",
    ylabel="rows/s",
)


def numbers(rows: list[Row]) -> Numbers:
    slowest = [row["slowest_s"] / row["unloaded_slowest_s"] for row in rows]
    return {
        "without": rows[0]["rate"] / rows[0]["unloaded"],
        "with_most": rows[-1]["rate"] / rows[-1]["unloaded"],
        "slowest_without": slowest[0],
        "slowest_with_most": slowest[-1],
        "missing": max(abs(row["missing"]) for row in rows),
        "most_waiting": rows[-1]["most_waiting"],
    }


NO_BUFFER = "no skew buffer"
FIGURE = Figure(
    name="flux/3-spark",
    title="Transient skew: buffer size against throughput, on Spark",
    run=run,
    plot=plot,
    by=("buffer_kb",),
    numbers=numbers,
    claims=(
        Claim(
            claim="without a buffer the stage falls to about half of the unloaded throughput",
            paper="about half",
            bands={"without": between(0.4, 0.65)},
            mutation=NO_LOAD,
        ),
        Claim(
            claim="with a large buffer it approaches the unloaded throughput",
            paper="approaches the unloaded case",
            bands={"with_most": at_least(0.8)},
            mutation=NO_BUFFER,
        ),
        Claim(
            claim="the slowest batch is hardly longer than one without load",
            paper="a slow site does not stall the others",
            bands={"slowest_with_most": at_most(1.3), "slowest_without": at_least(1.7)},
            mutation=NO_BUFFER,
        ),
        Claim(
            claim="every row has its result, whether it waited or not",
            paper="no row is lost",
            bands={"missing": exactly(0), "most_waiting": above(0)},
            mutation=UNCOUNTED,
            each_seed=True,
        ),
    ),
    mutations={NO_LOAD: {"left": 1.0}, NO_BUFFER: {"buffer": False}, UNCOUNTED: {"uncounted": 1}},
    seeds=3,
    place="Spark",
    emulated=WAITING,
)
