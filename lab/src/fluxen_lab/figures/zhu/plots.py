"""Drawing shared by the figures: one line per setting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fluxen_lab.figures.figure import Row
from fluxen_lab.plotting import pyplot, save

__all__ = ["lines"]


def lines(rows: Sequence[Row], path: Path, *, x: str, y: str, title: str, xlabel: str, ylabel: str) -> None:
    """Column `y` over column `x`, a line per value of the column `setting`."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 4))
    for setting in dict.fromkeys(row["setting"] for row in rows):
        mine = [row for row in rows if row["setting"] == setting and row.get(y) is not None]
        axes.plot([row[x] for row in mine], [row[y] for row in mine], marker=".", label=setting)
    axes.set_ylim(bottom=0)
    save(figure, axes, path, title=title, xlabel=xlabel, ylabel=ylabel)
