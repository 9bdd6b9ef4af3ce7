"""Aggregates over the last n rows of each key, one result per input row: Flux's windowed group-by (section 3).

Rows of a key are taken in the order (batch, event time, values), so a rerun of a batch gives the same results. State
is append-only: a batch adds its rows, a probe walks the runs from the newest back until it has n - 1 rows of each key,
and merging keeps the last n - 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.operators.base import EMIT_ROWS, Progress, SiteBatch
from fluxen.operators.columns import bisect, boundaries, positions, ragged, shifted, sliding, total_order
from fluxen.operators.functions import Measure, carried
from fluxen.state.runs import Run
from fluxen.state.segment import H2, hashes
from fluxen.typing import MIN_TIME, Floats, Groups, Ints, Json, Mask


@dataclass(frozen=True, kw_only=True)
class LastRows:
    """Aggregates over each key's last `n` rows."""

    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    n: int
    time: str | None
    time_type: pa.DataType | None
    described: Json
    clock: str | None = None
    """the input's event-time column, be it a key or not"""
    inputs: int = 1
    sides: int = 1

    @property
    def values(self) -> list[str]:
        """The columns aggregates read: all that state needs to keep."""
        return list(dict.fromkeys(measure.column for measure in self.measures if measure.column is not None))

    def identity(self) -> Json:
        return {"operator": "aggregate", "form": "last", **self.described}

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        return (MIN_TIME,)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """A result comes with its own row; what is oldest among the last rows may be from any time."""
        own = {} if self.time is None else {self.time: progress.watermarks[0]}
        return own | carried(self.clock, self.keys, self.measures, progress.watermarks[0], MIN_TIME)

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        whole = pa.concat_tables(tables).combine_chunks()
        h, h2 = hashes(whole)
        order = np.lexsort([key for key in (h2, h) if key is not None])
        new = boundaries(h[order], None if h2 is None else h2[order])
        return whole.take(pa.array(order[_newest(new, self.n - 1)]))

    def process(self, batch: SiteBatch) -> Iterator[pa.Table]:
        rows = batch.inputs[0]
        if len(rows.h) == 0:
            return
        rows = rows.take(total_order(rows.h, rows.h2, rows.t, rows.table, self.values))
        new = boundaries(rows.h, rows.h2)
        starts = np.flatnonzero(new)
        groups = batch.routing.groups(rows.h[starts])
        kid = np.cumsum(new) - 1
        if self.n > 1:
            stored = rows.table.select(self.values)
            kept = np.flatnonzero(_newest(new, self.n - 1))
            batch.state = [type(rows)(rows.h, rows.h2, rows.t, stored).take(kept).with_keys()]
        history = list(self._history(batch.runs[0], rows.h[starts], _at(rows.h2, starts), groups))
        batch.count_out(groups[kid])
        yield from self._results(rows.table, rows.t, kid, history)

    def _history(self, runs: list[Run], h: Ints, h2: Ints | None, groups: Groups) -> Iterator[tuple[Ints, pa.Table]]:
        """Up to n - 1 earlier rows of each key as (key index, rows), newest run first."""
        need = np.full(len(h), self.n - 1, dtype=np.int64)
        wanted = np.arange(len(h)) if self.n > 1 else np.zeros(0, dtype=np.int64)
        for run in reversed(runs):
            low, high = run.lookup(h[wanted], groups[wanted])
            if h2 is not None:
                stored = run.segment.table.column(H2).to_numpy()
                low = bisect(stored, low, high, h2[wanted])
                high = bisect(stored, low, high, h2[wanted], right=True)
            counts = np.minimum(high - low, need[wanted])
            at = ragged(high - counts, counts)
            if len(at):
                yield np.repeat(wanted, counts), run.segment.table.select(self.values).take(pa.array(at))
            need[wanted] -= counts
            wanted = wanted[need[wanted] > 0]
            if len(wanted) == 0:
                return

    def _results(self, table: pa.Table, t: Ints, kid: Ints, history: list[tuple[Ints, pa.Table]]) -> Iterator[pa.Table]:
        """Histories in front of each key's new rows, reduced over windows of n rows, read off at the new rows."""
        pieces = [*reversed(history), (kid, table.select(self.values))]
        owner = np.concatenate([piece[0] for piece in pieces])
        order = np.argsort(owner, kind="stable")
        position = positions(boundaries(owner[order]))
        reported = np.flatnonzero(order >= len(owner) - len(kid))
        columns = {name: table.column(name) for name in self.keys}
        if self.time is not None:
            columns[self.time] = pa.array(t, mask=t == MIN_TIME).view(self.time_type)
        for measure in self.measures:
            values = None
            if measure.column is not None:
                whole = pa.chunked_array([c for piece in pieces for c in piece[1].column(measure.column).chunks])
                values = whole.combine_chunks().take(pa.array(order))
            columns[measure.name] = _measure(measure, values, position, self.n).take(pa.array(reported))
        result = pa.table(columns)
        for start in range(0, result.num_rows, EMIT_ROWS):
            yield result.slice(start, EMIT_ROWS)


