"""What a site says about its part of a micro-batch: its record, made of what its shares report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fluxen.arrays import MIN_TIME, Floats, Ints, Json, Mask
from fluxen.operators.base import Input, SiteInput, SiteOutput
from fluxen.operators.join.observe import combined
from fluxen.site.backlog import Backlog
from fluxen.site.context import SiteContext
from fluxen.site.shares import Share
from fluxen.state.history import ranked
from fluxen.state.record import GroupStats, HeavyKeys, SideStats, SiteRecord
from fluxen.state.routing import Routing
from fluxen.state.segment import SegmentRef
from fluxen.state.sorted_run import SortedRun

HEAVY_KEYS = 64
"""Keys per site and batch reported with their counts."""


class PieceTotals:
    """What the pieces of a batch have left behind, together."""

    def __init__(self, sides: int, inputs: int, routing: Routing) -> None:
        self.state: list[list[pa.Table]] = [[] for _ in range(sides)]
        self.late = [0] * inputs
        self.distinct = 0
        self.dropped_sides: set[int] = set()
        self.observed: Json = {}
        self.delays: dict[int, int] = {}
        """rows processed, by the number of epochs they have waited"""
        self.rows_in: Ints = np.zeros(routing.size, dtype=np.int64)
        """rows of the source per group"""
        self.worked: Ints = np.zeros(routing.size, dtype=np.int64)
        """the same rows as the operator sees them, which may stand for several each"""
        self.rows_out: Ints = np.zeros(routing.size, dtype=np.int64)
        """results per group"""

    def add(self, given: SiteInput, output: SiteOutput, waited: int) -> None:
        for tables, table in zip(self.state, output.state):
            if table is not None and table.num_rows:
                tables.append(table)
        rows_late = dict(enumerate(output.late))
        processed = 0
        for number, rows in enumerate(given.inputs):
            copied = given.routing.copied(number, rows.h)
            self._count(rows, given.routing, copied)
            processed += rows.rows
            if copied is not None:
                processed -= int(copied.sum())
                rows_late[number] = rows_late.get(number, 0) - int((rows.t[copied] < given.late_before[number]).sum())
        for number, late in rows_late.items():
            self.late[number] += late
        self.distinct += output.distinct
        self.dropped_sides.update(output.dropped_sides)
        self.observed = with_work(combined(self.observed, output.observed), [self.observed, output.observed])
        if output.rows_out is not None:
            self.rows_out += output.rows_out
        if processed:
            self.delays[waited] = self.delays.get(waited, 0) + processed

    def _count(self, rows: Input, routing: Routing, copied: Mask | None) -> None:
        """Copies that every member of a family needs are work, but no rows of the source."""
        if len(rows.h) == 0:
            return
        groups = routing.groups(rows.h)
        worked = np.bincount(groups, minlength=routing.size)
        self.worked += worked
        if rows.weight is not None:
            worked = np.bincount(groups, weights=rows.weight, minlength=routing.size).astype(np.int64)
        if copied is not None:
            worked = worked - np.bincount(groups[copied], minlength=routing.size)
        self.rows_in += worked


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareReport:
    """What came of one share of a site's work."""

    share: Share
    totals: PieceTotals
    backlog: Backlog
    runs: list[list[SortedRun]]
    """the state of each side after the batch"""
    added: list[SegmentRef]
    consumed: list[tuple[str, tuple[tuple[int, int], ...]]]
    rows_out: int
    rows_owed: int
    swapped_bytes: int

    @property
    def routing(self) -> Routing:
        return self.share.before.routing


def reported(context: SiteContext, site: int, received: list[Input], done: Sequence[ShareReport]) -> SiteRecord:
    """The site's record, but for times and places; its own groups come first in `done`."""
    operator, own = context.operator, done[0]
    # where copies process rows of their own, these count; where they process the receiver's once more, they do not
    counted = done[:1] if operator.division == "results" else done
    return SiteRecord(
        epoch=context.epoch,
        stage=context.stage,
        site=site,
        added=[ref for part in done for ref in part.added],
        consumed=[taken for part in done for taken in part.consumed],
        sides=[
            _side_stats(side, received[side] if side < operator.inputs else None, done, counted)
            for side in range(max(operator.inputs, operator.sides))
        ],
        groups=_group_stats(context, done),
        heavy=_heavy(done, counted, bool(operator.deals)) if context.track_heavy else HeavyKeys(),
        rows_out=sum(part.rows_out + part.rows_owed for part in done),
        rows_owed=sum(part.rows_owed for part in done),
        swapped_bytes=own.swapped_bytes,
        delays=sorted(own.totals.delays.items()),
        observed=with_work(own.totals.observed, [part.totals.observed for part in done]),
    )


def with_work(observed: Json, all_of_it: Sequence[Json]) -> Json:
    """What was observed, with the work of all the observations added up."""
    works = [each["work"] for each in all_of_it if "work" in each]
    return {**observed, "work": {name: sum(work[name] for work in works) for name in works[0]}} if works else observed


