"""The symmetric m-way join: every input's new rows against the others' state, each combination once.

Pure column work on sorted runs; `fluxen.site.task` loads the runs and stores what comes back, and
`fluxen.spark.plan.join` builds the config from the user's words.

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

import numpy as np
import pyarrow as pa

from fluxen.arrays import MAX_TIME, MIN_TIME, UNBOUNDED, Ints, Json, Mask
from fluxen.durations import microseconds, words
from fluxen.errors import QueryError
from fluxen.operators.base import EMIT_ROWS, Operator, Progress, Results, SiteInput, SiteOutput
from fluxen.operators.join.carried import Carried, carried_along, distances
from fluxen.operators.join.probe import Bounds, Probe, Side, arrivals, mixtures
from fluxen.operators.join.reduction import at_least, since, slices
from fluxen.operators.join.tightest import closure
from fluxen.operators.kernels import concat_sorted, portion, sort_order, sorted_union
from fluxen.partitioning import Resources
from fluxen.state.generations import Spans
from fluxen.state.segment import SegmentRef, column, hashes


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
    instead: str | None = None
    """of an outer join's key: the second side's column, for its rows without a partner"""

    @property
    def timed(self) -> bool:
        return self.column is None or self.key_time


@dataclass(frozen=True, kw_only=True)
class Join(Operator):
    """An equi-join of two or more inputs with pairwise bounds on their event times."""

    names: tuple[str, ...]
    low: Bounds
    """low[i][j] <= t_j - t_i; the upper bound is -low[j][i]"""
    output: tuple[OutputColumn, ...]
    described: Json
    """the query in the user's words, for the checkpoint's identity"""
    carried: tuple[Carried, ...] = ()
    spills = True
    resources = Resources.of("LQL")

    @property
    def inputs(self) -> int:
        return len(self.names)

    @property
    def sides(self) -> int:
        return len(self.names)

    @property
    def deals(self) -> tuple[int, ...]:
        return tuple(range(self.inputs))

    @cached_property
    def reach(self) -> Bounds:
        return closure(self.low)

    def identity(self) -> Json:
        return {"operator": "join", **self.described}

    def keeps(self, clock: str) -> list[str]:
        return [self._kept(side, clock) for side in range(self.inputs)]

    def _kept(self, side: int, clock: str) -> str:
        """How long the rows of one input stay: as long as one of the other inputs may still bring a partner."""
        longest = max(-self.reach[other][side] for other in range(self.inputs) if other != side)
        rows = f"rows of {self.names[side]}, "
        if longest >= UNBOUNDED:
            return f"{rows}which never expire: give within='1 hour', between={{...}} or ttl='7 days'"
        if longest <= 0:
            return f"{rows}until the watermarks of the other inputs reach them"
        return f"{rows}until the watermarks of the other inputs are {words(longest)} of {clock} past them"

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        """A row is dead once the watermark of every other input is beyond what the bounds let it meet."""
        # t_i - t_j <= -reach[i][j] for a future row of input i, and t_i >= its watermark
        return tuple(
            min(at_least(following[i], self.reach[i][j]) for i in range(self.inputs) if i != j)
            for j in range(self.sides)
        )

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """A result to come has a new row of some input i, so its row of input j is at least reach[i][j] later; what
        generations on disk owe is as old as they are."""
        times = [
            min(progress.owed[j], *(at_least(progress.watermarks[i], self.reach[i][j]) for i in range(self.inputs)))
            for j in range(self.inputs)
        ]
        return {out.name: times[out.side] for out in self.output if out.timed} | carried_along(times, self.carried)

    def distances(self) -> Mapping[tuple[str, str], int]:
        return distances(self.reach, {out.name: out.side for out in self.output if out.timed}, self.carried)

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
            for j in range(self.inputs)
        )

    def lifetime(self) -> int | None:
        life = max(-min(row) for row in zip(*self.reach))
        return life if life < UNBOUNDED else None

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        return concat_sorted([since(table, horizon) for table in tables], "_h", "_t")

    def process(self, given: SiteInput) -> Results:
        kept, late = given.on_time()
        fresh = [rows.take(sort_order(rows.h, None, rows.t)) for rows in kept]
        rows_out = given.per_group()
        for part in slices(given, fresh, given.runs, self.reach):
            reduced = part.probe.sides
            for ids in part.probe.results(arrivals(len(reduced))):
                if given.old_until_epoch is not None:
                    ids = _with_old(reduced, ids)
                rows_out += given.per_group(part.groups[reduced[0].kid[ids[0]]])
                yield self._gather(reduced, ids)
        state = tuple(rows.with_keys() if len(rows.h) else None for rows in fresh)
        return SiteOutput(state=state, rows_out=rows_out, late=late)

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


def _with_old(sides: Sequence[Side], ids: list[Ints]) -> list[Ints]:
    """The combinations with a row from before the move: the receiver finds the others."""
    since_ = [side.since[rows] for side, rows in zip(sides, ids) if side.since is not None]
    kept = ~np.logical_and.reduce(since_)
    return [rows[kept] for rows in ids]


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
