"""Liu-05 Figures 6 and 7: a small query on more sites than it needs, a large one on as many as it needs."""

from __future__ import annotations

from functools import partial

from fluxen.policies import LocalDisk, Random, Static
from fluxen.policies.base import Policy
from fluxen_lab.datagen.liu import Workload
from fluxen_lab.figures.claim import Claim, Numbers, above, at_least, at_most, exactly
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.liu.plots import over_time
from fluxen_lab.figures.liu.trial import HOUR, KEY, compared, memory_of, sized, told, trial

__all__ = ["LARGE", "SMALL"]

PARTITIONS = 60
SMALL_QUERY = Workload(partitions=PARTITIONS, batches=12, rows=12_000, seconds=200.0, tuple_range=120_000)
"""Small as against memory. With fewer rows a site's time is what any batch costs, whatever the number of sites."""
LARGE_QUERY = Workload(
    partitions=PARTITIONS, batches=16, rows=1200, seconds=150.0, tuple_range=8000, join_rates=(2.0,) * PARTITIONS
)
NOISE = 1.5


def run_small(options: RunOptions) -> list[Row]:
    workload = sized(options, SMALL_QUERY)
    memory = memory_of(options, workload, None)
    rows: list[Row] = []
    for sites in (1, 2, 3, 5):
        policy: Policy = Static() if memory is None else LocalDisk(unspill_below=0.0)
        if sites > 1:
            policy = options.policy("several", policy)
        made = trial(options, f"{sites} sites", workload, sites=sites, memory=memory, policy=policy)
        rows += made.rows(f"M{sites}")
    return rows


def _small(rows: list[Row]) -> Numbers:
    results, busy = compared(rows, "results"), compared(rows, "busy_seconds")
    return {
        "results_apart": max(results.values()) - min(results.values()),
        "most_work_over_one_site": max(busy.values()) / busy["M1"],
        **{f"seconds_per_site, {label}": seconds / int(label[1:]) for label, seconds in busy.items()},
    }


def run_large(options: RunOptions) -> list[Row]:
    workload = sized(options, LARGE_QUERY)
    memory = memory_of(options, workload, 0.3)
    rows: list[Row] = []
    for sites in (1, 2, 3, 4, 5):
        policy = LocalDisk(unspill_below=0.0)
        rows += trial(options, f"{sites} sites", workload, sites=sites, memory=memory, policy=policy).rows(f"M{sites}")
    return rows


def _large(rows: list[Row]) -> Numbers:
    results, spills = compared(rows, "results"), compared(rows, "spills")
    return {
        "two_over_one": results["M2"] / results["M1"],
        "three_over_two": results["M3"] / results["M2"],
        "four_over_three": results["M4"] / results["M3"],
        "spills_of_four": spills["M4"],
        "spills_of_five": spills["M5"],
        "five_less_four": results["M5"] - results["M4"],
        **told(rows, "results", "spills"),
    }


SHORT_OF_MEMORY = "the sites have memory for a fifth of the state"
RESTLESS = "half of the groups move at random after every batch"
AMPLE = "one site can hold it"
TOO_SMALL = "five sites cannot hold it"
RUNS = tuple(f"M{sites}" for sites in (1, 2, 3, 4, 5))
SMALL = Figure(
    name="liu05/6",
    title="Partitioning a small query",
    run=run_small,
    plot=over_time("A small query on one to five sites", "results", ylabel="results"),
    by=KEY,
    numbers=_small,
    claims=(
        Claim(
            claim="more sites than needed change nothing about the output",
            paper="negligible effect",
            bands={"results_apart": exactly(0)},
            mutation=SHORT_OF_MEMORY,
            each_seed=True,
        ),
        Claim(
            claim=f"and the sites together hardly work longer for it (at most {NOISE:g} times)",
            paper="a slight drop at five",
            bands={"most_work_over_one_site": at_most(NOISE)},
            mutation=RESTLESS,
            shown=tuple(f"seconds_per_site, M{sites}" for sites in (1, 2, 3, 5)),
        ),
    ),
    mutations={
        SHORT_OF_MEMORY: {"memory_share": 0.2},
        RESTLESS: {"policies": {"several": partial(Random, moves=PARTITIONS // 2)}},
    },
    seeds=3,
    place="Spark",
    emulated=HOUR,
)
LARGE = Figure(
    name="liu05/7",
    title="Partitioning a large query",
    run=run_large,
    plot=over_time("A query that one site cannot hold", "results", ylabel="results"),
    by=KEY,
    numbers=_large,
    claims=(
        Claim(
            claim="what one site cannot hold runs better on two and three",
            paper="one machine overflows after 25 minutes, two after 35",
            bands={"two_over_one": above(1), "three_over_two": above(1), "four_over_three": at_least(1)},
            mutation=AMPLE,
            shown=tuple(f"results, {label}" for label in RUNS),
        ),
        Claim(
            claim="once the sites hold it, more of them do not help",
            paper="M4 and M5 have almost the same throughput",
            bands={"spills_of_four": exactly(0), "spills_of_five": exactly(0), "five_less_four": exactly(0)},
            mutation=TOO_SMALL,
            each_seed=True,
        ),
    ),
    mutations={AMPLE: {"memory_share": 2.0}, TOO_SMALL: {"memory_share": 0.1}},
    seeds=3,
    place="Spark",
    emulated=HOUR,
)
