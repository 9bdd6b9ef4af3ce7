"""Figure 13: a large state and streams that have just slowed down, the case where the parallel track wins.

All streams at 100 rows a second; at second 30 B and C fall to 5. The busy site then re-plans and, right after, gives
groups to a site with the first plan still: moving state means to fetch all that the fast phase left and to recompute
what the receiver's tree keeps, parallel track means to process few rows twice.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fluxen_lab.datagen.zhu import Workload
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.zhu.plots import lines
from fluxen_lab.figures.zhu.trial import Setting, play_all

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
    trials = play_all(settings(options.seed), options)
    end = max(trial.done[-1].finished for trial in trials.values())
    rows: list[Row] = []
    for name, trial in trials.items():
        chosen = [e["detail"]["protocol"] for e in trial.events if e["detail"].get("step") == 1]
        rows += [
            {
                "setting": name,
                "second": round(float(second), 1),
                "output": round(trial.output(float(second)), 1),
                "finished": round(trial.done[-1].finished, 2),
                "results": sum(batch.results for batch in trial.done),
                "protocol": " ".join(chosen),
            }
            for second in np.linspace(0, end, 80)
        ]
    return rows


def _claims(rows: list[Row]) -> list[Claim]:
    finished = {row["setting"]: row["finished"] for row in rows}
    results = {row["setting"]: row["results"] for row in rows}
    chosen = {row["setting"]: row["protocol"] for row in rows}
    output = {name: [row["output"] for row in rows if row["setting"] == name] for name in finished}
    behind = min(p - m for p, m in zip(output["ptlb"], output["mslb"]))
    ahead = max(p - m for p, m in zip(output["ptlb"], output["mslb"]))
    return [
        Claim(
            claim="the results are the same", holds=len(set(results.values())) == 1, measured=results, paper="implied"
        ),
        Claim(
            claim="after the move PTLB's output is ahead of MSLB's",
            holds=ahead > 0 and behind >= -0.001 * max(output["ptlb"]),
            measured={"most ahead": ahead, "most behind": behind, "of": results["ptlb"]},
            paper="PTLB performs better after balancing starts",
        ),
        Claim(
            claim="with PTLB everything is processed earlier",
            holds=finished["ptlb"] < finished["mslb"],
            measured=finished,
            paper="PTLB wins",
        ),
        Claim(
            claim="auto is at least as good as the better of the two",
            holds=finished["auto"] <= (1 + NOISE) * min(finished["ptlb"], finished["mslb"]),
            measured={"finished": finished["auto"], "chose": chosen["auto"]},
            paper="not in the paper",
        ),
    ]


def _plot(rows: list[Row], path: Path) -> None:
    lines(
        rows, path, x="second", y="output", title="Large state, slow input (Zhu, Figure 13)",
        xlabel="emulated seconds", ylabel="accumulated results",
    )  # fmt: skip


FIGURE = Figure(
    name="zhu/13",
    title="Large state and input that has just slowed down: PTLB against MSLB",
    run=_run,
    plot=_plot,
    claims=_claims,
)
