"""Liu-05 Figures 6 and 7: a small query on more sites than it needs, a large one on as many as it needs."""

from __future__ import annotations

from fluxen.policies import LocalDisk, Static
from fluxen_lab.datagen.liu import Workload
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.liu.plots import over_time
from fluxen_lab.figures.liu.trial import compared, trial

__all__ = ["LARGE", "SMALL"]

PARTITIONS = 60
SMALL_QUERY = Workload(partitions=PARTITIONS, batches=12, rows=12_000, seconds=200.0, tuple_range=120_000)
"""Small as against memory. With fewer rows a site's time is what any batch costs, whatever the number of sites."""
LARGE_QUERY = Workload(
    partitions=PARTITIONS, batches=16, rows=1200, seconds=150.0, tuple_range=8000, join_rates=(2.0,) * PARTITIONS
)
NOISE = 1.5


def _workload(options: RunOptions, workload: Workload) -> Workload:
    return workload.scaled(float(options.params.get("scale", 1.0)))


def run_small(options: RunOptions) -> list[Row]:
    workload = _workload(options, SMALL_QUERY)
    rows: list[Row] = []
    for sites in (1, 2, 3, 5):
        rows += trial(options, f"{sites} sites", workload, sites=sites, policy=Static()).rows(f"M{sites}")
    return rows


def small_claims(rows: list[Row]) -> list[Claim]:
    results, busy = compared(rows, "results"), compared(rows, "busy_seconds")
    per_site = {label: round(seconds / int(label[1:]), 4) for label, seconds in busy.items()}
    return [
        Claim(
            claim="more sites than needed change nothing about the output",
            holds=len(set(results.values())) == 1,
            measured=results,
            paper="negligible effect",
        ),
        Claim(
            claim="and no site works longer for it",
            holds=max(per_site.values()) <= NOISE * per_site["M1"],
            measured={"working_seconds_per_site_and_batch": per_site},
            paper="a slight drop at five",
        ),
    ]


def run_large(options: RunOptions) -> list[Row]:
    workload = _workload(options, LARGE_QUERY)
    memory = int(0.3 * workload.state_bytes)
    rows: list[Row] = []
    for sites in (1, 2, 3, 4, 5):
        policy = LocalDisk(unspill_below=0.0)
        rows += trial(options, f"{sites} sites", workload, sites=sites, memory=memory, policy=policy).rows(f"M{sites}")
    return rows


def large_claims(rows: list[Row]) -> list[Claim]:
    results, spills = compared(rows, "results"), compared(rows, "spills")
    return [
        Claim(
            claim="what one site cannot hold runs better on two and three",
            holds=results["M1"] < results["M2"] < results["M3"] <= results["M4"],
            measured=results,
            paper="one machine overflows after 25 minutes, two after 35",
        ),
        Claim(
            claim="once the sites hold it, more of them do not help",
            holds=spills["M4"] == spills["M5"] == 0 and results["M4"] == results["M5"],
            measured={"spills": spills},
            paper="M4 and M5 have almost the same throughput",
        ),
    ]


SMALL = Figure(
    name="liu05/6",
    title="Partitioning a small query",
    run=run_small,
    plot=over_time("A small query on one to five sites", "results", ylabel="results"),
    claims=small_claims,
)
LARGE = Figure(
    name="liu05/7",
    title="Partitioning a large query",
    run=run_large,
    plot=over_time("A query that one site cannot hold", "results", ylabel="results"),
    claims=large_claims,
)
