"""The symmetric m-way join: every input's new rows against the others' state, each combination once.

Pure column work on sorted runs; `fluxen.operators.site` loads the runs and stores what comes back, and
`fluxen.spark.query` builds the config from the user's words.

For inputs 1..m the new results of a batch are the union over i of

    new_i  joined with  (old + new)_j for j < i  and  old_j for j > i

so that a combination is produced by its last new input and by no other (Liu and Rundensteiner 2005, section 3.1, for
the symmetric m-way join). Before anything is joined, the state is reduced to rows whose key occurs among the new rows
and whose time can be in reach; what is left is probed through one integer that encodes (key, time), so the time bounds
narrow the probe itself and a hot key costs what it yields, not its square. Keys are taken in slices, so that what is
gathered from the state at a time is bounded however large the state is.

What generations on disk still owe is the same expansion over other pairs of old and new (`Join.owed`): each generation
in turn is new to those before it, and combinations it has all to itself were produced when it was active.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from fluxen.durations import microseconds
from fluxen.errors import QueryError
from fluxen.operators.base import EMIT_ROWS, Input, Progress, SiteBatch, portion
from fluxen.operators.columns import bisect, boundaries, concat_sorted, ragged, sort_order, sorted_union
from fluxen.operators.probe import Bounds, Probe, Side, arrivals, mixtures
from fluxen.state.generations import Spans
from fluxen.state.runs import Run
from fluxen.state.segment import SegmentRef, column, hashes
from fluxen.typing import MAX_TIME, MIN_TIME, UNBOUNDED, Groups, Ints, Json, Mask

GATHER_ROWS = 1 << 18
"""State rows gathered at a time, about; a single key may have more."""
_SAMPLED_KEYS = 2048
"""Keys looked up to find out how many state rows a batch will meet."""


def closure(low: Bounds) -> Bounds:
    """Tightest lower bounds on t_j - t_i implied by the given ones (upper bounds are their mirror image).

    Shortest paths over the difference constraints: what b - a and c - a allow also limits c - b.

    >>> closure(((0, -60, -60), (-60, 0, -(2**60)), (-60, -(2**60), 0)))[1][2]
    -120
    """
    size = len(low)
    tight = [[max(bound, -UNBOUNDED) for bound in row] for row in low]
    for k in range(size):
        for i in range(size):
            for j in range(size):
                tight[i][j] = max(tight[i][j], tight[i][k] + tight[k][j], -UNBOUNDED)
    return tuple(tuple(row) for row in tight)


def pair_bounds(
    names: list[str],
    within: str | timedelta | None,
    between: Mapping[tuple[str, str], tuple[str | timedelta | None, str | timedelta | None]] | None,
    ttl: str | timedelta | None = None,
) -> Bounds:
    """The user's `within` or `between` as lower bounds: low[i][j] <= t_j - t_i; `ttl` is for those left open."""
    if within is not None and between is not None:
        raise QueryError("give either within or between, not both")
    size = len(names)
    low = [[-UNBOUNDED] * size for _ in range(size)]
    for i in range(size):
        low[i][i] = 0
    if within is not None:
        span = microseconds(within, "within", positive=True)
        low = [[0 if i == j else -span for j in range(size)] for i in range(size)]
    for (later, earlier), (least, most) in (between or {}).items():
        for name in (later, earlier):
            if name not in names:
                raise QueryError(f"between names input {name!r}; there are: {', '.join(names)}")
        j, i = names.index(later), names.index(earlier)
        if i == j:
            raise QueryError(f"between needs two different inputs, got {later!r} twice")
        label = f"between of ({later!r}, {earlier!r})"
        if least is not None:
            low[i][j] = max(low[i][j], microseconds(least, label, signed=True))
        if most is not None:
            low[j][i] = max(low[j][i], -microseconds(most, label, signed=True))
        if low[i][j] > -low[j][i]:
            raise QueryError(f"{label} allows nothing: {least!r} is more than {most!r}")
    if ttl is not None:
        life = microseconds(ttl, "ttl", positive=True)
        if all(bound > -UNBOUNDED for row in low for bound in row):
            raise QueryError("ttl is for rows without a bound; within or between bound them all, so leave it out")
        low = [[-life if bound <= -UNBOUNDED else bound for bound in row] for row in low]
    return tuple(tuple(row) for row in low)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputColumn:
    """One result column: a column of one side's rows, or (with no name) that side's event time."""

    name: str
    side: int
    column: str | None
    time_type: pa.DataType | None = None
    key_time: bool = False
    """a key column that is its side's event time as well"""

    @property
    def timed(self) -> bool:
        return self.column is None or self.key_time


