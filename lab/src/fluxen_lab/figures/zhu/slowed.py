"""Figure 13: a large state and streams that have just slowed down, the case where the parallel track wins.

All streams at 100 rows a second; at second 30 B and C fall to 5. The busy site then re-plans and, right after, gives
groups to a site with the first plan still: moving state means to fetch all that the fast phase left and to recompute
what the receiver's tree keeps, parallel track means to process few rows twice.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fluxen_lab.datagen.zhu import Workload
from fluxen_lab.figures.claim import Claim, Numbers, above, at_most, below, exactly
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.zhu.plots import lines
from fluxen_lab.figures.zhu.trial import SERVED, UNCOUNTED, Setting, mutated, play_all

__all__ = ["FIGURE"]

CHANGE, SECONDS, STEP = 30.0, 90.0, 5.0
NOISE = 0.03


def rate(stream: str, second: float) -> float:
    return 100.0 if stream == "a" or second < CHANGE else 5.0


def settings(seed: int) -> list[Setting]:
    workload = Workload(rate=rate, seconds=SECONDS, step=STEP, seed=seed)
    return [
        Setting(
            name=name,
            workload=workload,
            window=30.0,
            service=0.004,
            keys=2000,
            sites=2,
            balance=name,
            balance_from=CHANGE + 2 * STEP,
            moves=1,
            replan=True,
            replan_sites=(0,),
        )
        for name in ("ptlb", "mslb", "auto")
    ]


def _run(options: RunOptions) -> list[Row]:
    trials = play_all(mutated(settings(options.seed), options), options)
    end = max(trial.done[-1].finished for trial in trials.values())
    rows: list[Row] = []
    for name, trial in trials.items():
        chosen = [e["detail"]["protocol"] for e in trial.events if e["detail"].get("step") == 1]
        rows += [
            {
                "setting": name,
                "point": point,
                "second": round(float(second), 1),
                "output": round(trial.output(float(second)), 1),
                "finished": round(trial.done[-1].finished, 2),
                "results": trial.results,
                "protocol": " ".join(chosen),
            }
            for point, second in enumerate(np.linspace(0, end, 80))
        ]
    return rows


def _numbers(rows: list[Row]) -> Numbers:
    finished = {row["setting"]: row["finished"] for row in rows}
    results = {row["setting"]: row["results"] for row in rows}
    output = {name: [row["output"] for row in rows if row["setting"] == name] for name in finished}
    leads = [p - m for p, m in zip(output["ptlb"], output["mslb"])]
    return {
        "results_apart": max(results.values()) - min(results.values()),
        "most_ahead": max(leads),
        "most_behind_share": max(0.0, -min(leads)) / max(output["ptlb"]),
        "finished_ptlb_over_mslb": finished["ptlb"] / finished["mslb"],
        "finished_auto_over_better": finished["auto"] / min(finished["ptlb"], finished["mslb"]),
        **{f"finished_{name}_s": second for name, second in finished.items()},
    }


def _plot(rows: list[Row], path: Path) -> None:
    lines(
        rows, path, x="second", y="output", title="Large state, slow input (Zhu, Figure 13)",
        xlabel="emulated seconds", ylabel="accumulated results",
    )  # fmt: skip


EXCHANGED = "PTLB and MSLB exchanged"
AUTO_MSLB = "auto replaced by MSLB"
FIGURE = Figure(
    name="zhu/13",
    title="Large state and input that has just slowed down: PTLB against MSLB",
    run=_run,
    plot=_plot,
    by=("setting", "point"),
    numbers=_numbers,
    claims=(
        Claim(
            claim="the results are the same",
            paper="implied",
            bands={"results_apart": exactly(0)},
            mutation=UNCOUNTED,
            each_seed=True,
        ),
        Claim(
            claim="after the move PTLB's output is ahead of MSLB's",
            paper="PTLB performs better after balancing starts",
            bands={"most_ahead": above(0), "most_behind_share": at_most(0.001)},
            mutation=EXCHANGED,
        ),
        Claim(
            claim="with PTLB everything is processed earlier",
            paper="PTLB wins",
            bands={"finished_ptlb_over_mslb": below(1)},
            shown=("finished_ptlb_s", "finished_mslb_s"),
            mutation=EXCHANGED,
        ),
        Claim(
            claim=f"auto is at least as good as the better of the two (within {NOISE:.0%})",
            paper="not in the paper",
            bands={"finished_auto_over_better": at_most(1 + NOISE)},
            shown=("finished_auto_s",),
            mutation=AUTO_MSLB,
        ),
    ),
    mutations={
        UNCOUNTED: {"settings": {"mslb": {"uncounted": True}}},
        EXCHANGED: {"settings": {"ptlb": {"balance": "mslb"}, "mslb": {"balance": "ptlb"}}},
        AUTO_MSLB: {"settings": {"auto": {"balance": "mslb"}}},
    },
    seeds=5,
    place="Spark",
    emulated=SERVED,
)
