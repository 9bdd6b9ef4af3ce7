"""The first n rows of each key in some order, as `row_number() over (partition by ... order by ...) <= n` has them.

Results are updates: a result's key is (key, rank), and a batch brings those from the first rank that a new row takes
down to the n-th. Since rows come and never leave, the first n of a batch and of those so far are the first n of all, so
no more is kept. A key's version is its rows in their order; the next one takes its place.

Rows are ordered by values alone: by the columns of the order, then by all others that have one, ascending and nulls
first. Rows that differ in none of these stay in the order in which they came.

State goes when the watermark has passed the time at which a group closes, if one of the key columns tells that, or when
a key had no row for `ttl`. Then all its rows go at once: if they went one by one, others that were left out would have
to come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.arrays import MIN_TIME, UNBOUNDED, Ints, Json, Mask
from fluxen.durations import expiry
from fluxen.operators.base import EMIT_ROWS, Input, Operator, Progress, Results, SiteInput, SiteOutput
from fluxen.operators.kernels import boundaries, positions, sort_order
from fluxen.operators.versions import latest_rows, newest_rows
from fluxen.partitioning import Resources
from fluxen.state.segment import H2, H, T
from fluxen.state.sorted_run import SortedRun

CLOSES = "_w"
"""The closing time of a new row, in microseconds, where groups close."""
_EXPIRY = "ttl='7 days'"
_DIRECTIONS = ("asc", "desc", "asc_nulls_first", "asc_nulls_last", "desc_nulls_first", "desc_nulls_last")


@dataclass(frozen=True, slots=True)
class Ordering:
    """One column of an order, as Spark has it: nulls are the smallest unless said otherwise, NaN the largest."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    @staticmethod
    def of(column: str, direction: str) -> Ordering:
        """
        >>> Ordering.of("price", "desc")
        Ordering(column='price', descending=True, nulls_first=False)
        """
        if direction not in _DIRECTIONS:
            raise ValueError(f"must be one of {', '.join(_DIRECTIONS)}")
        descending = direction.startswith("desc")
        return Ordering(column, descending, direction.endswith("nulls_first") if "_" in direction else not descending)

    def __str__(self) -> str:
        return f"{self.column} {'desc' if self.descending else 'asc'} nulls {'first' if self.nulls_first else 'last'}"

    def places(self, values: pa.ChunkedArray) -> Ints:
        """A number for each value, in this order: equal for equal ones."""
        whole = values.combine_chunks()
        if len(whole) == 0:
            return np.zeros(0, dtype=np.int64)
        rank: Ints = pc.rank(whole, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
        rank = -rank if self.descending else rank
        if whole.null_count:
            last = np.iinfo(np.int64).max
            rank = np.where(pc.is_null(whole).to_numpy(zero_copy_only=False), -last if self.nulls_first else last, rank)
        return rank


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups that have new rows, each once, in order of their hashes."""

    h: Ints
    h2: Ints | None
    t: Ints
    """when they close, or the time of the update"""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of groups: first those so far, in their order, then new ones."""

    table: pa.Table
    owner: Ints
    """the number of each row's group"""
    place: Ints
    """of each row so far in its group; -1 for new ones"""


@dataclass(frozen=True, kw_only=True)
class Top(Operator):
    """The first `n` rows of each key: those that have a new rank, in each batch that has new rows of it."""

    columns: tuple[str, ...]
    """of the input, all of which are in the results"""
    keys: tuple[str, ...]
    """those whose values make a key"""
    order: tuple[Ordering, ...]
    ties: tuple[str, ...]
    """the columns that decide where the order does not"""
    n: int
    described: Json
    rank: str = "rank"
    """the name of the column with the rank, from 1"""
    closes: str | None = None
    """the key, or the field of one as in "window.end", whose value says when its group is closed"""
    clock: str | None = None
    """the input's event-time column"""
    ttl: int = UNBOUNDED
    """microseconds without a row of a key after which its rows are forgotten"""
    emits = "update"
    shadows = True
    resources = Resources.of("CLL")
    whole = "which rows come first depends on all rows of the key"

    @property
    def result_key(self) -> tuple[str, ...]:
        return (*self.keys, self.rank)

    def identity(self) -> Json:
        return {"operator": "top", **self.described}

    def keeps(self, clock: str) -> list[str]:
        if self.closes is not None:
            return [f"up to {self.n} rows per group, until the watermark passes {self.closes}"]
        return [f"up to {self.n} rows per key, {expiry(self.ttl, clock, _EXPIRY)}"]

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        if self.closes is not None:
            return (following[0],)
        return (MIN_TIME if self.ttl >= UNBOUNDED else max(MIN_TIME, following[0] - self.ttl),)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """A row whose rank changes may be from any time, but its group is not closed."""
        times = {} if self.clock is None else {self.clock: MIN_TIME}
        return times if self.closes is None else times | {self.closes: progress.watermarks[0]}

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        return newest_rows(tables, horizon, by_time=self.closes is not None)

    def process(self, given: SiteInput) -> Results:
        rows, late = self._in_time(given)
        if len(rows.h) == 0:
            return SiteOutput(late=(late,))
        groups, owner, rows = self._grouped(rows, given.late_before[0])
        numbers = given.routing.groups(groups.h)
        found, stamps = self._so_far(given.runs[0], groups, numbers)
        whole = _put_together(found, rows.table.select(self.columns), owner)
        order = self._ordered(whole)
        place = positions(boundaries(whole.owner[order]))
        order, place = order[place < self.n], place[place < self.n]
        changed = whole.place[order] != place
        shown, ranks = whole.table.take(pa.array(order[changed])), pa.array((place[changed] + 1).astype(np.int32))
        for start in range(0, len(ranks), EMIT_ROWS):
            part = shown.slice(start, EMIT_ROWS)
            yield part.append_column(self.rank, ranks.slice(start, EMIT_ROWS))
        written = order if self.ttl < UNBOUNDED else order[_any_of(changed, whole.owner[order], len(groups.h))]
        return SiteOutput(
            state=(_stored(groups, stamps, whole, written),),
            rows_out=given.per_group(numbers[whole.owner[order[changed]]]),
            late=(late,),
        )

    def _in_time(self, given: SiteInput) -> tuple[Input, int]:
        """Rows of groups that are not closed, with the closing time as theirs, and how many were late."""
        rows = given.inputs[0]
        if self.closes is None or len(rows.h) == 0:
            return rows, 0
        ends = rows.table.column(CLOSES).to_numpy()
        fresh = Input(rows.h, rows.h2, ends, rows.table, rows.weight).take(
            ends >= max(given.late_before[0], given.watermarks[0])
        )
        return fresh, rows.rows - fresh.rows

    def _grouped(self, rows: Input, watermark: int) -> tuple[_Groups, Ints, Input]:
        """The groups of new rows, the number of each row's group, and the rows in that order."""
        closing = self.closes is not None
        rows = rows.take(sort_order(rows.h, rows.h2, *([rows.t] if closing else [])))
        new = boundaries(rows.h, rows.h2, rows.t if closing else None)
        starts = np.flatnonzero(new)
        t = np.maximum.reduceat(rows.t, starts)
        if self.ttl < UNBOUNDED:
            t = np.maximum(t, watermark)
        groups = _Groups(rows.h[starts], None if rows.h2 is None else rows.h2[starts], t)
        return groups, np.cumsum(new) - 1, rows

    def _so_far(
        self, runs: Sequence[SortedRun], groups: _Groups, numbers: np.ndarray
    ) -> tuple[list[tuple[pa.Table, Ints]], Ints]:
        """The groups' rows so far, each with its group's number, and the times the next version is stored with.

        As the clock of a key never goes back, an outdated version never outlives the one that took its place.
        """
        stamps = groups.t.copy()
        found = []
        times = None if self.closes is None else groups.t
        for run, at, owner in latest_rows(runs, groups.h, groups.h2, numbers, times):
            t = run.segment.t[at]
            alive = t >= groups.t[owner] - self.ttl if self.ttl < UNBOUNDED else np.ones(len(at), dtype=np.bool_)
            np.maximum.at(stamps, owner, t)
            if alive.any():
                found.append((run.segment.table.select(self.columns).take(pa.array(at[alive])), owner[alive]))
        return found, stamps

    def _ordered(self, rows: _Rows) -> Ints:
        """Rows by group and rank."""
        keys = [rows.owner, *(by.places(rows.table.column(by.column)) for by in self.order)]
        order = np.lexsort(keys[::-1]).astype(np.int64)
        new = boundaries(*(key[order] for key in keys))
        if not self.ties or new.all():
            return order
        tied = ~new
        tied[:-1] |= ~new[1:]
        at = np.flatnonzero(tied)
        part = rows.table.select(self.ties).take(pa.array(order[at]))
        ties = [np.cumsum(new)[at], *(Ordering(name).places(part.column(name)) for name in self.ties)]
        # stable on positions in the concatenation: where nothing decides, rows so far stay in front of new ones
        order[at] = order[at][np.lexsort([order[at], *ties[::-1]])]
        return order


def _put_together(found: list[tuple[pa.Table, Ints]], new: pa.Table, owner: Ints) -> _Rows:
    new = pa.table(new.columns, names=new.column_names)  # Spark says of some columns that they hold no nulls
    tables, owners = [*(table for table, _ in found), new], [*(mine for _, mine in found), owner]
    places = [positions(boundaries(mine)) for _, mine in found]
    return _Rows(
        pa.concat_tables(tables).combine_chunks(),
        np.concatenate(owners),
        np.concatenate([*places, np.full(len(owner), -1, dtype=np.int64)]),
    )


def _any_of(changed: Mask, owner: Ints, groups: int) -> Mask:
    """The rows of groups in which something has changed."""
    return (np.bincount(owner[changed], minlength=groups) > 0)[owner]


def _stored(groups: _Groups, stamps: Ints, rows: _Rows, order: Ints) -> pa.Table | None:
    """The next version of groups: the rows of `order`, in layout of a segment."""
    if len(order) == 0:
        return None
    owner = rows.owner[order]
    table = rows.table.take(pa.array(order))
    second = {} if groups.h2 is None else {H2: pa.array(groups.h2[owner])}
    keys = {H: pa.array(groups.h[owner]), **second, T: pa.array(stamps[owner])}
    return pa.table([*keys.values(), *table.columns], names=[*keys, *table.column_names])