@dataclass(frozen=True, kw_only=True)
class Join:
    """An equi-join of two or more inputs with pairwise bounds on their event times."""

    names: tuple[str, ...]
    low: Bounds
    """low[i][j] <= t_j - t_i; the upper bound is -low[j][i]"""
    output: tuple[OutputColumn, ...]
    described: Json
    """the query in the user's words, for the checkpoint's identity"""

    @property
    def inputs(self) -> int:
        return len(self.names)

    @property
    def sides(self) -> int:
        return len(self.names)

    @cached_property
    def reach(self) -> Bounds:
        return closure(self.low)

    def identity(self) -> Json:
        return {"operator": "join", **self.described}

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        """A row is dead once the watermark of every other input is beyond what the bounds let it meet."""
        # t_i - t_j <= -reach[i][j] for a future row of input i, and t_i >= its watermark
        return tuple(
            max(MIN_TIME, min(following[i] + self.reach[i][j] for i in range(self.inputs) if i != j))
            for j in range(self.sides)
        )

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """A result to come has a new row of some input i, so its row of input j is at least reach[i][j] later; what
        generations on disk owe is as old as they are."""
        times = [
            min(progress.owed[j], *(_later(progress.watermarks[i], self.reach[i][j]) for i in range(self.inputs)))
            for j in range(self.inputs)
        ]
        return {out.name: times[out.side] for out in self.output if out.timed}

    def meets(self, one: SegmentRef, others: Spans) -> Mask:
        i, reach = one.side, np.array(self.reach, dtype=np.int64)
        ahead = others.t_max - one.t_min >= reach[i, others.side]
        behind = one.t_max - others.t_min >= reach[others.side, i]
        return np.asarray((others.side != i) & ahead & behind, dtype=np.bool_)

    def needed_since(self, others: Sequence[SegmentRef]) -> tuple[int, ...]:
        return tuple(
            min(
                (max(MIN_TIME, ref.t_min + self.reach[ref.side][j]) for ref in others if ref.side != j),
                default=MAX_TIME,
            )
            for j in range(self.sides)
        )

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        return concat_sorted([_since(table, horizon) for table in tables], "_h", "_t")

    def process(self, batch: SiteBatch) -> Iterator[pa.Table]:
        fresh = [rows.take(sort_order(rows.h, None, rows.t)) for rows in batch.drop_late()]
        batch.state = [rows.with_keys() if len(rows.h) else None for rows in fresh]
        keys = sorted_union([rows.h for rows in fresh])
        if len(keys) == 0:
            return
        groups = batch.routing.groups(keys)
        widths = [_row_bytes(rows, runs) for rows, runs in zip(fresh, batch.runs)]
        emit_rows = portion(EMIT_ROWS, batch.piece_bytes, sum(widths))
        cuts = _cuts(batch.runs, keys, groups, portion(GATHER_ROWS, batch.piece_bytes, max(widths)))
        for first, last in pairwise(cuts):
            part = [_between(rows, keys[first], keys[last - 1]) for rows in fresh] if len(cuts) > 2 else fresh
            reduced = _reduce(part, batch.runs, keys[first:last], groups[first:last], self.reach)
            for ids in Probe(reduced, self.reach, last - first, emit_rows).results(arrivals(len(reduced))):
                batch.count_out(groups[first:last][reduced[0].kid[ids[0]]])
                yield self._gather(reduced, ids)

    def owed(
        self, sides: Sequence[Sequence[tuple[int, pa.Table]]], piece_bytes: int | None = None
    ) -> Iterator[pa.Table]:
        """The combinations of rows that are not all of one generation (Liu-05 Equation 1, for any number of inputs).

        `sides` holds per input the (generation, rows in layout of a segment) of one interval of key hashes.
        """
        stacked = [_Stacked(side) for side in sides]
        if not all(len(side.h) for side in stacked):
            return
        keys = sorted_union([np.sort(side.h) for side in stacked])
        kids = [np.searchsorted(keys, side.h).astype(np.int64) for side in stacked]
        emit_rows = portion(EMIT_ROWS, piece_bytes, sum(side.table.nbytes / len(side.h) for side in stacked))
        for generation in sorted({label for side in stacked for label in side.labels})[1:]:
            reduced = [side.up_to(generation, kid) for side, kid in zip(stacked, kids)]
            for ids in Probe(reduced, self.reach, len(keys), emit_rows).results(mixtures(len(reduced))):
                yield self._gather(reduced, ids)

    def _gather(self, sides: list[Side], ids: list[Ints]) -> pa.Table:
        parts = [side.table.take(pa.array(rows)) for side, rows in zip(sides, ids)]
        columns = []
        for out in self.output:
            if out.column is None:
                columns.append(pa.array(sides[out.side].t[ids[out.side]]).view(out.time_type))
            else:
                columns.append(parts[out.side].column(out.column))
        return pa.table(columns, names=[out.name for out in self.output])


