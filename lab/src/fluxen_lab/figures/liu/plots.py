"""Lines over time, one per run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fluxen_lab.figures.figure import Row
from fluxen_lab.plotting import pyplot, save

__all__ = ["over_time"]


def over_time(title: str, *columns: str, ylabel: str, scale: float = 1.0) -> Callable[[list[Row], Path], None]:
    """A plot of some columns of every run against the minute."""

    def plot(rows: list[Row], path: Path) -> None:
        plt = pyplot()
        figure, axes = plt.subplots(figsize=(7, 4))
        for label in dict.fromkeys(row["run"] for row in rows):
            mine = [row for row in rows if row["run"] == label]
            for column, style in zip(columns, ("-", "--", ":")):
                name = label if len(columns) == 1 else f"{label}, {column.replace('_', ' ')}"
                axes.plot([r["minute"] for r in mine], [r[column] / scale for r in mine], style, marker=".", label=name)
        axes.set_ylim(bottom=0)
        save(figure, axes, path, title=title, xlabel="minute of event time", ylabel=ylabel)

    return plot
