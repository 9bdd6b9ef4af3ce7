"""Figures 7 and 8: what re-planning and balancing bring, alone and together.

Four sites, site 0 with half of the load and its even part of the rest. From second 30 on stream A brings 100 rows a
second, B and C 5, so that joining B with C first is better than the first plan, A with B. Before, all bring 10: with
the paper's 100 each, the first 30 seconds would yield 400 times the results of the same time after, and on sites that
can just follow one phase nothing could be seen of the other.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fluxen_lab.datagen.zhu import Workload
from fluxen_lab.figures.claim import Claim, Numbers, at_least, at_most, between, exactly
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.zhu.plots import lines
from fluxen_lab.figures.zhu.trial import SERVED, UNCOUNTED, Setting, Trial, mutated, play_all

__all__ = ["THROUGHPUT", "TUPLES"]

SECONDS, STEP, CHANGE = 240.0, 10.0, 30.0
_POINTS = 60


def rate(stream: str, second: float) -> float:
    if second < CHANGE:
        return 10.0
    return 100.0 if stream == "a" else 5.0


def settings(seed: int) -> list[Setting]:
    workload = Workload(rate=rate, seconds=SECONDS, step=STEP, seed=seed)
    base = {"workload": workload, "window": 10.0, "service": 0.005, "keys": 30, "balance_from": CHANGE}
    return [
        Setting(name="No-Adapt", **base),  # type: ignore[arg-type]
        Setting(name="PTLB-only", balance="ptlb", **base),  # type: ignore[arg-type]
        Setting(name="LM-only", replan=True, **base),  # type: ignore[arg-type]
        Setting(name="LM-PTLB", balance="ptlb", replan=True, **base),  # type: ignore[arg-type]
    ]


def _run(options: RunOptions) -> list[Row]:
    trials = play_all(mutated(settings(options.seed), options), options)
    end = max(trial.done[-1].finished for trial in trials.values())
    return [row for trial in trials.values() for row in _rows(trial, end)]


def _rows(trial: Trial, end: float) -> list[Row]:
    finished = trial.done[-1].finished
    return [
        {
            "setting": trial.setting.name,
            "point": point,
            "second": round(float(second), 1),
            "output": round(trial.output(float(second))),
            "tuples": trial.tuples(float(second)) if second <= finished else None,
            "finished": round(finished, 1),
            "results": trial.results,
            "moves": len(trial.moves()),
        }
        for point, second in enumerate(np.linspace(0, end, _POINTS))
    ]


def _per_second(rows: list[Row]) -> dict[str, float]:
    """Results per second until everything was processed."""
    return {row["setting"]: row["results"] / row["finished"] for row in rows}


def _throughput(rows: list[Row]) -> Numbers:
    rates = _per_second(rows)
    ratio = {name: value / rates["No-Adapt"] for name, value in rates.items()}
    results = {row["setting"]: row["results"] for row in rows}
    return {
        "results_apart": max(results.values()) - min(results.values()),
        "balancing": ratio["PTLB-only"],
        "optimizing": ratio["LM-only"],
        "both": ratio["LM-PTLB"],
        "optimizing_over_balancing": ratio["LM-only"] / ratio["PTLB-only"],
        "both_over_better": ratio["LM-PTLB"] / max(ratio["PTLB-only"], ratio["LM-only"]),
    }


def _tuples(rows: list[Row]) -> Numbers:
    # while every setting still has rows to process
    until = min(row["finished"] for row in rows)
    peak = {
        name: max(row["tuples"] for row in rows if row["setting"] == name and row["second"] <= until)
        for name in dict.fromkeys(row["setting"] for row in rows)
    }
    optimizing, others = ("LM-only", "LM-PTLB"), ("No-Adapt", "PTLB-only")
    return {
        "optimizing_over_others": max(peak[name] for name in optimizing) / min(peak[name] for name in others),
        "balancing_over_none": peak["PTLB-only"] / peak["No-Adapt"],
        **{f"most tuples, {name}": most for name, most in peak.items()},
    }


def _plot_output(rows: list[Row], path: Path) -> None:
    lines(
        rows, path, x="second", y="output", title="Accumulated output (Zhu, Figure 7)", xlabel="emulated seconds",
        ylabel="results",
    )  # fmt: skip


def _plot_tuples(rows: list[Row], path: Path) -> None:
    lines(
        rows, path, x="second", y="tuples", title="Tuples in the system (Zhu, Figure 8)", xlabel="emulated seconds",
        ylabel="state rows and rows that wait",
    )  # fmt: skip


NO_BALANCING = "no load balancing"
NO_OPTIMIZING = "no local optimization"
ALL_OPTIMIZE = "local optimization in place of load balancing"
_NAMES = tuple(setting.name for setting in settings(1))
THROUGHPUT = Figure(
    name="zhu/7",
    title="Accumulated throughput: no adaptation, balancing, local optimization, both",
    run=_run,
    plot=_plot_output,
    by=("setting", "point"),
    numbers=_throughput,
    claims=(
        Claim(
            claim="every setting yields the same results in the end",
            paper="implied",
            bands={"results_apart": exactly(0)},
            mutation=UNCOUNTED,
            each_seed=True,
        ),
        Claim(
            claim="load balancing alone raises the throughput",
            paper="about 2",
            bands={"balancing": at_least(1.3)},
            mutation=NO_BALANCING,
        ),
        Claim(
            claim="local optimization alone raises the throughput",
            paper="about 2",
            bands={"optimizing": at_least(1.3)},
            mutation=NO_OPTIMIZING,
        ),
        Claim(
            claim="local optimization can be as effective as load balancing",
            paper="about equal",
            bands={"optimizing_over_balancing": at_least(0.75)},
            mutation=NO_OPTIMIZING,
        ),
        Claim(
            claim="both together beat either alone clearly",
            paper="about 4.3 times no adaptation",
            bands={"both_over_better": at_least(1.25)},
            shown=("both",),
            mutation=NO_OPTIMIZING,
        ),
    ),
    mutations={
        UNCOUNTED: {"settings": {"": {"uncounted": True}}},
        NO_BALANCING: {"settings": {"": {"balance": None}}},
        NO_OPTIMIZING: {"settings": {"": {"replan": False}}},
    },
    seeds=5,
    place="Spark",
    emulated=SERVED,
)
TUPLES = Figure(
    name="zhu/8",
    title="Total tuples: no adaptation, balancing, local optimization, both",
    run=_run,
    plot=_plot_tuples,
    by=("setting", "point"),
    numbers=_tuples,
    claims=(
        Claim(
            claim="settings with local optimization hold clearly fewer tuples in the system than those without",
            paper="much lower build-up",
            bands={"optimizing_over_others": at_most(0.85)},
            shown=tuple(f"most tuples, {name}" for name in _NAMES),
            mutation=NO_OPTIMIZING,
        ),
        Claim(
            claim="load balancing alone hardly lowers the build-up",
            paper="about the same highest build-up",
            bands={"balancing_over_none": between(0.8, 1.2)},
            mutation=ALL_OPTIMIZE,
        ),
    ),
    mutations={
        NO_OPTIMIZING: {"settings": {"": {"replan": False}}},
        ALL_OPTIMIZE: {"settings": {"PTLB-only": {"balance": None, "replan": True}}},
    },
    seeds=5,
    place="Spark",
    emulated=SERVED,
)
