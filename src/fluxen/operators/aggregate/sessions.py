"""Aggregates of sessions: rows of a key that follow each other with pauses of at most `gap` are one group.

A row at t covers [t, t + gap). Intervals of a key that overlap or touch are one session, as in Spark, and it is emitted
once, when the watermark has passed its end: a row at the watermark is not late, and one at a session's end goes on with
it. Spark has combined each task's rows of one key and time; more it cannot, as
each row is late, or not, by itself.

A key's state is its open sessions, one row each with the end as its time. A batch that has rows of a key writes all of
them anew, and this version takes the place of earlier ones. Since sessions only grow, an outdated row never outlives
the version that took its place: when that has closed and gone, the watermark has passed the outdated one, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fluxen.arrays import MIN_TIME, Ints, Json, Mask
from fluxen.durations import words
from fluxen.operators.aggregate.measures import Measure, carried
from fluxen.operators.aggregate.partials import combined, finished, fold, in_order
from fluxen.operators.aggregate.windowed import CLOSE_ROWS, W, closed_rows, closing
from fluxen.operators.base import Input, Operator, Progress, Results, SiteInput, SiteOutput
from fluxen.operators.kernels import boundaries, concat_sorted, hash_slices
from fluxen.operators.versions import latest_rows, newest_rows, rows_of
from fluxen.partitioning import Resources
from fluxen.state.segment import H2, H, SegmentRef, T, hashes

START = "_session"
"""Where a session starts, in microseconds."""
NAME = "session_window"
"""The result column: a struct of start and end."""


@dataclass(frozen=True, kw_only=True)
class Sessions(Operator):
    """Aggregates per key and session, emitted once, when the watermark has passed the session's end."""

    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    described: Json
    gap: int
    """microseconds after a row in which the next one continues its session"""
    time_type: pa.DataType
    clock: str | None = None
    """the input's event-time column"""
    flushes = True
    shadows = True
    resources = Resources.of("CLL")
    whole = "which session a row belongs to depends on the rows around it"

    def identity(self) -> Json:
        return {"operator": "aggregate", "form": "session", **self.described}

    def keeps(self, clock: str) -> list[str]:
        return [f"a row per key and open session, until the watermark has passed its last row by {words(self.gap)}"]

    def due(self, one: SegmentRef, emitted: tuple[int, ...], watermarks: tuple[int, ...]) -> bool:
        return one.t_min < watermarks[0] and one.t_max >= emitted[0]

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        """What was closed under the last watermark is out."""
        return (used[0],)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """Sessions to come end no earlier than the watermark of the last closing; they may be of any length."""
        end = progress.emitted[0]
        bounds = {f"{NAME}.start": MIN_TIME, f"{NAME}.end": end}
        return bounds | carried(self.clock, self.keys, self.measures, max(MIN_TIME, end - self.gap), MIN_TIME)

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        return newest_rows(tables, horizon)

    def process(self, given: SiteInput) -> Results:
        rows = given.inputs[0]
        kept = rows.take(closing(rows) >= given.late_before[0])
        rows_out = given.per_group()
        for found in self._closed(given):
            rows_out += given.per_group(given.routing.groups(found.column(H).to_numpy()))
            yield self._result(found)
        state, distinct = None, 0
        if len(kept.h):
            alone = self._alone(kept)
            state, distinct = self._merged(given, alone), alone.num_rows
        return SiteOutput(state=(state,), rows_out=rows_out, late=(rows.rows - kept.rows,), distinct=distinct)

    def _alone(self, rows: Input) -> pa.Table:
        """Each key and time's rows as a session of their own."""
        ending = Input(rows.h, rows.h2, closing(rows), rows.table.drop_columns([W]))
        table = fold(ending.with_keys(), self.keys, self.measures, by_time=True)
        return table.append_column(START, pa.array(table.column(T).to_numpy() - self.gap))

    def _merged(self, given: SiteInput, new: pa.Table) -> pa.Table:
        """All sessions of the keys that have new rows, these included.

        A session that was closed when the rows came takes in none of them. It may still be there: rows that wait hold
        back the watermark under which sessions are emitted, but not the one that says what is late.
        """
        h, h2 = hashes(new)
        first = boundaries(h, h2)
        h, h2 = h[first], None if h2 is None else h2[first]
        open_ = [new]
        closed: list[pa.Table] = []
        for run, at, _ in latest_rows(given.runs[0], h, h2, given.routing.groups(h)):
            end = run.segment.t[at]
            for which, among in ((end >= given.late_before[0], open_), (end < given.late_before[0], closed)):
                mine = at[which & (end >= given.watermarks[0])]
                if len(mine):
                    among.append(run.segment.table.take(pa.array(mine)))
        whole = pa.concat_tables(open_).combine_chunks()
        whole = in_order(whole, self.measures, whole.column(START).to_numpy())
        starts = np.flatnonzero(_beginnings(whole))
        sessions = combined(whole, starts, (*self.keys, START), self.measures)
        second = [H2] if H2 in sessions.column_names else []
        return concat_sorted([*closed, sessions], H, *second, T)

    def _closed(self, given: SiteInput) -> Iterator[pa.Table]:
        """Sessions that the watermark has closed since the batch before, a slice of the hash space at a time."""
        runs = given.runs[0]
        closing_ = [at for at, run in enumerate(runs) if self.due(run.ref, given.emitted, given.watermarks)]
        for low, high in hash_slices(sum(runs[at].ref.rows for at in closing_), CLOSE_ROWS):
            parts = []
            for at in closing_:
                found = closed_rows(given, runs[at], low, high, at_end=False)
                if found is not None:
                    parts.append(found.filter(pa.array(_current(given, found, at))))
            if any(part.num_rows for part in parts):
                yield pa.concat_tables(parts).combine_chunks()

    def _result(self, sessions: pa.Table) -> pa.Table:
        result = finished(sessions, self.keys, self.measures)
        bounds = [pa.array(sessions.column(name).to_numpy()).view(self.time_type) for name in (START, T)]
        window = pa.StructArray.from_arrays(bounds, names=["start", "end"])
        return result.add_column(len(self.keys), NAME, window)


def _current(given: SiteInput, rows: pa.Table, at: int) -> Mask:
    """Which of these rows of the run number `at` no later run has a version of."""
    h, h2 = hashes(rows)
    groups = given.routing.groups(h)
    current = np.ones(len(h), dtype=np.bool_)
    for later in given.runs[0][at + 1 :]:
        low, high = rows_of(later, h, h2, groups)
        current &= high == low
    return current


def _beginnings(rows: pa.Table) -> Mask:
    """Where a session begins, in rows sorted by key and start: after all before it of its key have ended."""
    h, h2 = hashes(rows)
    begins = boundaries(h, h2)
    start, end = rows.column(START).to_numpy(), rows.column(T).to_numpy()
    values, rank = np.unique(end, return_inverse=True)
    # the furthest end so far within each key: ranks of a later key are all above those of an earlier one
    level = (np.cumsum(begins) - 1) * len(values)
    reached: Ints = values[np.maximum.accumulate(rank + level) - level]
    begins[1:] |= start[1:] > reached[:-1]
    return begins
