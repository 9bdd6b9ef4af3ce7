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
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.zhu.plots import lines
from fluxen_lab.figures.zhu.trial import Setting, Trial, play_all

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


_played: dict[int, dict[str, Trial]] = {}
"""by seed: Figures 7 and 8 are two views of the same runs"""


def _run(options: RunOptions) -> list[Row]:
    if options.seed not in _played:
        _played[options.seed] = play_all(settings(options.seed), options)
    trials = _played[options.seed]
    end = max(trial.done[-1].finished for trial in trials.values())
    return [row for trial in trials.values() for row in _rows(trial, end)]


def _rows(trial: Trial, end: float) -> list[Row]:
    finished = trial.done[-1].finished
    return [
        {
            "setting": trial.setting.name,
            "second": round(float(second), 1),
            "output": round(trial.output(float(second))),
            "tuples": trial.tuples(float(second)) if second <= finished else None,
            "finished": round(finished, 1),
            "results": sum(batch.results for batch in trial.done),
            "moves": len(trial.moves()),
        }
        for second in np.linspace(0, end, _POINTS)
    ]


def _per_second(rows: list[Row]) -> dict[str, float]:
    """Results per second until everything was processed."""
    return {row["setting"]: row["results"] / row["finished"] for row in rows}


def _throughput_claims(rows: list[Row]) -> list[Claim]:
    rates = _per_second(rows)
    ratio = {name: round(value / rates["No-Adapt"], 2) for name, value in rates.items()}
    alone = (ratio["PTLB-only"], ratio["LM-only"])
    same = {row["setting"]: row["results"] for row in rows}
    return [
        Claim(
            claim="every setting yields the same results in the end",
            holds=len(set(same.values())) == 1,
            measured=same,
            paper="implied",
        ),
        Claim(
            claim="load balancing alone raises the throughput",
            holds=alone[0] >= 1.3,
            measured=alone[0],
            paper="about 2",
        ),
        Claim(
            claim="local optimization alone raises the throughput",
            holds=alone[1] >= 1.3,
            measured=alone[1],
            paper="about 2",
        ),
        Claim(
            claim="local optimization can be as effective as load balancing",
            holds=alone[1] >= 0.75 * alone[0],
            measured={"PTLB-only": alone[0], "LM-only": alone[1]},
            paper="about equal",
        ),
        Claim(
            claim="both together beat either alone clearly",
            holds=ratio["LM-PTLB"] >= 1.25 * max(alone),
            measured=ratio["LM-PTLB"],
            paper="about 4.3",
        ),
    ]


def _tuple_claims(rows: list[Row]) -> list[Claim]:
    # while every setting still has rows to process
    until = min(row["finished"] for row in rows)
    peak = {
        name: max(row["tuples"] for row in rows if row["setting"] == name and row["second"] <= until)
        for name in dict.fromkeys(row["setting"] for row in rows)
    }
    with_plan, without = ("LM-only", "LM-PTLB"), ("No-Adapt", "PTLB-only")
    return [
        Claim(
            claim="settings with local optimization hold clearly fewer tuples in the system than those without",
            holds=max(peak[name] for name in with_plan) <= 0.85 * min(peak[name] for name in without),
            measured=peak,
            paper="much lower build-up",
        ),
        Claim(
            claim="load balancing alone hardly lowers the build-up",
            holds=peak["PTLB-only"] >= 0.8 * peak["No-Adapt"],
            measured=round(peak["PTLB-only"] / peak["No-Adapt"], 2),
            paper="about the same highest build-up",
        ),
    ]


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


THROUGHPUT = Figure(
    name="zhu/7",
    title="Accumulated throughput: no adaptation, balancing, local optimization, both",
    run=_run,
    plot=_plot_output,
    claims=_throughput_claims,
)
TUPLES = Figure(
    name="zhu/8",
    title="Total tuples: no adaptation, balancing, local optimization, both",
    run=_run,
    plot=_plot_tuples,
    claims=_tuple_claims,
)
