"""Liu-07 Figures 9, 10 and 11 and Liu-05 Figure 15: what relocation costs and what it is good for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fluxen.policies import LazyDisk, LocalDisk, Static
from fluxen_lab.datagen.liu import Workload, alternating
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.liu.plots import over_time
from fluxen_lab.figures.liu.trial import compared, trial

__all__ = ["BALANCE", "GAPS", "THRESHOLDS", "VERSUS_SPILL"]

PARTITIONS = 48
ALTERNATING = Workload(
    partitions=PARTITIONS, batches=20, rows=700, seconds=45.0, tuple_range=6000, weights=alternating(PARTITIONS, 5)
)
LONGER = replace(ALTERNATING, batches=60, rows=500, seconds=15.0, weights=alternating(PARTITIONS, 15))
"""Turns of several gaps each: within a turn shorter than a gap nothing tells one gap from another."""
SKEWED = Workload(partitions=PARTITIONS, batches=20, rows=900, join_rates=(3.0,) * PARTITIONS, tuple_range=6000)
NOISE = 1.5
"""Factor by which the working time of equal runs may differ."""


def _workload(options: RunOptions, workload: Workload) -> Workload:
    return workload.scaled(float(options.params.get("scale", 1.0)))


def run_thresholds(options: RunOptions) -> list[Row]:
    workload = _workload(options, ALTERNATING)
    rows = trial(options, "no relocation", workload, sites=2, policy=Static()).rows("all-mem")
    for threshold in (0.5, 0.7, 0.9):
        label = f"{threshold:.0%}"
        policy = LazyDisk(threshold=threshold, gap=45.0, guarded=False)
        rows += trial(options, label, workload, sites=2, policy=policy).rows(label)
    return rows


def run_gaps(options: RunOptions) -> list[Row]:
    workload = _workload(options, LONGER)
    rows = trial(options, "no relocation", workload, sites=2, policy=Static()).rows("all-mem")
    for gap in (15.0, 30.0, 45.0):
        label = f"every {gap:.0f} s"
        rows += trial(options, label, workload, sites=2, policy=LazyDisk(threshold=0.9, gap=gap, guarded=False)).rows(
            label
        )
    return rows


def cheap_claims(rows: list[Row]) -> list[Claim]:
    results, busy = compared(rows, "results"), compared(rows, "busy_seconds")
    slowest = max(seconds / busy["all-mem"] for seconds in busy.values())
    return [
        Claim(
            claim="every run gives the results of the all-memory run",
            holds=len(set(results.values())) == 1,
            measured=results,
            paper="nearly the same throughput",
        ),
        Claim(
            claim="relocating costs the sites next to nothing",
            holds=slowest <= NOISE,
            measured={"working_seconds_per_batch": busy, "worst_ratio": round(slowest, 3)},
            paper="throughput close to all-memory",
        ),
    ]


def threshold_claims(rows: list[Row]) -> list[Claim]:
    moves = {label: count for label, count in compared(rows, "relocations").items() if label != "all-mem"}
    counts = list(moves.values())
    return [
        *cheap_claims(rows),
        Claim(
            claim="a higher threshold relocates more often",
            holds=counts == sorted(counts) and counts[0] < counts[-1],
            measured=moves,
            paper="2 at 50 %, 24 at 90 %",
        ),
    ]


def gap_claims(rows: list[Row]) -> list[Claim]:
    moves = {label: count for label, count in compared(rows, "relocations").items() if label != "all-mem"}
    counts = list(moves.values())
    return [
        *cheap_claims(rows),
        Claim(
            claim="a shorter gap relocates at least as often",
            holds=counts == sorted(counts, reverse=True),
            measured=moves,
            paper="31, 27 and 24 for 15, 30 and 45 s",
        ),
    ]


def run_balance(options: RunOptions) -> list[Row]:
    workload = _workload(options, ALTERNATING)
    rows = trial(options, "no relocation", workload, sites=2, policy=Static()).rows("no-relocation")
    return rows + trial(
        options, "with relocation", workload, sites=2, policy=LazyDisk(threshold=0.9, gap=45.0, guarded=False)
    ).rows("with-relocation")


def balance_claims(rows: list[Row]) -> list[Claim]:
    def mean(label: str) -> float:
        # the first batch comes before anybody has seen anything
        mine = [row for row in rows if row["run"] == label][2:]
        return float(np.mean([row["least_memory"] / row["most_memory"] for row in mine]))

    without, with_ = mean("no-relocation"), mean("with-relocation")
    return [
        Claim(
            claim="under load that alternates between two sites relocation keeps their memory equal",
            holds=with_ >= 0.85 and with_ > without + 0.1,
            measured={"least_over_most": {"with": round(with_, 3), "without": round(without, 3)}},
            paper="largely balanced with relocation",
        )
    ]


def run_versus_spill(options: RunOptions) -> list[Row]:
    workload = _workload(options, SKEWED)
    memory = int(0.45 * workload.state_bytes)
    policies = {
        "no-relocation": LocalDisk(unspill_below=0.0),
        "with-relocation": LazyDisk(threshold=0.8, gap=45.0, guarded=False),
    }
    rows: list[Row] = []
    for label, policy in policies.items():
        made = trial(options, label, workload, sites=3, memory=memory, policy=policy, placement=(0.6, 0.2, 0.2))
        rows += made.rows(label)
    return rows


def versus_claims(rows: list[Row]) -> list[Claim]:
    results, spills = compared(rows, "results"), compared(rows, "spills")
    return [
        Claim(
            claim="with relocation everything stays in memory",
            holds=spills["with-relocation"] == 0 and spills["no-relocation"] > 0,
            measured={"spills": spills},
            paper="all states kept in main memory",
        ),
        Claim(
            claim="without it output drops once the big site spills",
            holds=results["no-relocation"] <= 0.9 * results["with-relocation"],
            measured=results,
            paper="drops after 40 minutes",
        ),
    ]


THRESHOLDS = Figure(
    name="liu07/9",
    title="Relocation thresholds under alternating load",
    run=run_thresholds,
    plot=over_time("Output by relocation threshold", "results", ylabel="results"),
    claims=threshold_claims,
)
GAPS = Figure(
    name="liu05/15",
    title="Time between relocations under alternating load",
    run=run_gaps,
    plot=over_time("Output by minimum time between relocations", "results", ylabel="results"),
    claims=gap_claims,
)
BALANCE = Figure(
    name="liu07/10",
    title="Memory of two sites under alternating load",
    run=run_balance,
    plot=over_time("Memory under alternating load", "most_memory", "least_memory", ylabel="MB", scale=1e6),
    claims=balance_claims,
)
VERSUS_SPILL = Figure(
    name="liu07/11",
    title="Relocation against spill: 60/20/20 placement",
    run=run_versus_spill,
    plot=over_time("60/20/20 placement", "results", ylabel="results"),
    claims=versus_claims,
)