def _found(fresh: Input, runs: list[Run], picked: list[Ints], kids: list[Ints], new_kid: Ints) -> Side:
    """Rows found in runs, then a batch's new rows."""
    t = np.concatenate([*(run.segment.t[rows] for run, rows in zip(runs, picked)), fresh.t])
    h2: Ints | None = None
    if fresh.h2 is not None:
        old = [run.segment.table.column("_h2").to_numpy()[rows] for run, rows in zip(runs, picked)]
        h2 = np.concatenate([*old, fresh.h2])

    def payload() -> pa.Table:
        names = fresh.table.column_names
        old = [run.segment.table.select(names).take(pa.array(rows)) for run, rows in zip(runs, picked)]
        return pa.concat_tables([*old, fresh.table]).combine_chunks()

    return Side(np.concatenate([*kids, new_kid]), t, h2, len(t) - len(fresh.t), payload)


class _Stacked:
    """One input's rows of several generations, the oldest generation first."""

    def __init__(self, parts: Sequence[tuple[int, pa.Table]]) -> None:
        ordered = sorted((part for part in parts if part[1].num_rows), key=lambda part: part[0])
        self.labels = [label for label, _ in ordered]
        self._ends = np.cumsum([0, *(table.num_rows for _, table in ordered)])
        self.table = pa.concat_tables([table for _, table in ordered]).combine_chunks() if ordered else pa.table({})
        self.h, self.h2 = hashes(self.table) if ordered else (np.zeros(0, dtype=np.int64), None)
        self.t = column(self.table, "_t") if ordered else self.h

    def up_to(self, generation: int, kid: Ints) -> Side:
        """This generation as new rows, the earlier ones as old rows."""
        n_old = int(self._ends[bisect_left(self.labels, generation)])
        end = int(self._ends[bisect_right(self.labels, generation)])
        h2 = None if self.h2 is None else self.h2[:end]
        return Side(kid[:end], self.t[:end], h2, n_old, lambda: self.table)


def _later(time: int, gap: int) -> int:
    """`time` plus a lower bound: the end of an input is the end whatever the bound, and no bound is no time at all."""
    if time >= MAX_TIME:
        return MAX_TIME
    return MIN_TIME if gap <= -UNBOUNDED // 2 else min(max(time + gap, MIN_TIME), MAX_TIME)


def _between(rows: Input, first: int, last: int) -> Input:
    """The rows, sorted by hash, whose hash is in [first, last]."""
    low, high = np.searchsorted(rows.h, first, side="left"), np.searchsorted(rows.h, last, side="right")
    h2 = None if rows.h2 is None else rows.h2[low:high]
    return Input(rows.h[low:high], h2, rows.t[low:high], rows.table.slice(low, high - low))


def _since(table: pa.Table, horizon: int) -> pa.Table:
    kept = column(table, "_t") >= horizon
    return table if kept.all() else table.filter(pa.array(kept))


