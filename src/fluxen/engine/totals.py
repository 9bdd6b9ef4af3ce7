"""What has been counted since a checkpoint's first epoch: the counters behind the metrics endpoint.

Kept in the checkpoint with the newest statistics, so that they go on counting after a restart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fluxen.arrays import Floats, Json
from fluxen.state.statistics import Column, StageDetail

__all__ = ["BUCKETS", "Totals"]

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of the histogram of batch seconds; one more counts what is longer."""
SITE_COUNTS = ("rows_in", "rows_out", "late", "busy")


@dataclass(slots=True)
class Totals:
    """Counts of the query, of its stages and of their sites."""

    epochs: int = 0
    flushes: int = 0
    rows_in: int = 0
    results: int = 0
    late: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """by phase"""
    lasted: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    sites: list[dict[str, Floats]] = field(default_factory=list)
    """per stage: columns over its sites"""
    events: list[list[Json]] = field(default_factory=list)
    """per stage: adaptations by kind and outcome"""

    @staticmethod
    def of(stored: Json | None, stages: int) -> Totals:
        """Those of an earlier run, if there was one that counted the same things."""
        if stored is None or len(stored["sites"]) != stages or len(stored["buckets"]) != len(BUCKETS) + 1:
            none = [{name: np.zeros(0) for name in SITE_COUNTS} for _ in range(stages)]
            return Totals(sites=none, events=[[] for _ in range(stages)])
        sites = [
            {name: np.array(columns[name], dtype=np.float64) for name in SITE_COUNTS} for columns in stored["sites"]
        ]
        return Totals(**{**stored, "sites": sites})

    def to_json(self) -> Json:
        sites = [{name: column.round(4).tolist() for name, column in columns.items()} for columns in self.sites]
        return {**{name: getattr(self, name) for name in self.__slots__}, "sites": sites}

    def add(self, sample: Json, details: Sequence[StageDetail], events: Sequence[Json]) -> None:
        """One more epoch: its row in the series, its columns, and what it adapted."""
        self.epochs += 1
        self.flushes += sample["flushes"]
        self.rows_in += sample["rows_in"]
        self.results += sample["results"]
        self.late += sample["late"]
        self.lasted = round(self.lasted + sample["lasted"], 6)
        self.buckets[bisect_left(BUCKETS, sample["lasted"])] += 1
        for phase, seconds in sample["seconds"].items():
            self.seconds[phase] = round(self.seconds.get(phase, 0.0) + seconds, 6)
        for columns, detail in zip(self.sites, details):
            for name in SITE_COUNTS:
                columns[name] = _added(columns[name], detail.sites[name])
        for event in events:
            self._count(self.events[event["stage"]], event)

    @staticmethod
    def _count(counts: list[Json], event: Json) -> None:
        count = event.get("count", 1)
        # a refusal that repeats is told at 1, 2, 4, 8 and so on: each time half of it is new
        fresh = count - count // 2 if event["outcome"] == "refused" else 1
        key = {"kind": event["kind"], "outcome": event["outcome"]}
        for known in counts:
            if key.items() <= known.items():
                known["count"] += fresh
                known["bytes"] += event.get("bytes", 0)
                known["seconds"] += event.get("duration", 0.0)
                return
        counts.append({**key, "count": fresh, "bytes": event.get("bytes", 0), "seconds": event.get("duration", 0.0)})


def _added(known: Floats, more: Column) -> Floats:
    total = np.zeros(max(len(known), len(more)))
    total[: len(known)] = known
    total[: len(more)] += more
    return total
