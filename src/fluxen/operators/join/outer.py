"""Left, right, full, semi and anti joins of two inputs with bounds on their event times.

Whether a row has a partner is a function of the rows' values, so nothing is noted about it: the other side's rows are
kept long enough to ask them. With lo <= t_R - t_L <= hi, no partner of a left row can come once the watermark of the
right input has passed t_L + hi. Then the row is closed: it is looked up in the right side's state, and comes out alone
if there is no partner. A right row therefore stays until every left row it can meet has been closed, hi - lo longer
than in an inner join; the same holds with sides exchanged where right rows come out alone.

A row is closed once: by the batch whose watermark is the first beyond its time, or by the batch it comes in if that is
beyond already. State keeps beside each segment's rows their order by time, so that a batch costs what it closes.
Combinations come out when their last row arrives, as in `fluxen.operators.join.mway`; a semi join gives a left row with
its first partner, and asks the rows before it whether there was one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.arrays import MIN_TIME, UNBOUNDED, Ints, Json, Mask
from fluxen.durations import words
from fluxen.errors import QueryError
from fluxen.operators.base import Input, Operator, Progress, Results, SiteInput, SiteOutput
from fluxen.operators.join.carried import Carried, carried_along, distances
from fluxen.operators.join.matching import Matching, Of, matches
from fluxen.operators.join.mway import OutputColumn
from fluxen.operators.join.probe import Bounds, Fits, Side, arrivals
from fluxen.operators.join.reduction import Slice, at_least, since, slices
from fluxen.operators.join.tightest import closure
from fluxen.operators.kernels import concat_sorted, hash_slices, portion, sort_order
from fluxen.partitioning import Resources
from fluxen.state.segment import BY_TIME, H2, H, SegmentRef, T, column
from fluxen.state.sorted_run import SortedRun

__all__ = ["HOWS", "How", "OuterJoin", "OuterShape", "closing_bounds", "preserved"]

How = Literal["left", "right", "full", "semi", "anti"]
HOWS: tuple[How, ...] = get_args(How)
CLOSE_ROWS = 1 << 18
"""Rows closed at a time, about."""
_PRESERVED: dict[str, tuple[bool, bool]] = {
    "left": (True, False),
    "right": (False, True),
    "full": (True, True),
    "semi": (False, False),
    "anti": (True, False),
}
_ARRIVALS = arrivals(2)
Found = Iterator[tuple[pa.Table, Ints]]
"""Results, with the key hash of each."""


def preserved(how: str) -> tuple[bool, bool]:
    """Per side: whether rows without a partner come out."""
    return _PRESERVED[how]


def closing_bounds(how: str, names: Sequence[str], low: Bounds, *, equal_times: bool = False) -> Bounds:
    """The bounds, where equal keys mean equal event times tightened by that; refused if they never close a row.

    >>> closing_bounds("left", ["a", "b"], ((0, -(2**60)), (-(2**60), 0)), equal_times=True)
    ((0, 0), (0, 0))
    """
    if equal_times:
        if max(low[0][1], low[1][0]) > 0:
            raise QueryError("the keys hold both event times, so these are equal; between does not allow that")
        low = ((0, 0), (0, 0))
    for side, other in ((0, 1), (1, 0)):
        if preserved(how)[side] and low[other][side] <= -UNBOUNDED:
            raise QueryError(
                f"how={how!r} gives rows of {names[side]!r} without a partner once none can come, but nothing says how "
                f"much later than them rows of {names[other]!r} may be; pass time and within='1 hour', or between with "
                "both ends"
            )
    return low


@dataclass(frozen=True, slots=True, kw_only=True)
class OuterShape:
    """What rows of the two inputs look like."""

    keys: tuple[tuple[str, ...], tuple[str, ...]]
    """per side: its key columns"""
    clocks: tuple[tuple[str, pa.DataType] | None, tuple[str, pa.DataType] | None]
    """per side: its event-time column and that one's type"""


