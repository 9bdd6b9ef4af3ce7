"""One site's share of one micro-batch: load state, run the operator, yield results, write segments and the record.

The job is the same whether a Spark task (`fluxen.spark.stage`) or the test bench (`fluxen.testing`) runs it. It reads
only what the last committed epoch refers to and writes only files of its own, so it may run any number of times, at
once or after a crash. The commit record is written last: a site whose results were not read to the end leaves none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from fluxen.operators.ahead import copy_ahead, merge_limit
from fluxen.operators.backlog import Backlog, Held, SkewBuffer
from fluxen.operators.base import EMIT_ROWS, Divided, Input, Operator, SiteBatch, Spillable
from fluxen.operators.spilling import Generations
from fluxen.operators.tracks import Share, division, shares
from fluxen.state.epoch import SEGMENTS, StageState, segment_name
from fluxen.state.generations import on_disk
from fluxen.state.history import ranked
from fluxen.state.record import CommitRecord, GroupStats, SideStats, write_record
from fluxen.state.routing import Routing, ranges
from fluxen.state.runs import MAX_MERGED_BYTES, Run, due, memory_run, open_runs, visible, young
from fluxen.state.segment import SegmentRef, open_segment, write_segment
from fluxen.state.store import Store
from fluxen.typing import MIN_TIME, Floats, Ints, Json

SQUEEZED = 0.75
"""Share of a run's rows that must be the site's own, while other groups are on disk, for it to stay as it is."""
HEAVY_KEYS = 64
"""Keys per site and batch reported with their counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteJob:
    """What every site of one stage needs to know about one micro-batch."""

    store: Store
    epoch: int
    stage: int
    operator: Operator
    before: StageState
    token: str = ""
    """of the run: what attempts are named after"""
    track_heavy: bool = False
    recency: bool = False
    """rank groups by recent results instead of all of the active generation"""
    merge_limit: int = MAX_MERGED_BYTES
    """bytes beyond which runs are not merged"""
    piece_bytes: int | None = None
    """bytes of rows to hold at a time, about, whatever is done with them; None where memory is not limited"""
    buffer: SkewBuffer | None = None
    """how long a site may work on the batch and how much may wait; None for as long as it takes"""
    follow: bool = False
    """a run before this one has begun this batch: what it decided counts, whether or not there is a limit now"""
    clock: Callable[[], float] = time.perf_counter

    @property
    def limit(self) -> SkewBuffer | None:
        """The limit of this batch: nothing waits while a group moves by parallel track or trees differ."""
        return None if self.before.tracks or self.before.trees is not None else self.buffer


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
        groups=_group_stats(parts),
        heavy=_heavy(own.share.inputs) if job.track_heavy else [],
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
    writer: _StateWriter
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
        for side in range(self.operator.sides):
            refs = visible(_side(before.segments, side), routing, self.site)
            active = open_runs(store, refs, routing, self.site, self.generations.hidden)
            runs.append(active + open_runs(store, self.generations.unspill(side), routing, self.site))
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
            limit=self.job.limit,
            follow=self.job.follow,
        )
        self.done = _Done(self.batch)
        self.writer = _StateWriter(self.job, self.site, self.attempt, runs, self.batch)
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
        self.rows_in += _per_group(batch.inputs, batch.routing)
        rows = sum(given.rows for given in batch.inputs)
        if rows:
            self.delays[waited] = self.delays.get(waited, 0) + rows


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


