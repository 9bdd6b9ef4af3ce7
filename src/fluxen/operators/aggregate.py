"""Keyed aggregation over running values and over tumbling event-time windows.

Spark has already combined each task's rows to one row per key (and window); the sites combine those partial rows with
their state. The third form, over the last n rows of each key, needs the rows themselves and lives in
`fluxen.operators.last`. Functions and their partial columns are in `fluxen.operators.functions`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fluxen.operators.base import Input, Progress, SiteBatch
from fluxen.operators.columns import boundaries, total_order
from fluxen.operators.functions import Measure, carried, combine, finish
from fluxen.state.runs import Run
from fluxen.state.segment import H2, H, T, hashes
from fluxen.state.trees import Track
from fluxen.typing import MIN_TIME, UNBOUNDED, Groups, Ints, Json, Mask

CLOSE_ROWS = 1 << 20
"""Closing windows are worked off in slices of about this many state rows."""


def _fold(table: pa.Table, keys: tuple[str, ...], measures: tuple[Measure, ...], *, by_time: bool) -> pa.Table:
    """Rows in layout of a segment combined to one row per key (per key and time, if `by_time`), sorted by hash.

    Rows of one key are combined in an order that depends only on their values, so floating-point sums repeat exactly.
    """
    if table.num_rows == 0:
        return table
    h, h2 = hashes(table)
    t = table.column(T).to_numpy()
    order = total_order(h, h2, t, table, _inexact(table, measures))
    table = table.take(pa.array(order))
    new = boundaries(h[order], None if h2 is None else h2[order], t[order] if by_time else None)
    return _combined(table, np.flatnonzero(new), keys, measures)


def _inexact(table: pa.Table, measures: tuple[Measure, ...]) -> list[str]:
    """The partial columns whose sum depends on the order of rows."""
    added = [part for measure in measures if measure.kind in ("sum", "avg", "stddev") for part in measure.parts]
    return [part for part in added if pa.types.is_floating(table.schema.field(part).type)]


def _combined(table: pa.Table, starts: Ints, keys: tuple[str, ...], measures: tuple[Measure, ...]) -> pa.Table:
    if len(starts) == table.num_rows:
        return table
    fixed = [name for name in (H, H2) if name in table.column_names] + list(keys)
    columns = {name: table.column(name).take(pa.array(starts)) for name in fixed}
    columns[T] = pa.array(np.maximum.reduceat(table.column(T).to_numpy(), starts))
    columns.update(combine(table, starts, measures))
    return pa.table({name: columns[name] for name in table.column_names})


@dataclass(frozen=True, kw_only=True)
class Running:
    """Aggregates over everything a key has seen: one result per key that changed in the batch."""

    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    described: Json
    clock: str | None = None
    """the input's event-time column"""
    ttl: int = UNBOUNDED
    """microseconds after a key's last update at which its value is forgotten"""
    shadows: bool = True
    inputs: int = 1
    sides: int = 1

    def identity(self) -> Json:
        return {"operator": "aggregate", "form": "running", **self.described}

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        """An update to come counts at the watermark or later, so what it cannot see any more is dead."""
        return (MIN_TIME if self.ttl >= UNBOUNDED else max(MIN_TIME, following[0] - self.ttl),)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """A key's result comes with a new row of it; what is oldest among its rows may be from any time."""
        return carried(self.clock, self.keys, self.measures, progress.watermarks[0], MIN_TIME)

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        """The newest version of each key, unless it is dead."""
        whole = pa.concat_tables(tables).combine_chunks()
        age = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
        h, h2 = hashes(whole)
        order = np.lexsort([key for key in (-age, h2, h) if key is not None])
        newest = order[boundaries(h[order], None if h2 is None else h2[order])]
        if horizon > MIN_TIME:
            newest = newest[whole.column(T).to_numpy()[newest] >= horizon]
        return whole.take(pa.array(newest))

    def process(self, batch: SiteBatch) -> Iterator[pa.Table]:
        rows = batch.inputs[0]
        if len(rows.h) == 0:
            return
        new = _fold(rows.with_keys(), self.keys, self.measures, by_time=False)
        batch.distinct = new.num_rows
        groups = batch.routing.groups(hashes(new)[0])
        if self.ttl < UNBOUNDED:
            new = _updated(new, (batch.late_before or batch.watermarks)[0])
        old = list(self._old(batch.runs[0], new, groups))
        state = self._merge(old, new)
        batch.state = [state]
        batch.count_out(groups)
        yield _finished(state, self.keys, self.measures)

    def _old(self, runs: list[Run], new: pa.Table, groups: Groups) -> Iterator[pa.Table]:
        """The versions so far of the keys in `new`, but for those that are older than `ttl` now."""
        h, h2 = hashes(new)
        now = new.column(T).to_numpy()
        for run, row, at in latest(runs, h, h2, groups):
            if self.ttl < UNBOUNDED:
                row = row[run.segment.t[row] >= now[at] - self.ttl]
            if len(row):
                yield run.segment.table.take(pa.array(row))

    def _merge(self, old: list[pa.Table], new: pa.Table) -> pa.Table:
        """Each key's old version (there is at most one) combined with its new row."""
        if not old:
            return new
        whole = pa.concat_tables([*old, new]).combine_chunks()
        h, h2 = hashes(whole)
        # stable, so a key's old version stays in front of its new row
        order = np.lexsort([key for key in (h2, h) if key is not None])
        whole = whole.take(pa.array(order))
        starts = np.flatnonzero(boundaries(h[order], None if h2 is None else h2[order]))
        return _combined(whole, starts, self.keys, self.measures)


