"""What the page and the metrics endpoint are told of one checkpoint. Only reads, and only files with known names.

The files are those of `fluxen.state.statistics` and `fluxen.state.events`, so a query may be running here, elsewhere or
no more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from fluxen.arrays import Json
from fluxen.errors import FluxenError
from fluxen.state.claim import CLAIMS, living
from fluxen.state.events import EVENTS, PROTOCOLS, EventLog
from fluxen.state.statistics import Statistics
from fluxen.state.store import Store

__all__ = ["Source", "columns"]

SILENT = 60.0
"""Seconds without an epoch after which a query that nobody claims counts as stopped."""
SHOWN_GROUPS = 64
"""Partition groups that are named of an adaptation."""
_EVENT = (
    "epoch", "stage", "id", "when", "last", "kind", "what", "why", "outcome", "reason", "duration", "bytes", "count",
)  # fmt: skip


class Source:
    """One checkpoint."""

    def __init__(self, store: Store, name: str = "") -> None:
        self.store, self._name = store, name
        self._statistics, self._log = Statistics(store), EventLog(store)
        self._lock = threading.Lock()  # requests come from several threads
        self._seen: tuple[list[str], list[Json]] = ([], [])

    def name(self, now: Json) -> str:
        """What the query is called: by its run, by who opened the page, or by its place."""
        return str(now.get("query", {}).get("name") or self._name or self.store.root.rstrip("/").rpartition("/")[2])

    def now(self) -> Json:
        """The newest epoch, all counts, and whether the query runs."""
        with self._lock:
            now = self._statistics.now()
        return {**now, "name": self.name(now), "checkpoint": self.store.root, **self._state(now)}

    def _state(self, now: Json) -> Json:
        holder, ended = living(self.store), now.get("ended")
        if holder is not None:
            return {"state": "running", "holder": {"pid": holder.pid, "host": holder.host, "since": holder.since}}
        if ended is not None:
            return {"state": "failed" if ended["error"] else "ended", "holder": None}
        fresh = not self.store.exists(CLAIMS) and time.time() - now.get("epoch", {}).get("at", 0.0) < SILENT
        return {"state": "running" if fresh else "stopped" if now else "empty", "holder": None}

    def series(self, after: int) -> Json:
        """The whole query's past as columns, of samples that hold something after an epoch."""
        with self._lock:
            return columns(self._statistics.series(after))

    def history(self, stage: int, kind: Any, number: int) -> Json:
        with self._lock:
            return dict(self._statistics.history(stage, kind, number))

    def events(self, after: int) -> list[Json]:
        """Adaptations noted with or after an epoch, refusals among them; steps and what is long are left out."""
        with self._lock:
            names = self.store.list(EVENTS)
            if names != self._seen[0]:
                noted = self._log.read(_passed_over)
                self._seen = (names, [_shown(event) for event in noted if event.get("kind") not in PROTOCOLS])
            return [event for event in self._seen[1] if event["epoch"] >= after]


def _passed_over(name: str, error: FluxenError) -> None:
    """A damaged file of the log: `fluxen inspect` names it."""


def _shown(event: Json) -> Json:
    detail = event.get("detail", {})
    groups = [int(group) for group in detail.get("pgs", ())]
    sites = {detail[name] for name in ("donor", "receiver", "site") if isinstance(detail.get(name), int)}
    shown = {name: event.get(name) for name in _EVENT}
    return {**shown, "epoch": int(event.get("epoch", -1)), "sites": sorted(sites), "groups": groups[:SHOWN_GROUPS]}


_PLAIN = (
    "first", "last", "at", "epochs", "flushes", "rows_in", "results", "late", "state_rows", "state_bytes",
    "waiting_rows", "spilled_bytes", "lasted", "waited", "done",
)  # fmt: skip
_STAGE = ("rows_in", "rows_out", "late", "state_bytes", "spilled_bytes", "waiting_rows", "busy", "slowest", "sites")
_SIDE = ("rows_in", "late", "state_rows", "state_bytes", "watermark")


def columns(samples: Sequence[Json]) -> Json:
    """Samples as columns: what charts want, and a quarter of the size."""
    stages = max((len(sample["stages"]) for sample in samples), default=0)
    return {
        **{name: [sample[name] for sample in samples] for name in _PLAIN},
        "phases": _by_name([sample["seconds"] for sample in samples]),
        "worst": [sample["worst"] for sample in samples],
        "stages": [_stage_columns([sample["stages"][number] for sample in samples]) for number in range(stages)],
    }


def _stage_columns(samples: Sequence[Json]) -> Json:
    sides = min((len(sample["sides"]) for sample in samples), default=0)
    return {
        **{name: [sample[name] for sample in samples] for name in _STAGE},
        "work": _by_name([sample["work"] for sample in samples]),
        "sides": [
            {name: [sample["sides"][side][name] for sample in samples] for name in _SIDE} for side in range(sides)
        ],
    }


def _by_name(samples: Sequence[Json]) -> Json:
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {name: [sample.get(name, 0.0) for sample in samples] for name in names}
