"""The symmetric m-way join: every input's new rows against the others' state, each combination once.

Pure column work on sorted runs; `fluxen.operators.site` loads the runs and stores what comes back, and
`fluxen.spark.query` builds the config from the user's words.

For inputs 1..m the new results of a batch are the union over i of

    new_i  joined with  (old + new)_j for j < i  and  old_j for j > i

so that a combination is produced by its last new input and by no other (Liu and Rundensteiner 2005, section 3.1, for
the symmetric m-way join). Before anything is joined, the state is reduced to rows whose key occurs among the new rows
and whose time can be in reach; what is left is probed through one integer that encodes (key, time), so the time bounds
narrow the probe itself and a hot key costs what it yields, not its square.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import numpy as np
import pyarrow as pa

from fluxen.durations import microseconds
from fluxen.errors import QueryError
from fluxen.operators.base import EMIT_ROWS, Input, SiteBatch
from fluxen.operators.columns import bisect, boundaries, concat_sorted, ragged, sort_order, sorted_union
from fluxen.state.runs import Run
from fluxen.typing import MAX_TIME, MIN_TIME, UNBOUNDED, Groups, Ints, Json, Mask

Bounds = tuple[tuple[int, ...], ...]


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
) -> Bounds:
    """The user's `within` or `between` as lower bounds: low[i][j] <= t_j - t_i."""
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
    return tuple(tuple(row) for row in low)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputColumn:
    """One result column: a column of one side's rows, or (with no name) that side's event time."""

    name: str
    side: int
    column: str | None
    time_type: pa.DataType | None = None


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

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        kept = [table.filter(pa.array(table.column("_t").to_numpy() >= horizon)) for table in tables]
        return concat_sorted(kept, "_h", "_t")

    def process(self, batch: SiteBatch) -> Iterator[pa.Table]:
        fresh = [rows.take(sort_order(rows.h, None, rows.t)) for rows in batch.drop_late()]
        batch.state = [rows.with_keys() if len(rows.h) else None for rows in fresh]
        keys = sorted_union([rows.h for rows in fresh])
        if len(keys) == 0:
            return
        groups = batch.routing.groups(keys)
        reduced = _reduce(fresh, batch.runs, keys, groups, self.reach)
        for ids in _blocks(_Probe(reduced, self.reach, len(keys)).results()):
            batch.count_out(groups[reduced[0].kid[ids[0]]])
            yield self._gather(reduced, ids)

    def _gather(self, sides: list[_Side], ids: list[Ints]) -> pa.Table:
        parts = [side.table.take(pa.array(rows)) for side, rows in zip(sides, ids)]
        columns = []
        for out in self.output:
            if out.column is None:
                columns.append(pa.array(sides[out.side].t[ids[out.side]]).view(out.time_type))
            else:
                columns.append(parts[out.side].column(out.column))
        return pa.table(columns, names=[out.name for out in self.output])


class _Side:
    """One input's rows that can take part in this batch: old ones found in the runs, then the new ones."""

    def __init__(self, fresh: Input, runs: list[Run], picked: list[Ints], kids: list[Ints], new_kid: Ints) -> None:
        self._fresh, self._runs, self._picked = fresh, runs, picked
        old_t = [run.segment.t[rows] for run, rows in zip(runs, picked)]
        self.kid = np.concatenate([*kids, new_kid])
        self.t = np.concatenate([*old_t, fresh.t])
        self.n_old = len(self.kid) - len(new_kid)
        self.h2: Ints | None = None
        if fresh.h2 is not None:
            old_h2 = [run.segment.table.column("_h2").to_numpy()[rows] for run, rows in zip(runs, picked)]
            self.h2 = np.concatenate([*old_h2, fresh.h2])

    @cached_property
    def table(self) -> pa.Table:
        """The payload of all rows, gathered once and only if there are results."""
        names = self._fresh.table.column_names
        old = [run.segment.table.select(names).take(pa.array(rows)) for run, rows in zip(self._runs, self._picked)]
        return pa.concat_tables([*old, self._fresh.table]).combine_chunks()