@dataclass(frozen=True, kw_only=True)
class OuterJoin(Operator):
    """An equi-join of two inputs that also gives, or only gives, rows of one of them as they are."""

    how: How
    names: tuple[str, str]
    low: Bounds
    """low[i][j] <= t_j - t_i; the upper bound is -low[j][i]"""
    output: tuple[OutputColumn, ...]
    shape: OuterShape
    matching: Matching | None = None
    """what partners must have in common beyond key and time"""
    described: Json
    """the query in the user's words, for the checkpoint's identity"""
    carried: tuple[Carried, ...] = ()
    """not of a side whose rows come out alone, as these may have no event time"""
    inputs = 2
    sides = 2
    resources = Resources.of("LQL")

    # ---- traits

    @property
    def flushes(self) -> bool:
        return any(self.preserved)

    @property
    def preserved(self) -> tuple[bool, bool]:
        return preserved(self.how)

    @property
    def deals(self) -> tuple[int, ...]:
        """Only rows that come out whether or not they have a partner: of the others every group has all there are."""
        return {"left": (0,), "right": (1,), "full": (), "semi": (0,), "anti": (0,)}[self.how]

    @property
    def whole(self) -> str:
        return "rows of both inputs come out alone, and whether one does depends on all rows of the other"

    @cached_property
    def reach(self) -> Bounds:
        return closure(self.low)

    def identity(self) -> Json:
        more = {} if self.matching is None else {"matching": self.matching.to_json()}
        return {"operator": "join", "form": self.how, **self.described, **more}

    def keeps(self, clock: str) -> list[str]:
        return [self._kept(side, clock) for side in (0, 1)]

    def _kept(self, side: int, clock: str) -> str:
        other = 1 - side
        rows, life = f"rows of {self.names[side]}, ", -self.reach[other][side]
        asked = life - self.reach[side][other] if self._asked(side) else -UNBOUNDED
        if max(life, asked) >= UNBOUNDED:
            return f"{rows}which never expire: give within='1 hour', between={{...}} or ttl='7 days'"
        until = f"until the watermark of {self.names[other]} is {_past(life, clock)}"
        return f"{rows}{until}" + (f" and their own is {_past(asked, clock)}" if self._asked(side) else "")

    def _asked(self, side: int) -> bool:
        """Whether rows of this side have to tell, later, if rows of the other one had a partner."""
        return self.preserved[1 - side] or (self.how == "semi" and side == 1)

    # ---- time

    def _closed(self, side: int, watermarks: tuple[int, ...]) -> int:
        """Rows of this side before this time are closed under these watermarks: no partner can come."""
        return at_least(watermarks[1 - side], self.reach[1 - side][side])

    def due(self, one: SegmentRef, emitted: tuple[int, ...], watermarks: tuple[int, ...]) -> bool:
        since_, until = self._closed(one.side, emitted), self._closed(one.side, watermarks)
        return self.preserved[one.side] and one.t_min < until and one.t_max >= since_

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        """A row is dead once it is closed and every row of the other side that may ask for it is."""
        times = []
        for side in (0, 1):
            time = self._closed(side, used if self.preserved[side] else following)
            if self._asked(side):
                mark = (used if self.preserved[1 - side] else following)[side]
                time = min(time, at_least(mark, self.reach[side][1 - side] + self.reach[1 - side][side]))
            times.append(time)
        return tuple(times)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """A combination to come has a new row; a row that comes out alone was not closed by the last batch.

        One without a key comes out whatever its age: to the next stage it is late if it was late here.
        """
        times = [
            min(progress.watermarks[side], self._closed(side, progress.emitted if kept else progress.watermarks))
            for side, kept in enumerate(self.preserved)
        ]
        own = {out.name: times[out.side] if out.instead is None else min(times) for out in self.output if out.timed}
        return own | carried_along(times, self.carried)

    def distances(self) -> Mapping[tuple[str, str], int]:
        # a key of either side has the event time of either
        timed = {out.name: out.side for out in self.output if out.timed and out.instead is None}
        return distances(self.reach, timed, self.carried)

    # ---- state

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        plain = [table.drop_columns([BY_TIME]) if self.preserved[side] else table for table in tables]
        return self._ordered(side, concat_sorted([since(table, horizon) for table in plain], H, T))

    def _ordered(self, side: int, table: pa.Table) -> pa.Table:
        """Rows in layout of a segment, with their order by time if they will be closed."""
        if not self.preserved[side]:
            return table
        order = np.argsort(column(table, T), kind="stable").astype(np.int32)
        return table.append_column(BY_TIME, pa.array(order))

    # ---- a batch

    def process(self, given: SiteInput) -> Results:
        parts = [self._parted(given, side) for side in (0, 1)]
        fresh = [rows for rows, _, _ in parts]
        rows_out = given.per_group()
        for table, h in self._found(given, fresh, [alone for _, alone, _ in parts]):
            rows_out += given.per_group(given.routing.groups(h))
            yield table
        state = tuple(self._ordered(side, rows.with_keys()) if len(rows.h) else None for side, rows in enumerate(fresh))
        return SiteOutput(state=state, rows_out=rows_out, late=tuple(late for _, _, late in parts))

    def _parted(self, given: SiteInput, side: int) -> tuple[Input, Input, int]:
        """New rows that can have a partner, sorted by hash and time, those that cannot, and how many are late.

        A row without key or time is never late: nothing depends on its time but itself.
        """
        rows = given.inputs[side]
        single = np.zeros(len(rows.h), dtype=np.bool_)
        if self.preserved[side]:
            single |= rows.t == MIN_TIME
            for key in self.shape.keys[side]:
                single |= pc.is_null(rows.table.column(key)).to_numpy()
        late = ~single & (rows.t < given.late_before[side])
        kept = rows.take(~single & ~late)
        return kept.take(sort_order(kept.h, None, kept.t)), rows.take(single), int(late.sum())

    def _found(self, given: SiteInput, fresh: Sequence[Input], alone: Sequence[Input]) -> Found:
        for side in (0, 1):
            if self.preserved[side]:
                yield from self._singly(given, side, alone[side])
                closed = fresh[side].t < self._closed(side, given.watermarks)
                for rows in (fresh[side].take(closed), *self._closing(given, side)):
                    yield from self._singly(given, side, self._unmet(given, side, rows))
        if self.how == "anti":
            return
        for part in slices(given, fresh, given.runs, self.reach):
            yield from self._firsts(given, part) if self.how == "semi" else self._pairs(part)

    def _pairs(self, part: Slice) -> Found:
        """Combinations with at least one new row."""
        sides = part.probe.sides
        fits = self._fits(sides)
        for ids in part.probe.results(_ARRIVALS):
            if fits is not None:
                kept = fits(ids)
                ids = [rows[kept] for rows in ids]
            if len(ids[0]):
                yield self._gather(sides, ids), part.keys[sides[0].kid[ids[0]]]

    def _firsts(self, given: SiteInput, part: Slice) -> Found:
        """Rows of the first side that have their first partner now."""
        side = part.probe.sides[0]
        fits = self._fits(part.probe.sides)
        new = np.arange(side.n_old, len(side.kid), dtype=np.int64)
        new = new[part.probe.met(0, new, "all", fits)]
        yield from self._singly(given, 0, _rows(side, part.keys, new))
        old = np.arange(side.n_old, dtype=np.int64)
        old = old[part.probe.met(0, old, "new", fits)]
        rows = _rows(side, part.keys, old)
        yield from self._singly(given, 0, self._unmet(given, 0, rows.take(sort_order(rows.h, None, rows.t))))

    def _closing(self, given: SiteInput, side: int) -> Iterator[Input]:
        """State rows that the watermark has closed since the batch before, some keys at a time."""
        begin, end = self._closed(side, given.emitted), self._closed(side, given.watermarks)
        found = [(run, at) for run in given.runs[side] if len(at := _between(given, run, begin, end))]
        count = sum(len(at) for _, at in found)
        if count == 0:
            return
        names = given.inputs[side].table.column_names
        width = sum(run.ref.bytes for run, _ in found) / sum(run.ref.rows for run, _ in found)
        for low, high in hash_slices(count, portion(CLOSE_ROWS, given.piece_bytes, width)):
            tables = []
            for run, at in found:
                h = run.segment.h[at]
                at = at[np.searchsorted(h, low) : np.searchsorted(h, high, side="right")]
                if len(at):
                    tables.append(run.segment.table.take(pa.array(at)))
            if tables:
                whole = concat_sorted(tables, H, T)
                h2 = column(whole, H2) if H2 in whole.column_names else None
                yield Input(column(whole, H), h2, column(whole, T), whole.select(names))

    def _unmet(self, given: SiteInput, side: int, rows: Input) -> Input:
        """Those of the rows, sorted by hash and time, that have no partner in the other side's state.

        Rows of this batch need not be asked: closed rows cannot meet them, and of a semi join they are asked before.
        """
        other = 1 - side
        if len(rows.h) == 0 or not given.runs[other]:
            return rows
        nobody = given.inputs[other].take(np.zeros(0, dtype=np.int64))
        asked = Input(nobody.h, nobody.h2, nobody.t, nobody.table.select(self._operands(other, nobody.table)))
        fresh, runs = [rows, asked], [[], given.runs[other]]
        if side == 1:
            fresh, runs = fresh[::-1], runs[::-1]
        met = []
        for part in slices(given, fresh, runs, self.reach):
            mine = np.arange(len(part.probe.sides[side].kid), dtype=np.int64)
            met.append(part.probe.met(side, mine, "old", self._fits(part.probe.sides)))
        return rows.take(~np.concatenate(met))

    # ---- pairs and results

    def _operands(self, side: int, table: pa.Table) -> list[str]:
        """The columns of a side that decide who is a partner, except its event time."""
        needed = [] if self.matching is None else [of.column for of in self.matching.operands() if of.side == side]
        return [name for name in dict.fromkeys(needed) if name in table.column_names]

    def _fits(self, sides: Sequence[Side]) -> Fits | None:
        matching = self.matching
        if matching is None:
            return None

        def fits(ids: list[Ints]) -> Mask:
            def values(of: Of) -> pa.ChunkedArray | pa.Array:
                side, rows, clock = sides[of.side], ids[of.side], self.shape.clocks[of.side]
                if clock is not None and of.column == clock[0]:
                    return pa.array(side.t[rows]).view(clock[1])
                return side.table.column(of.column).take(pa.array(rows))

            return matches(matching, values)

        return fits

    def _gather(self, sides: Sequence[Side], ids: list[Ints]) -> pa.Table:
        return self._results([(side.t[rows], side.table.take(pa.array(rows))) for side, rows in zip(sides, ids)])

    def _singly(self, given: SiteInput, side: int, rows: Input) -> Found:
        """Rows of one side as results, with nulls for the other."""
        if len(rows.h) == 0:
            return
        like = given.inputs[1 - side].table.schema
        nulls = pa.table([pa.nulls(len(rows.h), kind) for kind in like.types], names=like.names)
        pair = [(rows.t, rows.table), (np.full(len(rows.h), MIN_TIME, dtype=np.int64), nulls)]
        yield self._results(pair if side == 0 else pair[::-1], alone=side), rows.h

    def _results(self, rows: Sequence[tuple[Ints, pa.Table]], alone: int | None = None) -> pa.Table:
        """Result columns of times and columns of both sides; `alone` is the side that has rows, if only one does."""
        columns = []
        for out in self.output:
            if alone == 1 and out.instead is not None:
                columns.append(rows[1][1].column(out.instead))
            elif out.column is None:
                t = rows[out.side][0]
                columns.append(pa.array(t, mask=t == MIN_TIME).view(out.time_type))
            else:
                columns.append(rows[out.side][1].column(out.column))
        return pa.table(columns, names=[out.name for out in self.output])


def _past(life: int, clock: str) -> str:
    return f"{words(life)} of {clock} past them" if life > 0 else "past them"


def _rows(side: Side, keys: Ints, rows: Ints) -> Input:
    h2 = None if side.h2 is None else side.h2[rows]
    return Input(keys[side.kid[rows]], h2, side.t[rows], side.table.take(pa.array(rows)))


def _between(given: SiteInput, run: SortedRun, begin: int, end: int) -> Ints:
    """The site's own rows of a run with begin <= t < end, in the run's order, found through their order by time."""
    none = np.zeros(0, dtype=np.int64)
    if begin >= end or run.ref.t_min >= end or run.ref.t_max < begin:
        return none
    order = run.segment.table.column(BY_TIME).to_numpy()
    low, high = (_first(run.segment.t, order, time) for time in (begin, end))
    at = np.sort(order[low:high]).astype(np.int64)
    return at if run.mine.all() else at[run.mine[given.routing.groups(run.segment.h[at])]]


def _first(t: Ints, order: Ints, time: int) -> int:
    """The first place in the order by time whose row is not before `time`."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if t[order[middle]] < time:
            low = middle + 1
        else:
            high = middle
    return low
