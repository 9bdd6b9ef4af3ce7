"""The timeline of a run as a figure: `run.plot()`. The only place that needs matplotlib, which is an extra."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from typing import Any

import numpy as np

from fluxen.arrays import Json
from fluxen.dashboard.source import Source
from fluxen.errors import ConfigError, PlatformError

__all__ = ["timeline"]

COLOURS = {"move": "#1f6f8b", "spill": "#6d4fc2", "replan": "#c8553d", "repartition": "#5a9367", "rescale": "#4d7cc7"}
OTHER = "#9a4c95"


def timeline(source: Source) -> Any:
    """Rows, time by phase, balance and state over time, with a line wherever the query adapted."""
    try:
        pyplot = import_module("matplotlib.pyplot")
    except ImportError:
        raise PlatformError(
            "plot() draws with matplotlib, which is not installed; run `pip install matplotlib`"
        ) from None
    seen = source.series(-1)
    if not seen["at"]:
        raise ConfigError(f"plot() has nothing to draw: no epoch of {source.store.root} is committed yet")
    at = [datetime.fromtimestamp(moment) for moment in seen["at"]]
    figure, axes = pyplot.subplots(4, 1, sharex=True, figsize=(10, 8), layout="constrained")
    lasted = np.array(seen["lasted"], dtype=np.float64)
    axes[0].plot(at, _ratio(seen["rows_in"], lasted), color="#1f6f8b")
    axes[0].set_ylabel("rows/s")
    _phases(axes[1], at, seen, lasted)
    for number, stage in enumerate(seen["stages"]):
        mean = np.array(stage["busy"]) / np.maximum(stage["sites"], 1)
        axes[2].plot(at, _ratio(stage["slowest"], mean), label=f"stage {number + 1}")
    axes[2].set_ylabel("busiest site / mean")
    axes[3].plot(at, np.array(seen["state_bytes"]) / 2**20, label="memory", color="#1f6f8b")
    axes[3].plot(at, np.array(seen["spilled_bytes"]) / 2**20, label="on disk", color="#6d4fc2")
    axes[3].set_ylabel("state, MB")
    _adaptations(axes, at, seen["last"], source.events(-1))
    for axis in axes[1:]:
        axis.legend(loc="upper left", fontsize="small", ncols=4)
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    figure.suptitle(source.now()["name"])
    pyplot.close(figure)  # a notebook shows what the cell gives back, and would show an open figure once more
    return figure


def _ratio(above: Sequence[float], below: Any) -> Any:
    column = np.asarray(below, dtype=np.float64)
    return np.divide(np.asarray(above, dtype=np.float64), column, out=np.full(len(column), np.nan), where=column > 0)


def _phases(axis: Any, at: Sequence[datetime], seen: Json, lasted: Any) -> None:
    epochs = np.array(seen["epochs"], dtype=np.float64)
    plan, commit = (np.array(seen["phases"].get(name, np.zeros(len(at)))) for name in ("plan", "commit"))
    work = np.sum([stage["slowest"] for stage in seen["stages"]], axis=0)
    work = np.minimum(work, np.maximum(lasted - plan - commit, 0))
    rest = np.maximum(lasted - plan - commit - work, 0)
    columns = {"plan": plan, "sites at work": work, "source, shuffle, sink": rest, "adapt and commit": commit}
    colours = ["#b08968", "#1f6f8b", "#7d8597", "#e09f3e"]
    axis.stackplot(at, [column / epochs for column in columns.values()], labels=list(columns), colors=colours)
    axis.set_ylabel("seconds per epoch")


def _adaptations(axes: Any, at: Sequence[datetime], last: Sequence[int], events: Sequence[Json]) -> None:
    done = [event for event in events if event["outcome"] == "done"]
    named: set[str] = set()
    for event in done:
        moment = at[min(int(np.searchsorted(last, event["epoch"])), len(at) - 1)]
        kind = event["kind"]
        for axis in axes:
            label = kind if axis is axes[2] and kind not in named else None
            axis.axvline(moment, color=COLOURS.get(kind, OTHER), alpha=0.35, linewidth=0.8, label=label)
        named.add(kind)
