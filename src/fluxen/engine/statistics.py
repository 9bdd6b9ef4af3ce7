"""Notes every committed epoch for people: what `fluxen.state.statistics` keeps in the checkpoint.

An epoch costs some arithmetic on what its sites have reported; files are written once a second, or every `MOST` epochs.
A disk that refuses them ends no query: what could not be written is left out, with a warning in the log.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluxen.arrays import MAX_TIME, Floats, Json
from fluxen.control.adaptation import Adaptation
from fluxen.control.memory.rotation import capacity_of
from fluxen.control.stage import Stage
from fluxen.engine.checks import named
from fluxen.engine.totals import Totals
from fluxen.errors import FluxenError
from fluxen.state.epoch import Epoch, StageState
from fluxen.state.statistics import Detail, StageDetail, Statistics
from fluxen.state.store import Store

__all__ = ["Recorder"]

EVERY = 1.0
"""Seconds between two writes."""
MOST = 16
"""Epochs that wait to be written."""
SITE_WORK = ("wait", "load", "operator", "emit", "write", "merge", "cleanup", "pack")
_LOG = logging.getLogger("fluxen.statistics")


class Recorder:
    """The statistics of one run."""

    def __init__(self, store: Store, stages: Sequence[Stage], adaptations: Sequence[Adaptation], name: str) -> None:
        self.log = Statistics(store)
        self._stages, self._adaptations = list(stages), list(adaptations)
        self._query = described(stages, adaptations, name)
        self._totals: Totals | None = None
        self._series: list[Json] = []
        self._detail: list[Detail] = []
        self._now: Json = {}
        self._epoch: Epoch | None = None
        self._at = time.monotonic()
        self._lock = threading.RLock()  # a run's end does not wait for its last batch

    def note(self, epoch: Epoch, entry: Json, lasted: float, events: Sequence[Json]) -> None:
        """An epoch was committed; `entry` is its progress, `lasted` the seconds it took in all."""
        with self._lock:
            self._note(epoch, entry, lasted, events)

    def _note(self, epoch: Epoch, entry: Json, lasted: float, events: Sequence[Json]) -> None:
        if not entry["stages"]:
            return  # not one row has come yet, so no site has told of anything
        at = time.time()
        if self._totals is None:
            self._totals = Totals.of(self.log.now().get("totals"), len(self._stages))
        # what it holds is the next epoch's placement; what its sites reported was under the one before
        details = tuple(_detail(state, seen) for state, seen in zip(epoch.stages, epoch.stats.get("stages", [])))
        sample = _sample(epoch, entry, lasted, at, details)
        self._totals.add(sample, details, events)
        self._series.append(sample)
        self._detail.append(Detail(first=epoch.number, last=epoch.number, at=at, stages=details))
        self._epoch, self._now = epoch, sample
        if len(self._series) >= MOST or time.monotonic() - self._at >= EVERY:
            self.flush()

    def keep_up(self) -> None:
        """Write what has waited for long enough: where no epoch follows, nobody else does."""
        with self._lock:
            if self._series and time.monotonic() - self._at >= EVERY:
                self._flush(None)

    def flush(self, ended: Json | None = None) -> None:
        """Write what waits; `ended` tells of the run's end."""
        with self._lock:
            self._flush(ended)

    def _flush(self, ended: Json | None) -> None:
        if self._epoch is None or self._totals is None:
            return
        series, self._series = self._series, []
        detail, self._detail = self._detail, []
        now = {
            "query": self._query,
            "epoch": self._now,
            "stages": [
                _newest(state, adaptation, seen) | _columns(seen)
                for state, adaptation, seen in zip(
                    self._epoch.stages, self._adaptations, self._epoch.stats.get("stages", [])
                )
            ],
            "totals": self._totals.to_json(),
            "ended": ended,
        }
        try:
            self.log.write(series, detail, now)
        except (FluxenError, OSError) as error:
            _LOG.warning("statistics of epochs up to %s are lost: %s", self._epoch.number, error)
        self._at = time.monotonic()

    def close(self, error: BaseException | None = None) -> None:
        """The run has ended."""
        why = None if error is None else f"{type(error).__name__}: {error}"
        self.flush({"at": time.time(), "error": why})