def _reduce(fresh: list[Input], runs: list[list[Run]], keys: Ints, groups: Groups, reach: Bounds) -> list[_Side]:
    """Each side's rows with a key among the new rows' and a time that one of the other inputs' new rows can meet."""
    kids = [np.searchsorted(keys, rows.h).astype(np.int64) for rows in fresh]
    spans = [_spans(rows, kid, len(keys)) for rows, kid in zip(fresh, kids)]
    sides = []
    for j, rows in enumerate(fresh):
        first = np.full(len(keys), MAX_TIME, dtype=np.int64)
        last = np.full(len(keys), MIN_TIME, dtype=np.int64)
        for i, (earliest, latest) in enumerate(spans):
            if i != j:
                seen = latest > MIN_TIME
                first[seen] = np.minimum(first[seen], earliest[seen] + reach[i][j])
                last[seen] = np.maximum(last[seen], latest[seen] - reach[j][i])
        wanted = np.flatnonzero(last > MIN_TIME)
        used, picked, found = [], [], []
        for run in runs[j]:
            at, row = _find(run, keys, groups, wanted, first, last)
            if len(row):
                used.append(run)
                picked.append(row)
                found.append(at)
        sides.append(_Side(rows, used, picked, found, kids[j]))
    return sides


def _spans(rows: Input, kid: Ints, size: int) -> tuple[Ints, Ints]:
    """Earliest and latest new row of each key."""
    earliest = np.full(size, MAX_TIME, dtype=np.int64)
    latest = np.full(size, MIN_TIME, dtype=np.int64)
    starts = np.flatnonzero(boundaries(kid))
    if len(starts):  # rows are sorted by (key, time): the ends of each key's slice
        earliest[kid[starts]] = rows.t[starts]
        latest[kid[starts]] = rows.t[np.append(starts[1:], len(kid)) - 1]
    return earliest, latest


