"""Liu-07 Figures 12, 13 and 14, and a workload that drifts: lazy-disk, active-disk, and our forecast-disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fluxen.arrays import Floats
from fluxen.policies import ActiveDisk, ForecastDisk, LazyDisk, LocalDisk
from fluxen.policies.base import Policy
from fluxen_lab.datagen.liu import Workload, drifting
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.liu.plots import over_time
from fluxen_lab.figures.liu.trial import compared, trial

__all__ = ["ACTIVE_13", "ACTIVE_14", "DRIFT", "LAZY"]

PARTITIONS = 48
THIRD = PARTITIONS // 3
LARGE = Workload(partitions=PARTITIONS, batches=20, rows=900, join_rates=(3.0,) * PARTITIONS, tuple_range=6000)


def _more_at_m1(batch: int) -> Floats:
    """The paper's skewed data: the productive machine's groups get half as many tuples again."""
    return np.where(np.arange(PARTITIONS) < THIRD, 1.5, 1.0)


UNEQUAL = Workload(
    partitions=PARTITIONS,
    batches=30,
    rows=720,
    seconds=120.0,
    join_rates=(4.0,) * THIRD + (1.0,) * (PARTITIONS - THIRD),
    weights=_more_at_m1,
)
MORE_UNEQUAL = replace(UNEQUAL, tuple_range=9000, ranges=(0.5,) * THIRD + (1.5,) * (PARTITIONS - THIRD))
DRIFTING = Workload(
    partitions=PARTITIONS, batches=30, rows=720, seconds=120.0, tuple_range=3000, active=drifting(PARTITIONS, 6)
)


def _workload(options: RunOptions, workload: Workload) -> Workload:
    return workload.scaled(float(options.params.get("scale", 1.0)))


def run_lazy(options: RunOptions) -> list[Row]:
    """2/3, 1/6, 1/6: first with memory for three quarters of the state, then with memory for a third."""
    workload = _workload(options, LARGE)
    rows: list[Row] = []
    for name, share in (("", 0.25), (" (extreme)", 0.11)):
        policies: dict[str, Policy] = {
            "no-relocation": LocalDisk(unspill_below=0.0),
            "lazy-disk": LazyDisk(threshold=0.8, gap=45.0, guarded=False),
        }
        for label, policy in policies.items():
            memory = int(share * workload.state_bytes)
            placement = (2 / 3, 1 / 6, 1 / 6)
            made = trial(options, label + name, workload, sites=3, memory=memory, policy=policy, placement=placement)
            rows += made.rows(label + name)
    return rows


def lazy_claims(rows: list[Row]) -> list[Claim]:
    results, seconds = compared(rows, "results"), compared(rows, "cleanup_seconds")
    faster = {
        name: round(seconds[f"no-relocation{name}"] / max(seconds[f"lazy-disk{name}"], 1e-9), 2)
        for name in ("", " (extreme)")
    }
    return [
        Claim(
            claim="lazy-disk beats no-relocation beyond aggregate memory",
            holds=results["lazy-disk"] >= 1.1 * results["no-relocation"],
            measured=results,
            paper="higher overall throughput",
        ),
        Claim(
            claim="its cleanup, spread over the sites, is much faster",
            # what an even spread alone can give is 2/3 over 1/3; the rest is that less is owed
            holds=faster[""] >= 2 and faster[" (extreme)"] >= 1.1,
            measured={"slowest_site_seconds": seconds, "times_faster": list(faster.values())},
            paper="1600 s against 400 s in the extreme case",
        ),
    ]


def _compare(workload: Workload) -> Callable[[RunOptions], list[Row]]:
    def run(options: RunOptions) -> list[Row]:
        scaled = _workload(options, workload)
        policies: dict[str, Policy] = {
            "lazy-disk": LazyDisk(threshold=0.8, gap=45.0, guarded=False),
            "active-disk": ActiveDisk(threshold=0.8, gap=45.0, productivity=2.0, guarded=False),
            "forecast-disk": ForecastDisk(),
        }
        rows: list[Row] = []
        for label, policy in policies.items():
            memory = scaled.state_bytes // 6
            rows += trial(options, label, scaled, sites=3, memory=memory, policy=policy).rows(label)
        return rows

    return run


def _claims(ratio: float, paper: str) -> Callable[[list[Row]], list[Claim]]:
    def claims(rows: list[Row]) -> list[Claim]:
        results = compared(rows, "results")
        gained = results["active-disk"] / results["lazy-disk"]
        return [
            Claim(
                claim="active-disk beats lazy-disk when sites differ in productivity",
                holds=gained >= ratio,
                measured={**results, "ratio": round(gained, 3)},
                paper=paper,
            ),
            _ours(rows),
        ]

    return claims


def _ours(rows: list[Row]) -> Claim:
    results = compared(rows, "results")
    best = max(results["lazy-disk"], results["active-disk"])
    return Claim(
        claim="forecast-disk beats both",
        holds=results["forecast-disk"] > best,
        measured={**results, "ratio": round(results["forecast-disk"] / best, 3)},
        paper="not in the paper: ours",
    )


LAZY = Figure(
    name="liu07/12",
    title="Lazy-disk against no relocation: 2/3, 1/6, 1/6 placement",
    run=run_lazy,
    plot=over_time("2/3, 1/6, 1/6 placement", "results", ylabel="results"),
    claims=lazy_claims,
)
ACTIVE_13 = Figure(
    name="liu07/13",
    title="Lazy-disk against active-disk: join rates 4 and 1",
    run=_compare(UNEQUAL),
    plot=over_time("Join rate 4 at one site, 1 at the others", "results", ylabel="results"),
    claims=_claims(1.05, "active-disk ahead in the end"),
)
ACTIVE_14 = Figure(
    name="liu07/14",
    title="Lazy-disk against active-disk: tuple ranges 15K and 45K",
    run=_compare(MORE_UNEQUAL),
    plot=over_time("Join rate 4, range 15K at one site, 1 and 45K at the others", "results", ylabel="results"),
    claims=_claims(1.1, "a major improvement, more than in Figure 13"),
)
DRIFT = Figure(
    name="liu07/drift",
    title="A productive third that changes",
    run=_compare(DRIFTING),
    plot=over_time("The productive third changes every 12 minutes", "results", ylabel="results"),
    claims=lambda rows: [_ours(rows)],
)
