"""`fluxen inspect CHECKPOINT`: what a checkpoint holds, and whether every file of it is whole.

Reads the files alone, so it needs neither Java nor the query, and may look at a checkpoint that a query is writing.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fluxen.arrays import MAX_TIME, Ints, Json
from fluxen.cli.progress import event_line, size, stamp
from fluxen.errors import DamagedError, FluxenError
from fluxen.state.claim import current
from fluxen.state.epoch import EPOCHS, IDENTITY, Epoch, EpochLog, StageState, opened
from fluxen.state.events import EventLog
from fluxen.state.packed import PackedSegment
from fluxen.state.record import unseal
from fluxen.state.routing import mask_of
from fluxen.state.segment import SegmentRef, open_segment, verify_segment
from fluxen.state.sorted_run import SortedRun
from fluxen.state.store import Store

__all__ = ["add_parser", "inspect", "run"]

SHOWN_EVENTS = 10


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "inspect",
        help="show what a checkpoint holds and verify it",
        description="Epochs, placement, sizes per site and partition group, spilled generations and events of a "
        "checkpoint; reads and verifies every file its epochs refer to. Exit code 1 if one is damaged or missing.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation, a path or a URI")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    found = inspect(args.checkpoint)
    if args.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        _show(found)
    for problem in found["problems"]:
        sys.stderr.write(f"fluxen: {problem['problem']}\n")
    return 0 if found["ok"] else 1


@dataclass(slots=True)
class _Check:
    """What has been read so far and what was wrong with it."""

    store: Store
    verified: set[str] = field(default_factory=set)
    bytes: int = 0
    problems: list[Json] = field(default_factory=list)

    def segment(self, ref: SegmentRef) -> None:
        if ref.name in self.verified or any(problem["file"] == ref.name for problem in self.problems):
            return
        try:
            verify_segment(self.store, ref)
        except FluxenError as error:
            self.problem(ref.name, error)
        else:
            self.verified.add(ref.name)
            self.bytes += ref.bytes

    def problem(self, name: str, error: Exception) -> None:
        self.problems.append({"file": name, "problem": str(error)})


def inspect(checkpoint: str) -> Json:
    """Everything `fluxen inspect --json` prints."""
    store = opened(checkpoint)
    check = _Check(store)
    epochs = _epochs(check)
    newest = epochs[-1] if epochs else None
    return {
        "checkpoint": checkpoint,
        "query": _sealed(check, IDENTITY),
        "claim": None if (holder := current(store)) is None else holder.to_json(),
        "epochs": [_epoch(epoch) for epoch in epochs],
        "stages": [_stage(check, newest, number) for number in range(len(newest.stages))] if newest else [],
        "events": EventLog(store).read(check.problem),
        "verified": {"segments": len(check.verified), "bytes": check.bytes},
        "problems": check.problems,
        "ok": not check.problems,
    }


def _sealed(check: _Check, name: str) -> Json:
    try:
        return unseal(check.store.read(name), check.store.path(name))
    except DamagedError as error:
        check.problem(name, error)
        return {}


def _epochs(check: _Check) -> list[Epoch]:
    """The epochs that could be read, with all their segments verified, oldest first."""
    log = EpochLog(check.store)
    epochs = []
    for number in log.numbers():
        name = f"{EPOCHS}/{number:010d}.json"
        before = len(check.problems)
        try:
            epoch = log.load(number)
            for stage in epoch.stages:
                for ref in (*stage.segments, *stage.buffer):
                    check.segment(ref)
            epochs.append(epoch)
        except FluxenError as error:
            check.problem(name, error)
        if len(check.problems) > before and not check.store.exists(name):
            # a running query has forgotten this epoch meanwhile, and its segments with it
            del check.problems[before:]
            epochs = [epoch for epoch in epochs if epoch.number != number]
    return epochs


def _epoch(epoch: Epoch) -> Json:
    refs = [ref for stage in epoch.stages for ref in stage.segments]
    return {
        "epoch": epoch.number,
        "batch": epoch.batch,
        "sites": [stage.routing.sites for stage in epoch.stages],
        "watermarks": [_marks(stage) for stage in epoch.stages],
        "segments": len(refs),
        "segment_rows": sum(ref.rows for ref in refs),
        "segment_bytes": sum(ref.bytes for ref in refs),
    }


def _marks(state: StageState) -> list[int | None]:
    """Watermarks in microseconds since 1970; None before the first row and after the last."""
    return [None if abs(mark) >= MAX_TIME else mark for mark in state.watermarks]


def _stage(check: _Check, epoch: Epoch, number: int) -> Json:
    """One stage at the newest epoch: who owns what and how big it is, counted from the segments themselves."""
    state = epoch.stages[number]
    routing = state.routing
    active = [ref for ref in state.segments if ref.kind == "state" and ref.name in check.verified]
    spilled = [ref for ref in state.segments if ref.kind == "generation" and ref.name in check.verified]
    rows, held = _sizes(check.store, state, active)
    spilled_rows, spilled_bytes = _sizes(check.store, state, spilled)
    groups = [
        {
            "group": group,
            "site": int(routing.table[group]),
            "rows": int(rows[group]),
            "bytes": int(held[group]),
            "spilled_rows": int(spilled_rows[group]),
            "spilled_bytes": int(spilled_bytes[group]),
        }
        for group in range(routing.size)
    ]
    return {
        "stage": number,
        "partitions": routing.partitions,
        "placement": routing.table.tolist(),
        "explicit_keys": len(np.unique(routing.heads(routing.explicit))) - len(routing.retired),
        "split_keys": [{"sites": routing.table[routing.members(one)].tolist()} for one in routing.families],
        "segments": len(state.segments),
        "sites": [_site(groups, site) for site in range(routing.sites)],
        "groups": groups,
        "generations": [
            {"generation": ref.generation, "side": ref.side, "file": ref.name, "rows": ref.rows, "bytes": ref.bytes}
            for ref in spilled
        ],
    }


def _site(groups: list[Json], site: int) -> Json:
    mine = [group for group in groups if group["site"] == site]
    totals = {name: sum(group[name] for group in mine) for name in ("rows", "bytes", "spilled_rows", "spilled_bytes")}
    return {"site": site, "groups": len(mine), **totals}


def _sizes(store: Store, state: StageState, refs: list[SegmentRef]) -> tuple[Ints, Ints]:
    """Rows and bytes per partition group that still count in these segments."""
    rows = np.zeros(state.routing.size, dtype=np.int64)
    held = np.zeros(state.routing.size, dtype=np.float64)
    for ref in refs:
        live = mask_of(ref.live, state.routing.size)
        if ref.packed:
            counts = PackedSegment(store, ref).rows_per_group(state.routing, live)
        else:
            counts = SortedRun(ref, open_segment(store, ref), live, bool(live.all())).rows_per_group(state.routing)
        rows += counts
        held += counts * (ref.bytes / max(ref.rows, 1))
    return rows, held.astype(np.int64)


def _show(found: Json) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    holder = found["claim"]
    used = f", in use by process {holder['pid']} on {holder['host']}" if holder else ""
    console.print(f"checkpoint {found['checkpoint']}{used}")
    table = _table("epoch", "batch", "sites", "watermark", "segments", "rows", "bytes")
    for epoch in found["epochs"]:
        marks = [
            stamp(min((mark for mark in stage if mark is not None), default=None)) for stage in epoch["watermarks"]
        ]
        table.add_row(
            str(epoch["epoch"]),
            str(epoch["batch"]),
            " ".join(map(str, epoch["sites"])),
            " | ".join(marks),
            str(epoch["segments"]),
            f"{epoch['segment_rows']:,}",
            size(epoch["segment_bytes"]),
        )
    console.print(table)
    for stage in found["stages"]:
        console.print(f"\nstage {stage['stage']}: {stage['partitions']} partition groups, {stage['segments']} segments")
        console.print(_sites(stage))
    if found["events"]:
        console.print("\nlast events")
    for event in found["events"][-SHOWN_EVENTS:]:
        console.print(f"  {event_line(event)}")
    verified = found["verified"]
    wrong = f", {len(found['problems'])} WRONG" if found["problems"] else ", all whole"
    console.print(f"\nread {verified['segments']} segments, {size(verified['bytes'])}{wrong}")


def _sites(stage: Json) -> Table:
    table = _table("site", "groups", "rows", "bytes", "spilled", "largest group")
    for site in stage["sites"]:
        mine = [group for group in stage["groups"] if group["site"] == site["site"]]
        largest = max(mine, key=lambda group: int(group["bytes"]), default=None)
        table.add_row(
            str(site["site"]),
            str(site["groups"]),
            f"{site['rows']:,}",
            size(site["bytes"]),
            size(site["spilled_bytes"]) if site["spilled_bytes"] else "",
            f"{largest['group']} ({size(largest['bytes'])})" if largest else "",
        )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right")
    return table
