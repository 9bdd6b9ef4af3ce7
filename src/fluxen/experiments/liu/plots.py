"""Lines over time, one per run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fluxen.experiments.figure import Row, pyplot

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
        axes.set_title(title)
        axes.set_xlabel("minute of event time")
        axes.set_ylabel(ylabel)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        figure.tight_layout()
        figure.savefig(path, dpi=120)
        plt.close(figure)

    return plot
