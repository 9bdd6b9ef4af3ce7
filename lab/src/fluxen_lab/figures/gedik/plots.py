"""Drawing for Gedik's figures: lines over a parameter, radar charts. Reads rows, measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluxen_lab.figures.figure import Row
from fluxen_lab.figures.gedik.trial import ALGORITHMS, mean, pick, values_of
from fluxen_lab.plotting import pyplot

__all__ = ["Panel", "lines", "radar"]

Panel = dict[str, Any]
"""Of one chart: ``y`` (column), ``label``, and optionally ``where`` (filter), ``log``, ``ideal``, ``title``."""

_MARKS = dict(zip(ALGORITHMS, "sv^oDP"))


def lines(
    rows: list[Row], path: Path, *, x: str, panels: Sequence[Panel], series: str = "algorithm", log_x: bool = False
) -> None:
    """Charts side by side: the mean over runs of a column against ``x``, one line per value of ``series``."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.4), squeeze=False)
    for axis, panel in zip(axes[0], panels):
        chosen = pick(rows, **panel.get("where", {}))
        for name in dict.fromkeys(row[series] for row in chosen):
            xs = values_of(pick(chosen, **{series: name}), x)
            ys = [mean(chosen, panel["y"], **{series: name, x: value}) for value in xs]
            axis.plot(xs, ys, marker=_MARKS.get(str(name), "."), markersize=4, label=str(name))
        if panel.get("ideal"):
            axis.axhline(1.0, color="black", linewidth=0.8)
        axis.set_yscale("log" if panel.get("log") else "linear")
        axis.set_xscale("log" if log_x else "linear")
        axis.set_xlabel(x)
        axis.set_ylabel(panel["label"])
        axis.set_title(panel.get("title", ""), fontsize=10)
    axes[0][-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)


def radar(rows: list[Row], path: Path, *, charts: Sequence[str], spokes: Sequence[str]) -> None:
    """One radar chart per resource combination; the radius is log2(1 + value), the black line is 1."""
    plt = pyplot()
    angles = np.linspace(0, 2 * np.pi, len(spokes) + 1)
    figure, axes = plt.subplots(
        1, len(charts), figsize=(3.6 * len(charts), 3.8), squeeze=False, subplot_kw={"polar": True}
    )
    for axis, resources in zip(axes[0], charts):
        for name in ALGORITHMS:
            values = [np.log2(1 + mean(rows, spoke, algorithm=name, resources=resources)) for spoke in spokes]
            axis.plot(angles, [*values, values[0]], marker=_MARKS[name], markersize=4, linewidth=1, label=name)
        axis.plot(angles, np.ones(len(angles)), color="black", linewidth=1.2)
        axis.set_xticks(angles[:-1], spokes)
        axis.set_yticklabels([])
        axis.set_title(resources, fontsize=10)
    axes[0][-1].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)