def _at(values: Ints | None, rows: Ints) -> Ints | None:
    return None if values is None else values[rows]


def _newest(new: Mask, n: int) -> Mask:
    """The last `n` rows of each key, given where keys start."""
    starts = np.append(np.flatnonzero(new), len(new))
    remaining = np.repeat(starts[1:], np.diff(starts)) - np.arange(len(new))
    return remaining <= n


def _measure(measure: Measure, values: pa.Array | None, position: Ints, n: int) -> pa.Array:
    """One aggregate over every row's window of n rows."""
    if values is None:
        return pa.array(np.minimum(position + 1, n))
    if measure.kind == "last":
        return values
    if measure.kind == "first":
        return values.take(pa.array(np.arange(len(values)) - np.minimum(position, n - 1)))
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    count = _sliding_sum(valid.astype(np.int64), position, n)
    if measure.kind == "count":
        return pa.array(count)
    if measure.kind in ("min", "max"):
        return _extreme(values, valid, count, position, n, measure.kind == "max")
    if measure.kind == "sum" and not pa.types.is_floating(values.type):
        return _exact_sum(values, valid, count, position, n, measure.type)
    numbers = np.where(valid, pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(), 0.0)
    if measure.kind == "stddev":
        return _deviation(numbers, valid, position, n)
    total = _sliding_sum(numbers, position, n)
    mean = total / np.where(count == 0, 1, count) if measure.kind == "avg" else total
    return pa.array(mean, pa.float64(), mask=count == 0)


def _sliding_sum(values: np.ndarray, position: Ints, n: int) -> np.ndarray:
    return sliding(values, position, n, lambda a, b, valid: np.where(valid, a + b, b), shifted)


def _exact_sum(values: pa.Array, valid: Mask, count: Ints, position: Ints, n: int, kind: pa.DataType) -> pa.Array:
    """Integers, and decimals of up to 18 digits as integers of their last place."""
    if not pa.types.is_decimal(values.type):
        whole = np.where(valid, pc.fill_null(values.cast(pa.int64()), 0).to_numpy(), 0)
        return pa.array(_sliding_sum(whole, position, n), kind, mask=count == 0)
    wide = values.cast(pa.decimal128(38, values.type.scale))
    units = np.frombuffer(wide.buffers()[1], dtype=np.int64)[2 * wide.offset :][: 2 * len(wide) : 2]
    total = _sliding_sum(np.where(valid, units, 0), position, n)
    words = np.column_stack((total, total >> 63)).tobytes()
    mask = pa.array(count > 0)
    exact = pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(total), [mask.buffers()[1], pa.py_buffer(words)])
    return exact.cast(kind)


def _extreme(values: pa.Array, valid: Mask, count: Ints, position: Ints, n: int, largest: bool) -> pa.Array:
    """Smallest or largest by rank, which serves every type that has an order; NaN ranks above all numbers."""
    rank = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy()
    rank = rank.astype(np.int64)
    pick = np.maximum if largest else np.minimum
    rank = np.where(valid, rank, -1 if largest else np.iinfo(np.int64).max)
    best = sliding(rank, position, n, lambda a, b, ok: np.where(ok, pick(a, b), b), shifted)
    holder = np.zeros(int(rank[valid].max()) + 1 if valid.any() else 1, dtype=np.int64)
    holder[rank[valid]] = np.flatnonzero(valid)
    return values.take(pa.array(holder[np.where(count > 0, best, 0)], mask=count == 0))


Moments = tuple[Floats, Floats, Floats]


def _deviation(numbers: Floats, valid: Mask, position: Ints, n: int) -> pa.Array:
    """Sample standard deviation from counts, means and squared deviations, which do not cancel."""

    def merge(a: Moments, b: Moments, ok: Mask) -> Moments:
        total = a[0] + b[0]
        off = b[1] - a[1]
        share = b[0] / np.where(total == 0, 1, total)
        mean = a[1] + off * share
        spread = a[2] + b[2] + off * off * a[0] * share
        return np.where(ok, total, b[0]), np.where(ok, mean, b[1]), np.where(ok, spread, b[2])

    def shift(frame: Moments, by: int) -> Moments:
        return shifted(frame[0], by), shifted(frame[1], by), shifted(frame[2], by)

    start: Moments = (valid.astype(np.float64), numbers, np.zeros(len(numbers)))
    count, _, spread = sliding(start, position, n, merge, shift)
    return pa.array(np.sqrt(np.maximum(spread, 0) / np.where(count > 1, count - 1, 1)), mask=count < 2)