def _side_stats(
    side: int, received: Input | None, done: Sequence[ShareReport], counted: Sequence[ShareReport]
) -> SideStats:
    """One side of the operator, and the input of that number if there is one."""
    state_rows = state_bytes = 0
    for part in done:
        for run in part.runs[side] if side < len(part.runs) else ():
            mine = int(run.rows_per_group(part.routing).sum())
            state_rows += mine
            state_bytes += run.ref.bytes * mine // max(run.ref.rows, 1)
    if received is None:
        return SideStats(state_rows=state_rows, state_bytes=state_bytes)
    held = done[0].backlog.held(side)  # of copies nothing waits
    return SideStats(
        rows_in=sum(_rows_in(part, side) for part in counted),
        distinct=sum(part.totals.distinct for part in counted) if side == 0 else 0,
        late=sum(part.totals.late[side] for part in counted),
        max_time=max(_times(received), default=None),
        state_rows=state_rows,
        state_bytes=state_bytes,
        waiting_rows=held.rows,
        waiting_bytes=held.bytes,
        waiting_since=held.since,
    )


def _rows_in(part: ShareReport, side: int) -> int:
    """Rows of the source that came with the batch."""
    rows = part.share.inputs[side]
    copied = part.routing.copied(side, rows.h)
    return rows.rows if copied is None else rows.rows - int(copied.sum())


def _times(rows: Input) -> list[int]:
    """The latest event times among an input's rows, of those without a key as well; null times count as none."""
    latest = [*([int(rows.t.max())] if len(rows.t) else []), *([] if rows.hidden is None else [rows.hidden])]
    return [time for time in latest if time > MIN_TIME]


def _group_stats(context: SiteContext, done: Sequence[ShareReport]) -> GroupStats:
    columns: dict[str, list[int]] = {name: [] for name in GroupStats.__slots__}
    for part in done:
        totals, backlog = part.totals, part.backlog.rows_per_group()
        held = np.zeros(part.routing.size, dtype=np.float64)
        for run in (run for side in part.runs for run in side):
            held += run.rows_per_group(part.routing) * (run.ref.bytes / max(run.ref.rows, 1))
        stored = held.astype(np.int64)
        touched = np.flatnonzero((totals.rows_in > 0) | (stored > 0) | (totals.rows_out > 0) | (backlog > 0))
        columns["group"] += touched.tolist()
        columns["rows_in"] += totals.rows_in[touched].tolist()
        columns["rows_out"] += totals.rows_out[touched].tolist()
        columns["worked"] += totals.worked[touched].tolist()
        columns["arrived"] += part.backlog.arrived()[touched].tolist() if context.track_heavy else []
        columns["bytes"] += stored[touched].tolist()
        columns["rank"] += _rank(context, part, held, touched)
        columns["backlog"] += backlog[touched].tolist()
    return GroupStats(**columns)


def _rank(context: SiteContext, part: ShareReport, held: Floats, groups: Ints) -> list[int]:
    """The site's own ranking of its groups, for deciding how much to push or move."""
    if context.before.history is None:
        return []
    results = context.before.history.sized(part.routing.size).after(held, part.totals.rows_out, 0.0)
    return ranked((results.recent if context.recency else results.output)[groups], held[groups])


def _heavy(done: Sequence[ShareReport], counted: Sequence[ShareReport], by_input: bool) -> HeavyKeys:
    """The keys with most rows of the source, how many came here of them, and what their state takes.

    Members of a family are one key.
    """
    routing = done[0].routing
    inputs = [(number, given) for part in counted for number, given in enumerate(part.share.inputs)]
    hashes: Ints = np.concatenate([routing.heads(given.h) for _, given in inputs])
    keys, arrived = np.unique(hashes, return_counts=True)
    rows = arrived
    ones = np.concatenate([_stands_for(number, given, routing) for number, given in inputs])
    if routing.families or any(given.weight is not None for _, given in inputs):
        at = np.searchsorted(keys, hashes)
        rows = np.bincount(at, weights=ones, minlength=len(keys)).astype(np.int64)
    top = np.sort(np.argsort(rows, kind="stable")[::-1][:HEAVY_KEYS])
    top = top[rows[top] > 1]
    held = np.zeros(len(top))
    for part in done:
        groups = part.routing.groups(keys[top])
        for run in (run for side in part.runs for run in side):
            low, high = run.lookup(keys[top], groups)
            held += (high - low) * (run.ref.bytes / max(run.ref.rows, 1))
    each: list[list[int]] = []
    if by_input and len(top):
        count = len(done[0].share.inputs)
        at = np.minimum(np.searchsorted(keys[top], hashes), len(top) - 1)
        of = np.concatenate([np.full(len(given.h), number) for number, given in inputs])
        mine = np.flatnonzero(keys[top][at] == hashes)
        found = np.bincount(at[mine] * count + of[mine], weights=ones[mine], minlength=len(top) * count)
        each = found.astype(np.int64).reshape(len(top), count).tolist()
    return HeavyKeys(
        key=keys[top].tolist(),
        rows=rows[top].tolist(),
        arrived=arrived[top].tolist(),
        bytes=held.astype(np.int64).tolist(),
        inputs=each,
    )


def _stands_for(number: int, rows: Input, routing: Routing) -> Ints:
    """Rows of the source that each row is: none for the copies of other members."""
    count = np.ones(len(rows.h), dtype=np.int64) if rows.weight is None else rows.weight
    copied = routing.copied(number, rows.h)
    return count if copied is None else np.where(copied, 0, count)
