"""How sure a sample of utilizations is: what the Flux policies ask before they believe an imbalance.

A site's time for the same work scatters from batch to batch: other processes, garbage collection, where a task happened
to be scheduled. `Evidence` learns by how much, and keeps what collections since the last move say together, so that a
lasting imbalance shows against the noise and a chance one does not. Used by `fluxen.policies.flux.rounds`.

How far it scatters follows from the time per row of each site in two successive reports: whatever is common to all
sites (larger batches, dearer rows) cancels out, and moves do not matter. One report alone says nothing, so noise counts
as none until there are two.

>>> from fluxen.policies.base import Stats
>>> evidence = Evidence()
>>> for slow in (1.0, 1.3, 1.0, 1.3):
...     stats = Stats.build(sites=2, placement=[0, 1], rows_in=[1000, 1000], busy=[1.0, slow], idle=[0.3, 1.3 - slow])
...     evidence.observe(stats)
>>> round(float(np.sqrt(evidence.variance)), 2)
0.13
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluxen.policies.base import Floats, Ints, Stats, utilization

__all__ = ["Evidence", "Window"]

_KEPT = 0.9
"""Weight per round of what the collections before it said."""
_LEARNED = 0.1
"""Weight of the newest report in the noise."""
_EXACT = 1e-9
"""Variance below which reports do not scatter at all, but for rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What one or more collections summed up: time per site, rows processed per partition group.

    Rows processed are those that came in and those that went out: to a join a popular key is little input, much work.
    `reports` and `squares` are the sums of the reports' weights and of their squares.
    """

    busy: Floats
    idle: Floats
    rows: Floats
    reports: float = 1.0
    squares: float = 1.0

    @staticmethod
    def of(stats: Stats) -> Window:
        return Window(busy=stats.busy, idle=stats.idle, rows=stats.rows_in + stats.rows_out)

    @property
    def utilization(self) -> Floats:
        return utilization(self.busy, self.idle)

    def __add__(self, other: Window) -> Window:
        return Window(
            busy=self.busy + other.busy,
            idle=self.idle + other.idle,
            rows=self.rows + other.rows,
            reports=self.reports + other.reports,
            squares=self.squares + other.squares,
        )

    def faded(self, weight: float) -> Window:
        return Window(
            busy=weight * self.busy,
            idle=weight * self.idle,
            rows=weight * self.rows,
            reports=weight * self.reports,
            squares=weight**2 * self.squares,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "busy": self.busy.tolist(),
            "idle": self.idle.tolist(),
            "rows": self.rows.tolist(),
            "reports": self.reports,
            "squares": self.squares,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Window:
        columns = {name: np.asarray(data[name], dtype=np.float64) for name in ("busy", "idle", "rows")}
        return Window(**columns, reports=float(data["reports"]), squares=float(data["squares"]))


class Evidence:
    """Utilizations under the present placement, the recent ones counting more, and how far reports scatter."""

    def __init__(self) -> None:
        self.variance = 0.0
        """of the logarithm of a site's time per row, in one report"""
        self._pace: Floats = np.zeros(0)
        self.known = False
        """whether there have been two reports to tell from"""
        self._past: Window | None = None
        self._pg: Ints = np.zeros(0, dtype=np.int64)

    def fits(self, stats: Stats) -> bool:
        """Whether the sites and groups are those of the reports before."""
        return len(self._pace) == stats.sites and np.array_equal(self._pg, stats.pg)

    def forget(self, stats: Stats) -> None:
        """Start again with these sites and groups; how far reports scatter remains known."""
        self._pg, self._pace, self._past = stats.pg, np.full(stats.sites, np.nan), None

    def observe(self, stats: Stats) -> None:
        """Learn from one report how far sites' times scatter."""
        work = np.bincount(stats.placement, weights=stats.rows_in + stats.rows_out, minlength=stats.sites)
        seen = (work > 0) & (stats.busy > 0)
        pace = np.divide(stats.busy, work, out=np.full(stats.sites, np.nan), where=seen)
        if len(self._pace) == stats.sites:
            change = np.log(pace / self._pace)
            change = change[np.isfinite(change)]
            if len(change) > 1:
                newest = float(change.var(ddof=1)) / 2  # of the difference of two reports, what is common left out
                self.variance += (_LEARNED if self.known else 1.0) * (newest - self.variance)
                self.known = True
        self._pace = np.where(seen, pace, self._pace if len(self._pace) == stats.sites else np.nan)

    def lasting(self, window: Window) -> Window:
        """A collection together with those before it, as long as nothing has moved."""
        return window if self._past is None else self._past + window

    def ended(self, window: Window, *, moved: bool) -> None:
        self._past = None if moved else self.lasting(window).faded(_KEPT)

    def error(self, window: Window, placement: Ints) -> Floats:
        """Standard error of the logarithm of each site's utilization; 0 for a site without work."""
        work = np.bincount(placement, weights=window.rows, minlength=len(window.busy))
        reports = window.reports**2 / window.squares
        if self.variance < _EXACT:
            return np.zeros(len(work))
        drawn = np.divide(1.0, work, out=np.zeros(len(work)), where=work > 0)  # which rows came is chance as well
        return np.where(work > 0, np.sqrt(self.variance / reports + drawn), 0.0)

    def snapshot(self) -> dict[str, Any]:
        return {
            "variance": self.variance,
            "known": self.known,
            "pace": [None if np.isnan(value) else value for value in self._pace.tolist()],
            "past": None if self._past is None else self._past.to_json(),
            "pg": len(self._pg) if np.array_equal(self._pg, np.arange(len(self._pg))) else self._pg.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.variance, self.known = float(state["variance"]), bool(state["known"])
        self._pace = np.array([np.nan if value is None else value for value in state["pace"]], dtype=np.float64)
        self._past = None if state["past"] is None else Window.from_json(state["past"])
        pg = state["pg"]
        self._pg = np.asarray(np.arange(pg) if isinstance(pg, int) else pg, dtype=np.int64)