class _StateWriter:
    """Appends the batch's new state rows and merges runs that have become too many."""

    def __init__(self, job: SiteJob, site: int, attempt: str, runs: list[list[Run]], batch: SiteBatch) -> None:
        self.job, self.site, self.attempt, self.batch = job, site, attempt, batch
        self.runs = [list(side) for side in runs]
        self.added: list[SegmentRef] = []
        self.consumed: list[tuple[str, tuple[tuple[int, int], ...]]] = []
        self.owned = job.before.routing.owned(site)
        self._count = 0

    def append(self, state: list[list[pa.Table]]) -> None:
        for side in self.batch.discard:
            self.consumed += [(run.ref.name, ranges(run.mine)) for run in self.runs[side]]
            self.runs[side] = []
        horizons = self._horizons()
        for side, tables in enumerate(state):
            if len(tables) > 1:
                tables = [self.job.operator.compact(side, tables, horizons[side])]
            if tables and tables[0].num_rows:
                self._add(side, tables[0], (self.job.epoch, self.job.epoch))

    def reopen(self) -> None:
        """Map the runs anew: none of their pages count as this process's until it reads them again."""
        for side in self.runs:
            side[:] = [replace(run, segment=open_segment(self.job.store, run.ref)) for run in side]

    def keep(self, work: Backlog) -> None:
        """Put rows that wait into the buffer, and forget those that no longer do."""
        self.consumed += work.consumed()
        for side, table, groups in work.kept():
            self.added.append(self._write(side, table, (self.job.epoch, self.job.epoch), groups))

    def _horizons(self) -> tuple[int, ...]:
        before = self.job.before
        horizons = self.job.operator.horizons(before.watermarks, before.watermarks)
        if self._spilled:
            # an old row may still owe results to a generation on disk
            return (MIN_TIME,) * len(horizons)
        return horizons

    @property
    def _spilled(self) -> bool:
        before = self.job.before
        return bool((on_disk(before.segments, before.routing.size) & self.owned).any())

    def merge(self) -> None:
        horizons = self._horizons()
        limit = merge_limit(self.job.before, self.site, self.job.merge_limit)
        for side in range(self.job.operator.sides):
            runs = young(self._mergeable(side), horizons[side])
            count = due([self._size(run) for run in runs], limit)
            if count:
                self._merge(side, runs[-count:], horizons[side])
            if self._spilled:
                self._squeeze(side, horizons[side])

    def _size(self, run: Run) -> tuple[int, int]:
        """Rows and bytes of a run that are this site's own."""
        rows = int(run.rows_per_group(self.job.before.routing).sum())
        return rows, run.ref.bytes * rows // max(run.ref.rows, 1)

    def _squeeze(self, side: int, horizon: int) -> None:
        """Rewrite runs most of whose rows went to disk: they would be mapped for the few that stay."""
        chosen: list[Run] = []
        total = 0
        for run in list(self.runs[side]):
            rows, size = self._size(run)
            if rows >= SQUEEZED * run.ref.rows:
                continue
            if chosen and total + size > self.job.merge_limit:
                self._merge(side, chosen, horizon)
                chosen, total = [], 0
            chosen.append(run)
            total += size
        if chosen:
            self._merge(side, chosen, horizon)

    def _mergeable(self, side: int) -> list[Run]:
        since = self.batch.since
        if since is None:
            return self.runs[side]
        # old and new rows of a group that moves by parallel track must stay apart
        return [run for run in self.runs[side] if run.ref.first_epoch > since.max()]

    def _merge(self, side: int, runs: list[Run], horizon: int) -> None:
        tables = [run.rows(self.job.before.routing) for run in runs]
        merged = self.job.operator.compact(side, tables, horizon)
        fresh = {ref.name for ref in self.added}
        self.added = [ref for ref in self.added if ref.name not in {run.ref.name for run in runs}]
        for run in runs:
            if run.ref.name in fresh:
                self.job.store.delete(run.ref.name)
            else:
                self.consumed.append((run.ref.name, ranges(run.mine)))
        self.runs[side] = [run for run in self.runs[side] if run not in runs]
        if merged.num_rows:
            span = (min(run.ref.first_epoch for run in runs), max(run.ref.last_epoch for run in runs))
            self._add(side, merged, span)

    def _add(self, side: int, table: pa.Table, epochs: tuple[int, int]) -> None:
        ref = self._write(side, table, epochs, ranges(self.owned))
        self.added.append(ref)
        self.runs[side].extend(open_runs(self.job.store, [ref], self.job.before.routing, self.site))

    def _write(
        self, side: int, table: pa.Table, epochs: tuple[int, int], live: tuple[tuple[int, int], ...]
    ) -> SegmentRef:
        self._count += 1
        return write_segment(
            self.job.store,
            segment_name(
                epoch=self.job.epoch,
                stage=self.job.stage,
                site=self.site,
                side=side,
                attempt=f"{self.attempt}{self._count}",
            ),
            table,
            side=side,
            partitions=self.job.before.routing.partitions,
            epochs=epochs,
            live=live,
        )


def _side_stats(parts: list[_Part], received: list[Input], side: int) -> SideStats:
    operator, own = parts[0].operator, parts[0]
    new = own.share.inputs[side] if side < operator.inputs else None
    # where copies process rows of their own, these count; where they process the receiver's once more, they do not
    counted = parts if isinstance(operator, Divided) else [own]
    t = received[side].t if side < operator.inputs else np.zeros(0, dtype=np.int64)
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
        max_time=int(t.max()) if len(t) and t.max() > MIN_TIME else None,
        state_rows=state_rows,
        state_bytes=state_bytes,
        waiting_rows=held.rows,
        waiting_bytes=held.bytes,
        waiting_since=held.since,
    )


def _per_group(inputs: list[Input], routing: Routing) -> Ints:
    """Rows of the source per partition group."""
    rows: Ints = np.zeros(routing.size, dtype=np.int64)
    for given in inputs:
        if len(given.h):
            counts = np.bincount(routing.groups(given.h), weights=given.weight, minlength=routing.size)
            rows += counts.astype(np.int64)
    return rows


def _group_stats(parts: list[_Part]) -> GroupStats:
    columns: dict[str, list[int]] = {name: [] for name in ("group", "rows_in", "rows_out", "bytes", "rank", "backlog")}
    for part in parts:
        batch, rows_in, backlog = part.batch, part.done.rows_in, part.work.rows_per_group()
        held = np.zeros(batch.routing.size, dtype=np.float64)
        for side in part.writer.runs:
            for run in side:
                held += run.rows_per_group(batch.routing) * (run.ref.bytes / max(run.ref.rows, 1))
        stored = held.astype(np.int64)
        touched = np.flatnonzero((rows_in > 0) | (stored > 0) | (batch.rows_out > 0) | (backlog > 0))
        columns["group"] += touched.tolist()
        columns["rows_in"] += rows_in[touched].tolist()
        columns["rows_out"] += batch.rows_out[touched].tolist()
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


def _heavy(inputs: list[Input]) -> list[tuple[int, int]]:
    hashes: Ints = np.concatenate([rows.h for rows in inputs])
    keys, counts = np.unique(hashes, return_counts=True)
    top = np.argsort(counts)[::-1][:HEAVY_KEYS]
    return [(int(keys[i]), int(counts[i])) for i in top if counts[i] > 1]


def rechunk(table: pa.Table) -> list[pa.RecordBatch]:
    """A result table as record batches of bounded size."""
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches(max_chunksize=EMIT_ROWS)
    return batches
