"""How long sites take and why: the recent reports under the present placement, and what another one would come to.

Work is rows in and rows out, as in `fluxen.policies.flux.load`; a site's pace is its time per unit of work. A site that
had nothing to do is taken to be as fast as the others.

>>> loads = Loads()
>>> loads.observe(Stats.build(sites=2, placement=[0, 0, 1], rows_in=[6, 2, 2], busy=[0.8, 0.2], idle=[0, 0.6]))
>>> loads.seconds.tolist(), loads.after(np.array([0, 1, 1])).round(3).tolist()
([0.8, 0.2], [0.6, 0.4])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluxen.policies.base import Floats, Ints, Stats

__all__ = ["Loads"]

_NEWEST = 0.4
"""Weight of the newest report in how state grows."""
KNOWN = 4
"""Reports after which it is known."""
_KEPT = 0.75
"""Weight per report of those before it, as long as the placement stays."""


class Loads:
    """Means over recent reports, the newest counting most."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._busy: Floats = np.zeros(0)
        self._work: Floats = np.zeros(0)
        self._placement: Ints = np.zeros(0, dtype=np.int64)
        self._held, self._growth = 0.0, 0.0  # bytes of all state, and how many more every batch
        self._reports = 0

    def observe(self, stats: Stats) -> None:
        same = len(self._busy) == stats.sites and np.array_equal(self._placement, stats.placement)
        kept = _KEPT if same else 0.0
        busy, work = stats.busy, stats.rows_in + stats.rows_out
        # rounded to what matters: they are part of every epoch
        self._busy = np.round(busy + kept * self._busy, 6) if kept else busy.copy()
        self._work = np.round(work + kept * self._work, 1) if kept else work.copy()
        self._weight = 1.0 + kept * self._weight
        self._placement = stats.placement
        held = float(stats.site_bytes.sum() + stats.site_spilled.sum())
        if self._held > 0:
            weight = max(_NEWEST, 1 / self._reports)
            self._growth += weight * (held - self._held - self._growth)
        self._held, self._reports = held, min(self._reports + 1, KNOWN)

    @property
    def known(self) -> bool:
        """Whether there have been enough reports to tell how state grows."""
        return self._reports >= KNOWN

    def grown(self, batches: int) -> float:
        """How many times as much state there will be after so many batches, if it goes on growing as it has lately."""
        return 1.0 + batches * max(self._growth, 0.0) / self._held if self._held > 0 else 1.0

    @property
    def seconds(self) -> Floats:
        """Per site, seconds a batch."""
        return np.asarray(self._busy / max(self._weight, 1.0), dtype=np.float64)

    @property
    def work(self) -> Floats:
        """Per group, rows in and out a batch."""
        return np.asarray(self._work / max(self._weight, 1.0), dtype=np.float64)

    @property
    def pace(self) -> Floats:
        """Per site, seconds per unit of work."""
        done = np.bincount(self._placement, weights=self._work, minlength=len(self._busy))
        known = (done > 0) & (self._busy > 0)
        if not known.any():
            return np.zeros(len(self._busy))
        usual = float(self._busy[known].sum() / done[known].sum())
        pace: Floats = np.divide(self._busy, done, out=np.full(len(self._busy), usual), where=known)
        return pace

    @property
    def slowest(self) -> float:
        """Seconds of the site that takes longest."""
        return float(self.seconds.max(initial=0.0))

    def after(self, placement: Ints) -> Floats:
        """Per site, seconds a batch under another placement of the same groups."""
        work = np.bincount(placement, weights=self.work, minlength=len(self._busy))
        return np.asarray(work * self.pace, dtype=np.float64)

    def largest(self) -> float:
        """Seconds of the group with most work: however many sites there are, one of them takes as long."""
        seconds = self.work * self.pace[self._placement] if len(self._busy) else np.zeros(0)
        return float(seconds.max(initial=0.0))

    def snapshot(self) -> dict[str, Any]:
        return {
            "weight": self._weight,
            "busy": self._busy.tolist(),
            "work": self._work.tolist(),
            "placement": self._placement.tolist(),
            "held": [self._held, self._growth, self._reports],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._weight = float(state["weight"])
        self._busy = np.array(state["busy"], dtype=np.float64)
        self._work = np.array(state["work"], dtype=np.float64)
        self._placement = np.array(state["placement"], dtype=np.int64)
        self._held, self._growth = float(state["held"][0]), float(state["held"][1])
        self._reports = int(state["held"][2])
