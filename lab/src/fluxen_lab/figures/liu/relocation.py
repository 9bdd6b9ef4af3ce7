"""Liu-07 Figures 9, 10 and 11 and Liu-05 Figure 15: what relocation costs and what it is good for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from fluxen.policies import LazyDisk, LocalDisk, Random, Static
from fluxen.policies.base import Policy
from fluxen_lab.datagen.liu import Workload, alternating
from fluxen_lab.figures.claim import Claim, Numbers, above, at_least, at_most, below, exactly
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.liu.plots import over_time
from fluxen_lab.figures.liu.trial import HOUR, KEY, compared, memory_of, sized, told, trial

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


THRESHOLD_VALUES = (0.5, 0.7, 0.9)
GAP_VALUES = (15.0, 30.0, 45.0)


def _policy(options: RunOptions, **settings: float) -> Policy:
    """Relocation as the paper has it, or what a mutation makes of it."""
    changed = options.params.get("relocation", {})
    return options.policy("relocation", LazyDisk(**{**settings, **changed}, guarded=False))


def run_thresholds(options: RunOptions) -> list[Row]:
    return _cheap(
        options, ALTERNATING, {f"{value:.0%}": {"threshold": value, "gap": 45.0} for value in THRESHOLD_VALUES}
    )


def run_gaps(options: RunOptions) -> list[Row]:
    return _cheap(options, LONGER, {f"every {value:.0f} s": {"threshold": 0.9, "gap": value} for value in GAP_VALUES})


def _cheap(options: RunOptions, workload: Workload, runs: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """Without a limit on memory nobody spills; a mutation may set one for the runs that relocate."""
    workload = sized(options, workload)
    memory = memory_of(options, workload, None)
    rows = trial(options, "no relocation", workload, sites=2, policy=Static()).rows("all-mem")
    for label, settings in runs.items():
        made = trial(options, label, workload, sites=2, memory=memory, policy=_policy(options, **settings))
        rows += made.rows(label)
    return rows


def _cost(rows: list[Row]) -> Numbers:
    results, busy = compared(rows, "results"), compared(rows, "busy_seconds")
    moves = [count for label, count in compared(rows, "relocations").items() if label != "all-mem"]
    return {
        "results_apart": max(results.values()) - min(results.values()),
        "most_busy_over_all_mem": max(seconds / busy["all-mem"] for seconds in busy.values()),
        "least_more": min(later - sooner for sooner, later in pairwise(moves)),
        "least_fewer": min(sooner - later for sooner, later in pairwise(moves)),
        "last_less_first": moves[-1] - moves[0],
        **told(rows, "relocations", "busy_seconds"),
    }


def run_balance(options: RunOptions) -> list[Row]:
    workload = sized(options, ALTERNATING)
    rows = trial(options, "no relocation", workload, sites=2, policy=Static()).rows("no-relocation")
    policy = _policy(options, threshold=0.9, gap=45.0)
    return rows + trial(options, "with relocation", workload, sites=2, policy=policy).rows("with-relocation")


def _balance(rows: list[Row]) -> Numbers:
    def mean(label: str) -> float:
        # the first batch comes before anybody has seen anything
        mine = [row for row in rows if row["run"] == label][2:]
        return float(np.mean([row["least_memory"] / row["most_memory"] for row in mine]))

    without, with_ = mean("no-relocation"), mean("with-relocation")
    return {"with": with_, "without": without, "more": with_ - without}


def run_versus_spill(options: RunOptions) -> list[Row]:
    workload = sized(options, SKEWED)
    memory = int(0.45 * workload.state_bytes)
    policies = {
        "no-relocation": LocalDisk(unspill_below=0.0),
        "with-relocation": _policy(options, threshold=0.8, gap=45.0),
    }
    rows: list[Row] = []
    for label, policy in policies.items():
        made = trial(options, label, workload, sites=3, memory=memory, policy=policy, placement=(0.6, 0.2, 0.2))
        rows += made.rows(label)
    return rows


def _versus(rows: list[Row]) -> Numbers:
    results, spills = compared(rows, "results"), compared(rows, "spills")
    return {
        "spills_with": spills["with-relocation"],
        "spills_without": spills["no-relocation"],
        "results_without_over_with": results["no-relocation"] / results["with-relocation"],
    }


SHORT_OF_MEMORY = "the sites have memory for a tenth of the state"
RESTLESS = "half of the groups move at random after every batch"
SAME_THRESHOLD = "every threshold is 50 %"
SAME_GAP = "every gap is 45 s"
STATIC = "relocation replaced by Static"
NO_RELOCATION = "relocation replaced by spilling alone"
_CHEAP = (
    Claim(
        claim="every run gives the results of the all-memory run",
        paper="nearly the same throughput",
        bands={"results_apart": exactly(0)},
        mutation=SHORT_OF_MEMORY,
        each_seed=True,
    ),
    Claim(
        claim=f"relocating costs the sites next to nothing (at most {NOISE:g} times the work)",
        paper="throughput close to all-memory",
        bands={"most_busy_over_all_mem": at_most(NOISE)},
        mutation=RESTLESS,
    ),
)
_CHEAP_MUTATIONS: dict[str, dict[str, Any]] = {
    SHORT_OF_MEMORY: {"memory_share": 0.1},
    RESTLESS: {"policies": {"relocation": partial(Random, moves=PARTITIONS // 2)}},
}
THRESHOLDS = Figure(
    name="liu07/9",
    title="Relocation thresholds under alternating load",
    run=run_thresholds,
    plot=over_time("Output by relocation threshold", "results", ylabel="results"),
    by=KEY,
    numbers=_cost,
    claims=(
        *_CHEAP,
        Claim(
            claim="a higher threshold relocates more often",
            paper="2 at 50 %, 24 at 90 %",
            bands={"least_more": at_least(0), "last_less_first": above(0)},
            mutation=SAME_THRESHOLD,
            shown=tuple(f"relocations, {value:.0%}" for value in THRESHOLD_VALUES),
        ),
    ),
    mutations={**_CHEAP_MUTATIONS, SAME_THRESHOLD: {"relocation": {"threshold": 0.5}}},
    seeds=3,
    place="Spark",
    emulated=HOUR,
)
GAPS = Figure(
    name="liu05/15",
    title="Time between relocations under alternating load",
    run=run_gaps,
    plot=over_time("Output by minimum time between relocations", "results", ylabel="results"),
    by=KEY,
    numbers=_cost,
    claims=(
        *_CHEAP,
        Claim(
            claim="a shorter gap relocates more often",
            paper="31, 27 and 24 for 15, 30 and 45 s",
            bands={"least_fewer": at_least(0), "last_less_first": below(0)},
            mutation=SAME_GAP,
            shown=tuple(f"relocations, every {value:.0f} s" for value in GAP_VALUES),
        ),
    ),
    mutations={**_CHEAP_MUTATIONS, SAME_GAP: {"relocation": {"gap": 45.0}}},
    seeds=3,
    place="Spark",
    emulated=HOUR,
)
BALANCE = Figure(
    name="liu07/10",
    title="Memory of two sites under alternating load",
    run=run_balance,
    plot=over_time("Memory under alternating load", "most_memory", "least_memory", ylabel="MB", scale=1e6),
    by=KEY,
    numbers=_balance,
    claims=(
        Claim(
            claim="under load that alternates between two sites relocation keeps their memory equal (least over most)",
            paper="largely balanced with relocation",
            bands={"with": at_least(0.85), "more": above(0.1)},
            mutation=STATIC,
            shown=("without",),
        ),
    ),
    mutations={STATIC: {"policies": {"relocation": Static}}},
    seeds=3,
    place="Spark",
    emulated=HOUR,
)
VERSUS_SPILL = Figure(
    name="liu07/11",
    title="Relocation against spill: 60/20/20 placement",
    run=run_versus_spill,
    plot=over_time("60/20/20 placement", "results", ylabel="results"),
    by=KEY,
    numbers=_versus,
    claims=(
        Claim(
            claim="with relocation everything stays in memory",
            paper="all states kept in main memory",
            bands={"spills_with": exactly(0), "spills_without": above(0)},
            mutation=NO_RELOCATION,
            each_seed=True,
        ),
        Claim(
            claim="without it output drops once the big site spills",
            paper="drops after 40 minutes",
            bands={"results_without_over_with": at_most(0.9)},
            mutation=NO_RELOCATION,
        ),
    ),
    mutations={NO_RELOCATION: {"policies": {"relocation": partial(LocalDisk, unspill_below=0.0)}}},
    seeds=3,
    place="Spark",
    emulated=HOUR,
)