def _find(run: Run, keys: Ints, groups: Groups, wanted: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """(key index, row) of the run's rows whose key is wanted and whose time is within [first, last] of that key."""
    wanted = wanted[(first[wanted] <= run.ref.t_max) & (last[wanted] >= run.ref.t_min)]
    low, high = run.lookup(keys[wanted], groups[wanted])
    hit = np.flatnonzero(high > low)
    wanted, low, high = wanted[hit], low[hit], high[hit]
    low = bisect(run.segment.t, low, high, first[wanted])
    high = bisect(run.segment.t, low, high, last[wanted], right=True)
    counts = high - low
    return np.repeat(wanted, counts), ragged(low, counts)


class _Codes:
    """(key index, time) as one integer whose order is theirs."""

    def __init__(self, sides: list[_Side], keys: int) -> None:
        times = [side.t for side in sides if len(side.t)]
        self._first = min(int(t.min()) for t in times)
        span = max(int(t.max()) for t in times) - self._first
        self._ranks: Ints | None = None
        if (span + 2).bit_length() + keys.bit_length() > 62:
            # times too far apart for one integer: number the distinct ones instead
            self._ranks = np.unique(np.concatenate(times))
            span = len(self._ranks)
        self._last = span
        self._shift = np.int64((span + 2).bit_length())

    def exact(self, kid: Ints, t: Ints) -> Ints:
        return (kid << self._shift) + self._at_least(t)

    def range(self, kid: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """Codes between which, the first included and the second not, the key's rows in [first, last] lie."""
        base = kid << self._shift
        return base + self._at_least(first), base + self._at_least(last + 1)

    def _at_least(self, t: Ints) -> Ints:
        if self._ranks is not None:
            return np.searchsorted(self._ranks, t)
        return np.clip(t - self._first, 0, self._last + 1)


class _Probe:
    """The delta expansion over reduced sides."""

    def __init__(self, sides: list[_Side], reach: Bounds, keys: int) -> None:
        self.sides, self.reach = sides, reach
        self.codes = _Codes(sides, keys)
        self.old, self.all = [], []
        for side in sides:
            code = self.codes.exact(side.kid, side.t)
            order = np.argsort(code, kind="stable")
            old = order[order < side.n_old]
            self.all.append((code[order], order))
            self.old.append((code[old], old))

    def results(self) -> Iterator[list[Ints]]:
        """Row numbers per side of every new combination, in pieces of at most `EMIT_ROWS`."""
        for i, side in enumerate(self.sides):
            rows = np.arange(side.n_old, len(side.kid), dtype=np.int64)
            if len(rows):
                others = [j for j in range(len(self.sides)) if j != i]
                yield from self._expand(i, {i: rows}, others)

    def _expand(self, term: int, bound: dict[int, Ints], remaining: list[int]) -> Iterator[list[Ints]]:
        if not remaining:
            yield [bound[j] for j in range(len(self.sides))]
            return
        probes = {j: self._probe(term, bound, j) for j in remaining}
        # a row without a partner on any one side is out, whatever the order
        alive = np.logical_and.reduce([high > low for low, high in probes.values()])
        if not alive.any():
            return
        bound = {j: rows[alive] for j, rows in bound.items()}
        ranges = {j: (low[alive], high[alive]) for j, (low, high) in probes.items()}
        following = min(remaining, key=lambda j: int((ranges[j][1] - ranges[j][0]).sum()))
        rest = [j for j in remaining if j != following]
        order = (self.all if following < term else self.old)[following][1]
        for origin, at in _pieces(*ranges[following]):
            grown = {j: rows[origin] for j, rows in bound.items()}
            grown[following] = order[at]
            same = self._same_key(grown, term, following)
            if same is not None:
                grown = {j: rows[same] for j, rows in grown.items()}
            yield from self._expand(term, grown, rest)

    def _probe(self, term: int, bound: dict[int, Ints], j: int) -> tuple[Ints, Ints]:
        """Range of partners on side j of each combination so far."""
        first = np.full(len(bound[term]), MIN_TIME, dtype=np.int64)
        last = np.full(len(bound[term]), MAX_TIME, dtype=np.int64)
        for i, rows in bound.items():
            t = self.sides[i].t[rows]
            np.maximum(first, t + self.reach[i][j], out=first)
            np.minimum(last, t - self.reach[j][i], out=last)
        codes = (self.all if j < term else self.old)[j][0]
        low, high = self.codes.range(self.sides[term].kid[bound[term]], first, last)
        return np.searchsorted(codes, low), np.searchsorted(codes, high)

    def _same_key(self, bound: dict[int, Ints], i: int, j: int) -> Mask | None:
        """Where the second hash agrees too; None when one hash decides."""
        left, right = self.sides[i].h2, self.sides[j].h2
        return None if left is None or right is None else left[bound[i]] == right[bound[j]]


def _pieces(low: Ints, high: Ints) -> Iterator[tuple[Ints, Ints]]:
    """The ranges' elements with their origins, `EMIT_ROWS` at a time, splitting a range where need be."""
    ends = np.cumsum(high - low)
    for start in range(0, int(ends[-1]), EMIT_ROWS):
        stop = start + EMIT_ROWS
        a, b = np.searchsorted(ends, start, side="right"), np.searchsorted(ends, stop, side="left") + 1
        begin = ends[a:b] - (high[a:b] - low[a:b])
        head = np.maximum(start - begin, 0)
        tail = np.maximum(ends[a:b] - stop, 0)
        counts = high[a:b] - low[a:b] - head - tail
        yield np.repeat(np.arange(a, a + len(counts)), counts), ragged(low[a:b] + head, counts)


def _blocks(pieces: Iterator[list[Ints]]) -> Iterator[list[Ints]]:
    """Small pieces put together, so that results leave in few tables."""
    held: list[list[Ints]] = []
    rows = 0
    for piece in pieces:
        held.append(piece)
        rows += len(piece[0])
        if rows >= EMIT_ROWS:
            yield [np.concatenate(part) for part in zip(*held)]
            held, rows = [], 0
    if rows:
        yield [np.concatenate(part) for part in zip(*held)]
