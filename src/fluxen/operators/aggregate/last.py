"""Aggregates over the last n rows of each key, one result per input row: Flux's windowed group-by (section 3).

Rows of a key are taken in the order (batch, event time, values), so a rerun of a batch gives the same results. State
is append-only: a batch adds its rows, a probe walks the runs from the newest back until it has n - 1 rows of each key,
and merging keeps the last n - 1.

With a `ttl` a row also forgets. Each key has a clock that never goes back: the latest event time among its rows so far,
or the watermark if that is later. A row is stored with the clock's reading, and a row sees only those of the last n
that were stored at most `ttl` before. So the rows it sees are always the newest ones, whatever order they come in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.arrays import MIN_TIME, UNBOUNDED, Floats, Groups, Ints, Json, Mask
from fluxen.durations import expiry
from fluxen.errors import QueryError
from fluxen.operators.aggregate.combining import mean, spread
from fluxen.operators.aggregate.functions import Kind
from fluxen.operators.aggregate.measures import MOMENTS, Measure, carried
from fluxen.operators.base import EMIT_ROWS, Input, Operator, Progress, Results, SiteInput, SiteOutput
from fluxen.operators.kernels import Window, bisect, boundaries, positions, ragged, shifted, total_order
from fluxen.partitioning import Resources
from fluxen.state.segment import H2, T, hashes
from fluxen.state.sorted_run import SortedRun

_EXPIRY = "ttl='7 days'"
_HALF = 10**9
"""Decimals of 18 digits are added in two halves: a sum of many has more digits than an integer holds."""
_KINDS: tuple[Kind, ...] = ("count", "sum", "min", "max", "avg", *MOMENTS, "first", "last", "bool_and", "bool_or")
"""Functions that can slide over the last rows."""


def check_last(measures: Sequence[Measure]) -> None:
    """Raise for what cannot be computed over the last rows."""
    for measure in measures:
        if measure.kind not in _KINDS or measure.distinct or measure.where is not None:
            word = "where" if measure.where is not None else "distinct" if measure.distinct else measure.kind
            raise QueryError(
                f"{measure.name}: {word} does not work over the last rows, only {', '.join(_KINDS)} of all of them; "
                "leave last out, or take a window"
            )
        if measure.kind in ("sum", "avg") and pa.types.is_decimal(measure.type):
            digits = measure.type.precision - (10 if measure.kind == "sum" else 4)
            if digits > 18:
                raise QueryError(
                    f"{measure.kind}({measure.column}) over the last rows takes decimals of up to 18 digits; cast it"
                )


@dataclass(frozen=True, kw_only=True)
class LastRows(Operator):
    """Aggregates over each key's last `n` rows."""

    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    n: int
    time: str | None
    time_type: pa.DataType | None
    described: Json
    clock: str | None = None
    """the input's event-time column, a key or not"""
    ttl: int = UNBOUNDED
    """microseconds for which a row counts"""
    shadows = True
    resources = Resources.of("CLL")
    whole = "which rows are the last ones depends on their order"

    @property
    def values(self) -> list[str]:
        """The columns aggregates read: all that state needs to keep."""
        return list(dict.fromkeys(column for measure in self.measures for column in measure.columns))

    def identity(self) -> Json:
        return {"operator": "aggregate", "form": "last", **self.described}

    def keeps(self, clock: str) -> list[str]:
        return [f"up to {self.n - 1} rows per key, {expiry(self.ttl, clock, _EXPIRY)}"]

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        return (MIN_TIME if self.ttl >= UNBOUNDED else max(MIN_TIME, following[0] - self.ttl),)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """A result comes with its own row; what is oldest among the last rows may be from any time."""
        own = {} if self.time is None else {self.time: progress.watermarks[0]}
        return own | carried(self.clock, self.keys, self.measures, progress.watermarks[0], MIN_TIME)

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        whole = pa.concat_tables(tables)
        if horizon > MIN_TIME:
            whole = whole.filter(pa.array(whole.column(T).to_numpy() >= horizon))
        whole = whole.combine_chunks()
        h, h2 = hashes(whole)
        order = np.lexsort([key for key in (h2, h) if key is not None])
        new = boundaries(h[order], None if h2 is None else h2[order])
        return whole.take(pa.array(order[_newest(new, self.n - 1)]))

    def process(self, given: SiteInput) -> Results:
        rows = given.inputs[0]
        if len(rows.h) == 0:
            return SiteOutput()
        rows = rows.take(total_order(rows.h, rows.h2, rows.t, rows.table, self.values))
        new = boundaries(rows.h, rows.h2)
        starts = np.flatnonzero(new)
        groups = given.routing.groups(rows.h[starts])
        kid = np.cumsum(new) - 1
        history = list(self._history(given.runs[0], rows.h[starts], _at(rows.h2, starts), groups))
        read = rows.t if self.ttl >= UNBOUNDED else _clock(rows.t, kid, history, given.late_before[0])
        yield from self._results(rows.table, rows.t, read, kid, history)
        stored = None
        if self.n > 1:
            kept = np.flatnonzero(_newest(new, self.n - 1))
            stored = Input(rows.h, rows.h2, read, rows.table.select(self.values)).take(kept).with_keys()
        return SiteOutput(state=(stored,), rows_out=given.per_group(groups[kid]))

    def _history(
        self, runs: Sequence[SortedRun], h: Ints, h2: Ints | None, groups: Groups
    ) -> Iterator[tuple[Ints, pa.Table]]:
        """Up to n - 1 earlier rows of each key as (key index, rows), newest run first."""
        names = self.values if self.ttl >= UNBOUNDED else [*self.values, T]
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
                yield np.repeat(wanted, counts), run.segment.table.select(names).take(pa.array(at))
            need[wanted] -= counts
            wanted = wanted[need[wanted] > 0]
            if len(wanted) == 0:
                return

    def _results(
        self, table: pa.Table, t: Ints, read: Ints, kid: Ints, history: list[tuple[Ints, pa.Table]]
    ) -> Iterator[pa.Table]:
        """Histories in front of each key's new rows, reduced over windows of n rows, read off at the new rows."""
        pieces = [*reversed(history), (kid, table.select(self.values))]
        owner = np.concatenate([piece[0] for piece in pieces])
        order = np.argsort(owner, kind="stable")
        window = Window(positions(boundaries(owner[order])), self.n)
        if self.ttl < UNBOUNDED:
            clock = np.concatenate([*(rows.column(T).to_numpy() for _, rows in reversed(history)), read])
            window = window.within(clock[order], self.ttl)
        reported = np.flatnonzero(order >= len(owner) - len(kid))
        columns = {name: table.column(name) for name in self.keys}
        if self.time is not None:
            columns[self.time] = pa.array(t, mask=t == MIN_TIME).view(self.time_type)
        for measure in self.measures:
            values = None
            if measure.column is not None:
                whole = pa.chunked_array([c for piece in pieces for c in piece[1].column(measure.column).chunks])
                values = whole.combine_chunks().take(pa.array(order))
            columns[measure.name] = _measure(measure, values, window).take(pa.array(reported))
        result = pa.table(columns)
        for start in range(0, result.num_rows, EMIT_ROWS):
            yield result.slice(start, EMIT_ROWS)