def _updated(new: pa.Table, watermark: int) -> pa.Table:
    """Rows with the time at which they count as updates: their own, or the watermark if that is later."""
    stamps = np.maximum(new.column(T).to_numpy(), watermark)
    return new.set_column(new.schema.get_field_index(T), T, pa.array(stamps))


def latest(runs: list[Run], h: Ints, h2: Ints | None, groups: Groups) -> Iterator[tuple[Run, Ints, Ints]]:
    """The newest version of each key: (run, its rows, positions of their keys in `h`), newest run first."""
    wanted = np.arange(len(h))
    for run in reversed(runs):
        if len(wanted) == 0:
            return
        low, high = run.lookup(h[wanted], groups[wanted])
        hit = high > low
        row = low[hit]
        if h2 is not None and hit.any():
            row, hit = _match_second(run, low, high, hit, h2[wanted])
        if hit.any():
            yield run, row, wanted[hit]
            wanted = wanted[~hit]


def _match_second(run: Run, low: Ints, high: Ints, hit: np.ndarray, h2: Ints) -> tuple[Ints, np.ndarray]:
    """Among rows with an equal first hash, the one whose second hash is equal too."""
    stored = run.segment.table.column(H2).to_numpy()
    row = low.copy()
    searching = np.flatnonzero(hit)
    found = np.zeros(len(hit), dtype=np.bool_)
    while len(searching):
        same = stored[row[searching]] == h2[searching]
        found[searching[same]] = True
        searching = searching[~same]
        row[searching] += 1
        searching = searching[row[searching] < high[searching]]
    return row[found], found


def _finished(state: pa.Table, keys: tuple[str, ...], measures: tuple[Measure, ...]) -> pa.Table:
    partial = {name: state.column(name) for name in state.column_names}
    columns = {name: state.column(name) for name in keys}
    columns.update({measure.name: finish(partial, measure) for measure in measures})
    return pa.table(columns)


