"""A checkpoint as a large query leaves it after a long time: written by the log itself, from samples made up here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fluxen.engine.totals import BUCKETS
from fluxen.state.epoch import IDENTITY
from fluxen.state.events import EventLog
from fluxen.state.record import seal
from fluxen.state.statistics import Detail, StageDetail, Statistics
from fluxen.state.store import Store

START = 1_780_000_000.0
ADAPTS_EVERY = 10
"""Epochs between two adaptations."""


def written(
    directory: Path, *, sites: int = 1_000, groups: int = 4_096, epochs: int = 100_000, name: str = "large"
) -> Path:
    """The checkpoint's directory; one epoch a second, a group moved in every tenth."""
    store = Store(str(directory))
    store.create(IDENTITY, seal({"version": 2, "stages": [], "partitions": groups}))
    statistics, log = Statistics(store), EventLog(store)
    rng = np.random.default_rng(1)
    table = (np.arange(groups) * sites // groups).astype(np.float32)
    loads = rng.zipf(1.4, groups).clip(max=5_000).astype(np.float32) * 10
    series: list[dict[str, Any]] = []
    detail: list[Detail] = []
    for epoch in range(epochs):
        if epoch % ADAPTS_EVERY == 0:
            group, site = int(rng.integers(groups)), int(rng.integers(sites))
            log.note(epoch, [event(epoch, group, int(table[group]), site)])
            table = table.copy()
            table[group] = site
        seen = detailed(rng, table, loads * np.float32(1 + 0.5 * np.sin(epoch / 500)), sites)
        detail.append(Detail(first=epoch, last=epoch, at=START + epoch, stages=(seen,)))
        series.append(sample(epoch, seen, sites, groups))
        if len(series) == 64 or epoch + 1 == epochs:
            statistics.write(series, detail, newest(series[-1], seen, name, epochs))
            series, detail = [], []
    return directory


def event(epoch: int, group: int, donor: int, receiver: int) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "stage": 0,
        "id": epoch,
        "when": START + epoch,
        "last": START + epoch,
        "kind": "move",
        "what": f"move group {group} from site {donor} to site {receiver}",
        "why": f"site {donor} is 1.4 times as busy as site {receiver}",
        "outcome": "done",
        "reason": "",
        "duration": 0.0,
        "bytes": 10_000 + group,
        "count": 1,
        "detail": {"pgs": [group], "donor": donor, "receiver": receiver},
    }


def detailed(rng: np.random.Generator, table: Any, loads: Any, sites: int) -> StageDetail:
    rows = rng.poisson(loads).astype(np.float32)
    at = table.astype(np.int64)
    busy = np.bincount(at, weights=rows, minlength=sites).astype(np.float32)
    size = rows * np.float32(640)
    held = np.bincount(at, weights=size, minlength=sites).astype(np.float32)
    none = np.zeros(sites, dtype=np.float32)
    return StageDetail(
        sites={"rows_in": busy, "rows_out": busy * 2, "busy": busy / 1e5, "late": none, "bytes": held, "spilled": none},
        groups={
            "rows_in": rows,
            "rows_out": rows * 2,
            "bytes": size,
            "spilled": np.zeros(len(rows), np.float32),
            "site": table,
        },
    )


def sample(epoch: int, seen: StageDetail, sites: int, groups: int) -> dict[str, Any]:
    """As `fluxen.engine.statistics` makes them."""
    rows, held = float(seen.sites["rows_in"].sum()), float(seen.sites["bytes"].sum())
    busy, slowest = float(seen.sites["busy"].sum()), float(seen.sites["busy"].max())
    side = {
        "rows_in": rows / 2,
        "late": epoch % 7,
        "state_rows": rows,
        "state_bytes": held / 2,
        "waiting_rows": 0,
        "watermark": int((START + epoch - 20) * 1e6),
    }
    worst = {
        "site": int(seen.sites["busy"].argmax()),
        "busy": slowest,
        "mean": busy / sites,
        "seconds": {"operator": slowest},
    }
    seconds = {"plan": 0.05, "run": 0.2 + slowest, "commit": 0.04}
    lasted = sum(seconds.values())
    return {
        "first": epoch,
        "last": epoch,
        "at": START + epoch,
        "epochs": 1,
        "flushes": 0,
        "rows_in": rows,
        "results": rows * 2,
        "late": epoch % 7,
        "state_rows": rows,
        "state_bytes": held,
        "waiting_rows": 0,
        "owed": 0,
        "spilled_bytes": 0,
        "seconds": seconds,
        "lasted": lasted,
        "waited": rows * lasted,
        "done": rows,
        "worst": {"epoch": epoch, "seconds": lasted, "phases": seconds, "sites": [worst]},
        "stages": [
            {
                "rows_in": rows,
                "rows_out": rows * 2,
                "rows_owed": 0,
                "late": epoch % 7,
                "state_rows": rows,
                "state_bytes": held,
                "waiting_rows": 0,
                "swapped": 0,
                "spilled_bytes": 0,
                "busy": busy,
                "slowest": slowest,
                "work": {"operator": busy * 0.7, "write": busy * 0.3},
                "sites": sites,
                "groups": groups,
                "keys": 0,
                "sides": [side, dict(side)],
            }
        ],
    }


def newest(epoch: dict[str, Any], seen: StageDetail, name: str, epochs: int) -> dict[str, Any]:
    sites, zero = len(seen.sites["rows_in"]), [0.0] * len(seen.sites["rows_in"])
    stage = {
        "name": "stage 1 (join)",
        "inputs": [{"name": "a", "stage": None}, {"name": "b", "stage": None}],
        "keeps": ["rows of a", "rows of b"],
        "policy": "FluxLoad",
        "partitioner": None,
    }
    columns = {
        column: seen.sites[key].tolist()
        for column, key in (
            ("rows_in", "rows_in"),
            ("rows_out", "rows_out"),
            ("state_bytes", "bytes"),
            ("busy", "busy"),
        )
    }
    return {
        "query": {"name": name, "fluxen": "0", "host": "host", "pid": 1, "started": START, "stages": [stage]},
        "epoch": epoch,
        "stages": [
            {
                "sites": sites,
                "partitions": len(seen.groups["site"]),
                "placement": seen.groups["site"].astype(int).tolist(),
                "keys": [],
                "limit": [8_000_000] * sites,
                "trees": None,
                "watermarks": [int((START + epochs - 20) * 1e6)] * 2,
                "moving": [],
                "group_spilled": [],
                "site_spilled": [0] * sites,
                "on_disk": [],
                "site_columns": {
                    **columns,
                    "host": [f"worker-{site // 8}" for site in range(sites)],
                    "executor": [str(site // 8) for site in range(sites)],
                    "late": zero,
                    "state_rows": zero,
                    "waiting_rows": zero,
                    "operator": columns["busy"],
                },
                "group_columns": {column: seen.groups[column].tolist() for column in ("rows_in", "rows_out", "bytes")},
            }
        ],
        "totals": {
            "epochs": epochs,
            "flushes": 0,
            "rows_in": 1e9,
            "results": 2e9,
            "late": 300_000,
            "seconds": {"run": 1e4},
            "lasted": 3e4,
            "buckets": [0] * 4 + [epochs] + [0] * (len(BUCKETS) - 4),
            "sites": [dict.fromkeys(("rows_in", "rows_out", "late", "busy"), zero)],
            "events": [[]],
        },
        "ended": {"at": START + epochs, "error": None},
    }