def _clock(t: Ints, kid: Ints, history: list[tuple[Ints, pa.Table]], watermark: int) -> Ints:
    """The reading of each row's key's clock, given rows in order of key and time."""
    clock = np.full(int(kid[-1]) + 1, watermark, dtype=np.int64)
    for owner, rows in history:
        np.maximum.at(clock, owner, rows.column(T).to_numpy())
    read: Ints = np.maximum(t, clock[kid])
    return read


def _at(values: Ints | None, rows: Ints) -> Ints | None:
    return None if values is None else values[rows]


def _newest(new: Mask, n: int) -> Mask:
    """The last `n` rows of each key, given where keys start."""
    starts = np.append(np.flatnonzero(new), len(new))
    remaining = np.repeat(starts[1:], np.diff(starts)) - np.arange(len(new))
    return remaining <= n


def _measure(measure: Measure, values: pa.Array | None, window: Window) -> pa.Array:
    """One aggregate over every row's window."""
    if values is None:
        return pa.array(window.rows)
    if measure.kind == "last":
        return values
    if measure.kind == "first":
        return values.take(pa.array(np.arange(len(values)) - window.rows + 1))
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    count = window.rows if values.null_count == 0 else _sliding_sum(valid.astype(np.int64), window)
    if measure.kind == "count":
        return pa.array(count)
    if measure.kind in ("min", "max", "bool_and", "bool_or"):
        return _extreme(values, valid, count, window, measure.kind in ("max", "bool_or"))
    if measure.kind == "sum" and not pa.types.is_floating(values.type):
        return _exact_sum(values, valid, count, window, measure.type)
    if measure.kind == "avg" and pa.types.is_decimal(values.type):
        total = _exact_sum(values, valid, count, window, pa.decimal128(38, values.type.scale))
        return mean(total, pa.array(count), measure.type)
    numbers = np.where(valid, pc.fill_null(values.cast(pa.float64(), safe=False), 0.0).to_numpy(), 0.0)
    if measure.kind in MOMENTS:
        return spread(measure, *_moments(numbers, valid, window))
    added = _sliding_sum(numbers, window)
    if measure.kind == "avg":
        return mean(pa.array(added), pa.array(count), measure.type)
    return pa.array(added, pa.float64(), mask=count == 0)