@dataclass(frozen=True, kw_only=True)
class Tumbling:
    """Aggregates per key and event-time window, emitted once when the watermark passes the window's end.

    State is only ever appended, one partial row per key, window and batch; a window's rows meet when it closes. A
    state row's time is the end of its window.
    """

    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    size: int
    time_type: pa.DataType
    described: Json
    clock: str | None = None
    """the input's event-time column"""
    inputs: int = 1
    sides: int = 1

    def identity(self) -> Json:
        return {"operator": "aggregate", "form": "tumbling", **self.described}

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        return (used[0] + 1,)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """Windows to come end after the last watermark that windows were closed under: where the first one starts."""
        start = max(MIN_TIME, progress.emitted[0] // self.size * self.size)
        return carried(self.clock, self.keys, self.measures, start, start)

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        whole = pa.concat_tables(tables).combine_chunks()
        alive = whole.filter(pa.array(whole.column(T).to_numpy() >= horizon))
        return _fold(alive, self.keys, self.measures, by_time=True)

    def stays(self, rows: Input, track: Track, runs: Sequence[Run], groups: Groups, watermark: int) -> Mask:
        """Rows of windows that were open when the move began: a window belongs to one site as a whole."""
        assert track.until is not None
        end: Ints = rows.table.column("_w").to_numpy() if len(rows.h) else rows.h
        return np.asarray(end <= track.until)

    def process(self, batch: SiteBatch) -> Iterator[pa.Table]:
        watermark, before = batch.watermarks[0], batch.emitted[0]
        rows = batch.inputs[0]
        end = rows.table.column("_w").to_numpy() if len(rows.h) else np.zeros(0, dtype=np.int64)
        kept = rows.take(end > (batch.late_before or batch.watermarks)[0])
        batch.late[0] += rows.rows - kept.rows
        if len(kept.h):
            stored = self._stored(kept)
            batch.state, batch.distinct = [stored], stored.num_rows
        closing = [run for run in batch.runs[0] if run.ref.t_min <= watermark and run.ref.t_max > before]
        for low, high in _slices(sum(run.ref.rows for run in closing)):
            closed = self._closed(batch, closing, before, watermark, low, high)
            if closed is not None:
                batch.count_out(batch.routing.groups(closed.column(H).to_numpy()))
                yield self._result(closed)

    def _stored(self, rows: Input) -> pa.Table:
        end = rows.table.column("_w").to_numpy()
        windowed = Input(rows.h, rows.h2, end, rows.table.drop_columns(["_w"]))
        return _fold(windowed.with_keys(), self.keys, self.measures, by_time=True)

    def _closed(
        self, batch: SiteBatch, runs: list[Run], before: int, watermark: int, low: int, high: int
    ) -> pa.Table | None:
        """Windows that end in (before, watermark], for keys with low <= hash <= high."""
        parts = []
        for run in runs:
            a = int(np.searchsorted(run.segment.h, low, side="left"))
            b = int(np.searchsorted(run.segment.h, high, side="right"))
            t = run.segment.t[a:b]
            mask = (t > before) & (t <= watermark)
            if mask.any() and not run.mine.all():
                mask &= run.mine[batch.routing.groups(run.segment.h[a:b])]
            at = np.flatnonzero(mask) + a
            if len(at):
                parts.append(run.segment.table.take(pa.array(at)))
        if not parts:
            return None
        return _fold(pa.concat_tables(parts).combine_chunks(), self.keys, self.measures, by_time=True)

    def _result(self, closed: pa.Table) -> pa.Table:
        end = closed.column(T).to_numpy()
        finished = _finished(closed, self.keys, self.measures)
        bounds = [pa.array(end - self.size).view(self.time_type), pa.array(end).view(self.time_type)]
        window = pa.StructArray.from_arrays(bounds, names=["start", "end"])
        return finished.add_column(len(self.keys), "window", window)


def _slices(rows: int) -> Iterator[tuple[int, int]]:
    """Intervals of the hash space that each hold about `CLOSE_ROWS` of so many rows."""
    pieces = max(1, -(-rows // CLOSE_ROWS))
    edges = [-(2**63) + (2**64 * k) // pieces for k in range(pieces + 1)]
    for a, b in itertools.pairwise(edges):
        yield a, b - 1