def described(stages: Sequence[Stage], adaptations: Sequence[Adaptation], name: str) -> Json:
    """What does not change while a run goes on."""
    return {
        "name": name,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": time.time(),
        "stages": [
            {
                "name": named(number, stage.operator),
                "inputs": _inputs(stage),
                "keeps": stage.operator.keeps("the time of batches" if stage.on_arrival else "event time"),
                "policy": type(adaptation.manager.policy).__name__,
                "partitioner": None
                if adaptation.repartitioner is None
                else type(adaptation.repartitioner.partitioner).__name__,
            }
            for number, (stage, adaptation) in enumerate(zip(stages, adaptations))
        ],
    }


def _inputs(stage: Stage) -> list[Json]:
    names = stage.operator.identity().get("inputs", [])
    if len(names) != stage.operator.inputs:
        names = [f"input {number + 1}" for number in range(stage.operator.inputs)]
    return [{"name": name, "stage": feed.stage} for name, feed in zip(names, stage.inputs)]


def _sample(epoch: Epoch, entry: Json, lasted: float, at: float, details: Sequence[StageDetail]) -> Json:
    """The epoch's row in the series: short names would save little, as old rows are rolled up anyway."""
    latency = entry["latency_seconds"]
    done = sum(n for stage in entry["stages"] for site in stage["sites"] for _, n in site["delays"])
    stages = [_stage_sample(state, seen, detail) for state, seen, detail in zip(epoch.stages, entry["stages"], details)]
    return {
        "first": epoch.number,
        "last": epoch.number,
        "at": round(at, 3),
        "epochs": 1,
        "flushes": int(entry["batch"] is None),
        **{name: entry[name] for name in ("rows_in", "results", "late", "state_rows", "state_bytes", "waiting_rows")},
        "owed": entry["results_owed"],
        "spilled_bytes": int(sum(float(detail.sites["spilled"].sum()) for detail in details)),
        "seconds": entry["seconds"],
        "lasted": round(lasted, 6),
        "waited": 0.0 if latency is None else round(latency * done, 6),
        "done": done,
        "worst": _worst(epoch.number, lasted, entry),
        "stages": stages,
    }


def _worst(number: int, lasted: float, entry: Json) -> Json:
    """Which site an epoch waited for: the longest epoch's answer is kept where epochs become one sample."""
    worst: Json = {"epoch": number, "seconds": round(lasted, 6), "phases": entry["seconds"], "sites": []}
    for stage in entry["stages"]:
        busy = [site["busy_seconds"] for site in stage["sites"]]
        slowest = int(np.argmax(busy)) if busy else 0
        worst["sites"].append(
            {
                "site": slowest,
                "busy": max(busy, default=0.0),
                "mean": round(sum(busy) / max(len(busy), 1), 6),
                "seconds": stage["sites"][slowest]["seconds"] if busy else {},
            }
        )
    return worst


def _stage_sample(state: StageState, seen: Json, detail: StageDetail) -> Json:
    sites = seen["sites"]
    work: dict[str, float] = {}
    for site in sites:
        for name, value in site["seconds"].items():
            work[name] = work.get(name, 0.0) + value
    busy = [site["busy_seconds"] for site in sites]
    return {
        **{name: sum(site[name] for site in sites) for name in ("rows_in", "rows_out", "rows_owed", "late")},
        **{name: sum(site[name] for site in sites) for name in ("state_rows", "state_bytes", "waiting_rows")},
        "swapped": sum(site["swapped_bytes"] for site in sites),
        "spilled_bytes": int(float(detail.sites["spilled"].sum())),
        "busy": round(sum(busy), 6),
        "slowest": max(busy, default=0.0),
        "work": {name: round(value, 6) for name, value in work.items()},
        "sites": len(sites),
        "groups": state.routing.size,
        "keys": len(state.routing.explicit),
        "sides": [
            {
                **{name: side[name] for name in ("rows_in", "late", "state_rows", "state_bytes", "waiting_rows")},
                "watermark": seen["watermarks"][number] if number < len(seen["watermarks"]) else None,
            }
            for number, side in enumerate(seen["sides"])
        ],
    }


