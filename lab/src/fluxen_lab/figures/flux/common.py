"""What the Flux figures share: running a scenario, reading columns, drawing lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluxen.policies.base import Policy
from fluxen.sim.simulator import Result, Scenario, Simulator
from fluxen_lab.figures.figure import Row, RunOptions
from fluxen_lab.plotting import pyplot, save

__all__ = ["CLUSTER", "NO_LOAD", "PAPER", "draw", "first", "offloaded", "simulate", "steady"]

PAPER: dict[str, Any] = {"groups_per_move": 1, "guarded": False}
"""Settings of a policy that does what the paper's does, and no more."""
CLUSTER = "the cluster: processors, network and disks; what foreign work leaves of a processor is put in (43 %)"
"""What stands for something else in a simulated figure."""
NO_LOAD = "no site loses processor time"
"""A mutation: the load is not there."""


def simulate(options: RunOptions, label: str, scenario: Scenario, policy: Policy) -> Result:
    """One simulated run, announced."""
    options.progress(f"simulating {label}")
    return Simulator(scenario, policy=policy).run()


def steady(rows: Iterable[Row], column: str, last: int) -> float:
    """Mean of a column over its last rows."""
    return float(np.mean([row[column] for row in rows][-last:]))


def first(rows: Iterable[Row], found: Callable[[Row], bool], since: float) -> float | None:
    """Seconds from `since` to the first row that is looked for, None if there is none."""
    return next((row["second"] - since for row in rows if found(row)), None)


def offloaded(result: Result, site: int) -> list[int]:
    """Per second: groups the site has given away so far, minus those it was given."""
    net = np.zeros(len(result.seconds))
    for event in result.events:
        if event.outcome == "done" and event.kind == "move":
            sign = (event.detail["donor"] == site) - (event.detail["receiver"] == site)
            net[result.seconds >= event.when + event.duration] += sign * len(event.detail["pgs"])
    return [int(n) for n in net]


def draw(
    rows: Sequence[Row],
    path: Path,
    *,
    x: str,
    lines: Mapping[str, str],
    title: str,
    xlabel: str,
    ylabel: str,
    log: Sequence[str] = (),
) -> None:
    """A line per column; `lines` maps columns to labels, `log` names the axes on a logarithmic scale."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 4))
    for column, label in lines.items():
        points = [(row[x], row[column]) for row in rows if row.get(column) is not None and row.get(x) is not None]
        axes.plot([p[0] for p in points], [p[1] for p in points], marker=".", label=label)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    save(figure, axes, path, title=title, xlabel=xlabel, ylabel=ylabel)