def _row_bytes(fresh: Input, runs: list[Run]) -> float:
    """What a row of one side takes, new or stored."""
    size = int(fresh.table.nbytes) + sum(run.ref.bytes for run in runs)
    return size / max(len(fresh.h) + sum(run.ref.rows for run in runs), 1)


def _cuts(runs: list[list[Run]], keys: Ints, groups: Groups, rows: int) -> list[int]:
    """Where to cut the sorted keys so that each slice meets about `rows` rows of state, told by a sample."""
    if sum(run.ref.rows for side in runs for run in side) <= rows:
        return [0, len(keys)]
    step = max(1, len(keys) // _SAMPLED_KEYS)
    met = np.zeros(len(keys[::step]))
    for run in (run for side in runs for run in side):
        low, high = run.lookup(keys[::step], groups[::step])
        met += high - low
    slices = np.floor((np.cumsum(met) - met) * (step / rows))
    return [0, *(np.flatnonzero(np.diff(slices)) * step + step).tolist(), len(keys)]


def _reduce(fresh: list[Input], runs: list[list[Run]], keys: Ints, groups: Groups, reach: Bounds) -> list[Side]:
    """Each side's rows with a key among the new rows' and a time that one of the other inputs' new rows can meet."""
    kids = [np.searchsorted(keys, rows.h).astype(np.int64) for rows in fresh]
    spans = [_spans(rows, kid) for rows, kid in zip(fresh, kids)]
    sides = []
    for j, rows in enumerate(fresh):
        first = np.full(len(keys), MAX_TIME, dtype=np.int64)
        last = np.full(len(keys), MIN_TIME, dtype=np.int64)
        for i, (seen, earliest, latest) in enumerate(spans):
            if i != j:
                first[seen] = np.minimum(first[seen], earliest + reach[i][j])
                last[seen] = np.maximum(last[seen], latest - reach[j][i])
        wanted = np.flatnonzero(last > MIN_TIME)
        used, picked, found = [], [], []
        for run in runs[j]:
            at, row = find_rows(run, keys, groups, wanted, first, last)
            if len(row):
                used.append(run)
                picked.append(row)
                found.append(at)
        sides.append(_found(rows, used, picked, found, kids[j]))
    return sides


def _spans(rows: Input, kid: Ints) -> tuple[Ints, Ints, Ints]:
    """The new rows' keys, each with its earliest and latest time."""
    starts = np.flatnonzero(boundaries(kid))
    ends = np.append(starts[1:], len(kid))[: len(starts)] - 1
    return kid[starts], rows.t[starts], rows.t[ends]  # rows are sorted by (key, time)


def find_rows(run: Run, keys: Ints, groups: Groups, wanted: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """(key index, row) of the run's rows whose key is wanted and whose time is within [first, last] of that key."""
    if run.ref.rows <= len(wanted):
        return _scan(run, keys, groups, first, last)
    return _search(run, keys, groups, wanted, first, last)


def _search(run: Run, keys: Ints, groups: Groups, wanted: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    wanted = wanted[(first[wanted] <= run.ref.t_max) & (last[wanted] >= run.ref.t_min)]
    low, high = run.lookup(keys[wanted], groups[wanted])
    hit = np.flatnonzero(high > low)
    wanted, low, high = wanted[hit], low[hit], high[hit]
    low = bisect(run.segment.t, low, high, first[wanted])
    high = bisect(run.segment.t, low, high, last[wanted], right=True)
    counts = high - low
    return np.repeat(wanted, counts), ragged(low, counts)


def _scan(run: Run, keys: Ints, groups: Groups, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """The same for a run that has fewer rows than there are keys: one search per row instead of four per key."""
    h, t = run.segment.h, run.segment.t
    kid = np.searchsorted(keys, h)
    np.minimum(kid, len(keys) - 1, out=kid)
    found = (keys[kid] == h) & (t >= first[kid]) & (t <= last[kid])
    if not run.whole:
        found &= run.mine[groups[kid]]
    rows = np.flatnonzero(found)
    return kid[rows], rows