def _sliding_sum(values: np.ndarray, window: Window) -> np.ndarray:
    return window.reduce(values, lambda a, b, valid: np.where(valid, a + b, b), shifted, _taken)


def _taken(values: np.ndarray, rows: Ints) -> np.ndarray:
    return values[rows]


def _exact_sum(values: pa.Array, valid: Mask, count: Ints, window: Window, kind: pa.DataType) -> pa.Array:
    """Integers, and decimals of up to 18 digits as integers of their last place, whose sums may have more digits."""
    if not pa.types.is_decimal(values.type):
        whole = np.where(valid, pc.fill_null(values.cast(pa.int64()), 0).to_numpy(), 0)
        return pa.array(_sliding_sum(whole, window), kind, mask=count == 0)
    wide = values.cast(pa.decimal128(38, values.type.scale))
    units = np.frombuffer(wide.buffers()[1], dtype=np.int64)[2 * wide.offset :][: 2 * len(wide) : 2]
    high, low = (_sliding_sum(part, window) for part in np.divmod(np.where(valid, units, 0), _HALF))
    total = pc.add(pc.multiply(_whole_number(high), _whole_number(np.full(1, _HALF))[0]), _whole_number(low))
    mask = pa.array(count > 0)
    exact = pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(total), [mask.buffers()[1], total.buffers()[1]])
    return exact.cast(kind)


def _whole_number(values: Ints) -> pa.Array:
    """As decimals that are still decimals of 16 bytes when two of them are multiplied and a third is added."""
    words = np.column_stack((values, values >> 63)).tobytes()
    return pa.Array.from_buffers(pa.decimal128(18, 0), len(values), [None, pa.py_buffer(words)])


def _extreme(values: pa.Array, valid: Mask, count: Ints, window: Window, largest: bool) -> pa.Array:
    """Smallest or largest by rank, which serves every type that has an order; NaN ranks above all numbers."""
    rank = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy()
    rank = rank.astype(np.int64)
    pick = np.maximum if largest else np.minimum
    rank = np.where(valid, rank, -1 if largest else np.iinfo(np.int64).max)
    best = window.reduce(rank, lambda a, b, ok: np.where(ok, pick(a, b), b), shifted, _taken)
    holder = np.zeros(int(rank[valid].max()) + 1 if valid.any() else 1, dtype=np.int64)
    holder[rank[valid]] = np.flatnonzero(valid)
    return values.take(pa.array(holder[np.where(count > 0, best, 0)], mask=count == 0))


Moments = tuple[Floats, Floats, Floats]


def _moments(numbers: Floats, valid: Mask, window: Window) -> tuple[Floats, Floats]:
    """Counts and squared deviations, put together from counts, means and squared deviations, which do not cancel."""

    def merge(a: Moments, b: Moments, ok: Mask) -> Moments:
        total = a[0] + b[0]
        off = b[1] - a[1]
        share = b[0] / np.where(total == 0, 1, total)
        centre = a[1] + off * share
        squares = a[2] + b[2] + off * off * a[0] * share
        return np.where(ok, total, b[0]), np.where(ok, centre, b[1]), np.where(ok, squares, b[2])

    def shift(frame: Moments, by: int) -> Moments:
        return shifted(frame[0], by), shifted(frame[1], by), shifted(frame[2], by)

    def take(frame: Moments, rows: Ints) -> Moments:
        return frame[0][rows], frame[1][rows], frame[2][rows]

    start: Moments = (valid.astype(np.float64), numbers, np.zeros(len(numbers)))
    with np.errstate(invalid="ignore"):  # of an infinite value: the result is NaN, as Spark's
        count, _, squares = window.reduce(start, merge, shift, take)
    return count, squares
