"""What people see of recent epochs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from fluxen.arrays import MAX_TIME, Json
from fluxen.control.stage import Stage
from fluxen.state.epoch import Epoch

__all__ = ["Progress", "mean_latency", "shown"]

KEPT = 100
"""Epochs that are remembered."""


class Progress:
    """The recent epochs, summed up."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages
        self._entries: deque[Json] = deque(maxlen=KEPT)
        self._lasted: deque[float] = deque(maxlen=KEPT)

    def note(self, epoch: Epoch, batch: int | None, seconds: Mapping[str, float], lasted: float) -> Json:
        """An epoch was committed; `batch` is None for a flush. Gives its entry."""
        summary = shown(epoch, self._stages)
        self._lasted.append(lasted)
        delays = (delay for stage in summary["stages"] for site in stage["sites"] for delay in site["delays"])
        self._entries.append(
            {
                "epoch": epoch.number,
                "batch": batch,
                "seconds": {phase: round(value, 4) for phase, value in seconds.items()},
                "latency_seconds": mean_latency(delays, list(self._lasted)),
                **summary,
            }
        )
        return self._entries[-1]

    @property
    def entries(self) -> list[Json]:
        return list(self._entries)

    @property
    def last(self) -> Json:
        return self._entries[-1] if self._entries else {}


def mean_latency(delays: Iterable[Sequence[int]], lasted: Sequence[float]) -> float | None:
    """Seconds per row, given (epochs waited, rows) and how long the epochs lasted, the newest last; None without rows.

    A row that arrived three epochs ago has taken these three and the one in which it was processed. Epochs before the
    first one known count nothing, so the value is a lower bound shortly after a restart.

    >>> mean_latency([(0, 3), (1, 1)], [2.0, 1.0])
    1.5
    """
    rows = total = 0.0
    for waited, count in delays:
        rows += count
        total += count * sum(lasted[-(waited + 1) :])
    return total / rows if rows else None


def shown(epoch: Epoch, plan: Sequence[Stage]) -> Json:
    """An epoch's statistics, summed up for people."""
    stages = epoch.stats.get("stages", [])
    sites = [site for stage in stages for site in stage["sites"]]
    return {
        "stages": [
            {
                "sites": stage["sites"],
                "sides": stage["sides"],
                "watermarks": [None if abs(w) >= MAX_TIME else w for w in state.watermarks],
                "groups": stage["groups"],
            }
            for stage, state in zip(stages, epoch.stages)
        ],
        "rows_in": sum(
            side["rows_in"]
            for stage, seen in zip(plan, stages)
            for side, feed in zip(seen["sides"], stage.inputs)
            if feed.stage is None
        ),
        "results": sum(site["rows_out"] for site in (stages[-1]["sites"] if stages else [])),
        "results_owed": sum(site["rows_owed"] for site in sites),
        "spilled_bytes": int(sum(state.history.spilled.sum() for state in epoch.stages if state.history is not None)),
        "late": sum(site["late"] for site in sites),
        "state_rows": sum(site["state_rows"] for site in sites),
        "state_bytes": sum(site["state_bytes"] for site in sites),
        "waiting_rows": sum(site["waiting_rows"] for site in sites),
    }