def _detail(state: StageState, seen: Json) -> StageDetail:
    """Columns over sites and groups; sites that come or go with the next batch have reported nothing."""
    size, count = state.routing.size, max(state.routing.sites, len(seen["sites"]))
    sites = seen["sites"]
    spilled = _spilled(state, seen)
    on_disk = np.bincount(state.routing.table, weights=spilled, minlength=count)

    def per_site(name: str) -> Any:
        return _padded([site[name] for site in sites], count)

    def per_group(name: str) -> Any:
        return _padded(seen["groups"][name], size)

    return StageDetail(
        sites={
            "rows_in": per_site("rows_in"),
            "rows_out": per_site("rows_out"),
            "busy": per_site("busy_seconds"),
            "late": per_site("late"),
            "bytes": per_site("state_bytes"),
            "spilled": on_disk[:count].astype(np.float32),
        },
        groups={
            "rows_in": per_group("rows_in"),
            "rows_out": per_group("rows_out"),
            "bytes": per_group("bytes"),
            "spilled": spilled.astype(np.float32),
            "site": state.routing.table.astype(np.float32),
        },
    )


def _padded(values: Sequence[float], size: int) -> Any:
    column = np.zeros(max(size, len(values)), dtype=np.float32)
    column[: len(values)] = values
    return column


def _spilled(state: StageState, seen: Json) -> Floats:
    """Bytes on disk per group: generations that were spilled, and groups whose turn in memory is over."""
    size = state.routing.size
    spilled = np.zeros(size) if state.history is None else state.history.sized(size).spilled
    if state.residence is None:
        return spilled
    held = _padded(seen["groups"]["bytes"], size).astype(np.float64)
    return spilled + np.where(state.residence.sized(size).on_disk, held[:size], 0.0)


def _newest(state: StageState, adaptation: Adaptation, seen: Json) -> Json:
    """Where everything is after the newest epoch, and what it may take."""
    routing = state.routing
    limit = None if adaptation.memory is None else capacity_of(adaptation.memory, routing.sites).astype(int).tolist()
    spilled = _spilled(state, seen)
    trees = None
    if state.trees is not None:
        known = sorted(set(state.trees.sites))
        trees = {"known": known, "site": [known.index(text) for text in state.trees.sites]}
    return {
        "sites": routing.sites,
        "partitions": routing.partitions,
        "placement": routing.table.tolist(),
        # as text: key hashes have more digits than a browser's numbers
        "keys": [[str(h), group] for h, group in routing.own_groups().items()],
        "limit": limit,
        "trees": trees,
        "watermarks": [None if abs(mark) >= MAX_TIME else mark for mark in state.watermarks],
        "moving": [group for group, _ in state.arriving] + [track.group for track in state.tracks],
        "group_spilled": spilled.astype(int).tolist() if spilled.any() else [],
        "site_spilled": np.bincount(routing.table, weights=spilled, minlength=routing.sites).astype(int).tolist(),
        "on_disk": [] if state.residence is None else np.flatnonzero(state.residence.on_disk).tolist(),
    }


def _columns(seen: Json) -> Json:
    """The sites of the newest epoch as columns, and its groups."""
    names = ("host", "executor", "rows_in", "rows_out", "late", "state_rows", "state_bytes", "waiting_rows")
    sites = seen["sites"]
    return {
        "site_columns": {
            **{name: [site[name] for site in sites] for name in names},
            "busy": [site["busy_seconds"] for site in sites],
            **{name: [round(site["seconds"].get(name, 0.0), 4) for site in sites] for name in SITE_WORK},
        },
        "group_columns": {name: seen["groups"][name] for name in ("rows_in", "rows_out", "bytes")},
    }
