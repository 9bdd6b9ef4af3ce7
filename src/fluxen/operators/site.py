"""One site's share of one micro-batch: load state, run the operator, yield results, write segments and the record.

The job is the same whether a Spark task (`fluxen.spark.stage`) or the test bench (`fluxen.testing`) runs it. It reads
only what the last committed epoch refers to and writes only files of its own, so it may run any number of times, at
once or after a crash. The commit record is written last: a site whose results were not read to the end leaves none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from fluxen.operators.ahead import copy_ahead
from fluxen.operators.backlog import Backlog, Held
from fluxen.operators.base import EMIT_ROWS, Divided, Input, SiteBatch, Spillable
from fluxen.operators.job import SiteJob
from fluxen.operators.spilling import Generations
from fluxen.operators.tracks import Share, division, shares
from fluxen.operators.writer import StateWriter
from fluxen.state.epoch import SEGMENTS, StageState
from fluxen.state.history import ranked
from fluxen.state.record import CommitRecord, GroupStats, HeavyKeys, SideStats, write_record
from fluxen.state.routing import Routing
from fluxen.state.runs import Run, memory_run, open_runs, visible
from fluxen.state.segment import SegmentRef
from fluxen.typing import MIN_TIME, Floats, Ints, Json

HEAVY_KEYS = 64
"""Keys per site and batch reported with their counts."""


class _Clock:
    """Seconds per activity."""

    def __init__(self, now: Callable[[], float]) -> None:
        activities = ("wait", "load", "operator", "emit", "write", "merge", "cleanup", "pack", "ahead")
        self.seconds = dict.fromkeys(activities, 0.0)
        self._now = now
        self._last = now()

    def spent(self, activity: str) -> None:
        now = self._now()
        self.seconds[activity] += now - self._last
        self._last = now

    def busy(self) -> float:
        """Time worked so far, the running operator included: neither waiting for rows nor for whoever takes results."""
        self.spent("operator")
        return sum(value for name, value in self.seconds.items() if name not in ("wait", "emit"))


def run_site(
    job: SiteJob, source: Callable[[], tuple[int | None, list[Input]]], attempt: str, where: tuple[str, str] = ("", "")
) -> Iterator[pa.Table]:
    """Process the rows `source` gives (with the site's index) and yield results; then write the record.

    A site that does not know which one it is leaves no record: nobody got a row in this batch.
    """
    clock = _Clock(job.clock)
    site, inputs = source()
    if site is None:
        return
    clock.spent("wait")
    if job.moment is not None:
        inputs = [replace(rows, t=np.full(len(rows.h), job.moment, dtype=np.int64)) for rows in inputs]
    parts: list[_Part] = []
    stays = division(job.operator, job.before, job.store)
    for number, share in enumerate(shares(job.before, site, inputs, stays)):
        part = _Part(job, site, share, f"{attempt}{'s' * number}")
        for table in part.owed():
            clock.spent("cleanup")
            yield table
            clock.spent("emit")
        clock.spent("cleanup")
        part.open()
        clock.spent("load")
        for table in part.results(clock.busy):
            clock.spent("operator")
            yield table
            clock.spent("emit")
        clock.spent("operator")
        part.writer.append(part.done.state)
        part.writer.keep(part.work)
        clock.spent("write")
        part.release()
        part.generations.pack(job.operator.sides)
        clock.spent("pack")
        part.writer.merge()
        clock.spent("merge")
        parts.append(part)
    own = parts[0]
    ahead_left = 0
    if job.before.arriving:
        ahead_left = copy_ahead(job.store, job.before, site, clock.busy(), job.clock)
        clock.spent("ahead")
    record = CommitRecord(
        epoch=job.epoch,
        stage=job.stage,
        site=site,
        added=[ref for part in parts for ref in (*part.generations.added, *part.writer.added)],
        consumed=[taken for part in parts for taken in (*part.generations.consumed, *part.writer.consumed)],
        sides=[_side_stats(parts, inputs, side) for side in range(max(job.operator.inputs, job.operator.sides))],
        groups=_group_stats(parts, arrivals=job.track_heavy),
        heavy=_heavy(parts) if job.track_heavy else HeavyKeys(),
        rows_out=sum(part.rows_out + part.rows_owed for part in parts),
        rows_owed=sum(part.rows_owed for part in parts),
        swapped_bytes=own.swapped,
        ahead_left=ahead_left,
        delays=sorted(own.done.delays.items()),
        seconds={name: round(value, 6) for name, value in clock.seconds.items()},
        host=where[0],
        executor=where[1],
        observed=_observed(parts),
    )
    write_record(job.store, record, attempt)
    _evict(job)


def _evict(job: SiteJob) -> None:
    """Forget copies of segments that no later batch of this stage will read."""
    if job.store.local:
        return
    named = {ref.name for ref in (*job.before.segments, *job.before.buffer)}

    def useless(name: str) -> bool:
        epoch, stage = name.split("-")[:2]
        whole = f"{SEGMENTS}/{name.split('.')[0]}.arrow"  # of a copy that is not finished, too
        return int(epoch) < job.epoch and int(stage) == job.stage and whole not in named

    job.store.evict(SEGMENTS, useless)


class _Part:
    """One share of the site's work: its state, its rows, what came of it."""

    batch: SiteBatch
    writer: StateWriter
    work: Backlog
    done: _Done

    def __init__(self, job: SiteJob, site: int, share: Share, attempt: str) -> None:
        self.job, self.site, self.share, self.attempt = replace(job, before=share.before), site, share, attempt
        self.operator = job.operator
        self.rows_out = self.rows_owed = self.swapped = 0
        self.generations = Generations(
            job.store,
            share.before,
            epoch=job.epoch,
            stage=job.stage,
            site=site,
            attempt=attempt,
            piece_bytes=job.piece_bytes,
            merge_limit=job.merge_limit,
        )

    def owed(self) -> Iterator[pa.Table]:
        """Results that generations on disk still owe."""
        if isinstance(self.operator, Spillable):
            for table in self.generations.owed(self.operator, self.operator.sides):
                self.rows_owed += table.num_rows
                yield table

    def open(self) -> None:
        before, routing, store = self.job.before, self.job.before.routing, self.job.store
        runs = []
        horizons = self.operator.horizons(before.watermarks, before.watermarks)
        for side in range(self.operator.sides):
            refs = visible(_side(before.segments, side), routing, self.site)
            active = open_runs(store, refs, routing, self.site, self.generations.hidden)
            runs.append(active + open_runs(store, self.generations.unspill(side, horizons[side]), routing, self.site))
        self.batch = SiteBatch(
            inputs=self.share.inputs,
            runs=[list(side) for side in runs],
            watermarks=before.watermarks,
            emitted=before.emitted,
            routing=routing,
            state=[None] * self.operator.sides,
            late=[0] * self.operator.inputs,
            rows_out=np.zeros(routing.size, dtype=np.int64),
            tree=self.share.tree,
            unlike=self.share.unlike,
            since=self.share.since,
            piece_bytes=self.job.piece_bytes,
        )
        self.batch.swapped = self.swapped = _swapped(before, runs)
        self.work = Backlog(
            store=store,
            epoch=self.job.epoch,
            stage=self.job.stage,
            site=self.site,
            before=before,
            sides=self.operator.sides,
            inputs=self.share.inputs,
            limit=self.job.limit(self.site),
            follow=self.job.follow,
        )
        self.done = _Done(self.batch)
        self.writer = StateWriter(self.job, self.site, self.attempt, runs, self.batch)
        self.writer.added.extend(self.generations.restored)

    def results(self, busy: Callable[[], float]) -> Iterator[pa.Table]:
        for piece in self.work.pieces(busy):
            self.done.begin(self.batch, piece.inputs(), self.work.late_before[piece.arrival])
            for table in self.operator.process(self.batch):
                self.rows_out += table.num_rows
                yield table
            self.done.end(self.batch, self.job.epoch - piece.arrival)

    def release(self) -> None:
        """Where memory is limited, let go of the pages the operator has touched before others are."""
        if self.job.piece_bytes is not None:
            self.batch.runs = []
            self.writer.reopen()


class _Done:
    """What the pieces of a batch have left behind: to the operator each piece is a batch of its own."""

    def __init__(self, batch: SiteBatch) -> None:
        self.state: list[list[pa.Table]] = [[] for _ in batch.state]
        self.distinct = 0
        self.delays: dict[int, int] = {}
        """rows processed, by the number of epochs they have waited"""
        self.rows_in: Ints = np.zeros(batch.routing.size, dtype=np.int64)
        """rows of the source per group"""
        self.worked: Ints = np.zeros(batch.routing.size, dtype=np.int64)
        """the same rows as the operator sees them, which may stand for several each"""
        self._pieces = 0

    def begin(self, batch: SiteBatch, inputs: list[Input], late_before: tuple[int, ...]) -> None:
        if self._pieces:
            for runs, table in zip(batch.runs, batch.state):
                if table is not None and table.num_rows:
                    runs.append(memory_run(table, batch.routing))
            batch.emitted = batch.watermarks  # the first piece has closed what the watermark closes
            batch.swapped = 0
        batch.inputs, batch.late_before, batch.distinct = inputs, late_before, 0
        batch.state = [None] * len(batch.state)
        self._pieces += 1

    def end(self, batch: SiteBatch, waited: int) -> None:
        for tables, table in zip(self.state, batch.state):
            if table is not None and table.num_rows:
                tables.append(table)
        self.distinct += batch.distinct
        for given in batch.inputs:
            self._count(given, batch.routing)
        rows = sum(given.rows for given in batch.inputs)
        if rows:
            self.delays[waited] = self.delays.get(waited, 0) + rows

    def _count(self, given: Input, routing: Routing) -> None:
        if len(given.h) == 0:
            return
        groups = routing.groups(given.h)
        worked = np.bincount(groups, minlength=routing.size)
        self.worked += worked
        if given.weight is not None:
            worked = np.bincount(groups, weights=given.weight, minlength=routing.size).astype(np.int64)
        self.rows_in += worked


def _swapped(before: StageState, runs: list[list[Run]]) -> int:
    """State of groups that come back from disk for this batch."""
    if before.residence is None or not before.residence.back.any():
        return 0
    back = before.residence.sized(before.routing.size).back
    total = 0.0
    for run in (run for side in runs for run in side):
        total += run.rows_per_group(before.routing)[back].sum() * (run.ref.bytes / max(run.ref.rows, 1))
    return int(total)


def _side(refs: tuple[SegmentRef, ...], side: int) -> list[SegmentRef]:
    return [ref for ref in refs if ref.side == side]


def _side_stats(parts: list[_Part], received: list[Input], side: int) -> SideStats:
    operator, own = parts[0].operator, parts[0]
    new = own.share.inputs[side] if side < operator.inputs else None
    counted = _counted(parts)
    times = _times(received[side]) if side < operator.inputs else []
    state_rows = state_bytes = 0
    for part in parts:
        for run in part.writer.runs[side] if side < operator.sides else []:
            mine = int(run.rows_per_group(part.batch.routing).sum())
            state_rows += mine
            state_bytes += run.ref.bytes * mine // max(run.ref.rows, 1)
    held = own.work.held(side) if new is not None else Held()
    return SideStats(
        rows_in=sum(part.share.inputs[side].rows for part in counted) if new is not None else 0,
        distinct=sum(part.done.distinct for part in counted) if side == 0 else 0,
        late=sum(part.batch.late[side] for part in counted) if side < operator.inputs else 0,
        max_time=max(times, default=None),
        state_rows=state_rows,
        state_bytes=state_bytes,
        waiting_rows=held.rows,
        waiting_bytes=held.bytes,
        waiting_since=held.since,
    )


def _times(rows: Input) -> list[int]:
    """The latest event times among an input's rows, of those without a key as well; null times count as none."""
    latest = [*([int(rows.t.max())] if len(rows.t) else []), *([] if rows.hidden is None else [rows.hidden])]
    return [time for time in latest if time > MIN_TIME]


def _counted(parts: list[_Part]) -> list[_Part]:
    """Where copies process rows of their own, these count; where they process the receiver's once more, they do not."""
    return parts if isinstance(parts[0].operator, Divided) else parts[:1]


def _group_stats(parts: list[_Part], *, arrivals: bool) -> GroupStats:
    columns: dict[str, list[int]] = {name: [] for name in GroupStats.__slots__}
    for part in parts:
        batch, rows_in, backlog = part.batch, part.done.rows_in, part.work.rows_per_group()
        arrived = part.work.arrived() if arrivals else None
        held = np.zeros(batch.routing.size, dtype=np.float64)
        for side in part.writer.runs:
            for run in side:
                held += run.rows_per_group(batch.routing) * (run.ref.bytes / max(run.ref.rows, 1))
        stored = held.astype(np.int64)
        known = (rows_in > 0) | (stored > 0) | (batch.rows_out > 0) | (backlog > 0)
        touched = np.flatnonzero(known)
        columns["group"] += touched.tolist()
        columns["rows_in"] += rows_in[touched].tolist()
        columns["rows_out"] += batch.rows_out[touched].tolist()
        columns["worked"] += part.done.worked[touched].tolist()
        columns["arrived"] += [] if arrived is None else arrived[touched].tolist()
        columns["bytes"] += stored[touched].tolist()
        columns["rank"] += _rank(part, held, touched)
        columns["backlog"] += backlog[touched].tolist()
    return GroupStats(**columns)


def _rank(part: _Part, held: Floats, groups: Ints) -> list[int]:
    """The site's own judgement of its groups, for whoever decides how much to push or move."""
    job, batch = part.writer.job, part.batch
    if job.before.history is None:
        return []
    history = job.before.history.sized(batch.routing.size)
    results = history.after(held, batch.rows_out, 0.0)
    return ranked((results.recent if job.recency else results.output)[groups], held[groups])


def _observed(parts: list[_Part]) -> Json:
    """What the operator saw of the site's own groups; the work is that of all shares."""
    observed = dict(parts[0].batch.observed)
    works = [part.batch.observed["work"] for part in parts if "work" in part.batch.observed]
    if works:
        observed["work"] = {name: sum(work[name] for work in works) for name in works[0]}
    return observed


def _heavy(parts: list[_Part]) -> HeavyKeys:
    """The keys with most rows of the source, how many came here of them, and what their state takes."""
    inputs = [given for part in _counted(parts) for given in part.share.inputs]
    hashes: Ints = np.concatenate([given.h for given in inputs])
    keys, arrived = np.unique(hashes, return_counts=True)
    rows = arrived
    if any(given.weight is not None for given in inputs):
        ones = (np.ones(len(given.h), dtype=np.int64) if given.weight is None else given.weight for given in inputs)
        at = np.searchsorted(keys, hashes)
        rows = np.bincount(at, weights=np.concatenate(list(ones)), minlength=len(keys)).astype(np.int64)
    top = np.sort(np.argsort(rows, kind="stable")[::-1][:HEAVY_KEYS])
    top = top[rows[top] > 1]
    held = np.zeros(len(top))
    for part in parts:
        groups = part.batch.routing.groups(keys[top])
        for run in (run for side in part.writer.runs for run in side):
            low, high = run.lookup(keys[top], groups)
            held += (high - low) * (run.ref.bytes / max(run.ref.rows, 1))
    return HeavyKeys(
        key=keys[top].tolist(),
        rows=rows[top].tolist(),
        arrived=arrived[top].tolist(),
        bytes=held.astype(np.int64).tolist(),
    )


def rechunk(table: pa.Table) -> list[pa.RecordBatch]:
    """A result table as record batches of bounded size."""
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches(max_chunksize=EMIT_ROWS)
    return batches
