"""Aggregates of groups that end: each row has a closing time, and its group ends when the watermark reaches that.

One operator serves tumbling and hopping windows, whose closing time is their end, and groups by event time itself.
Spark has already combined each task's rows to one row per group; the sites store those partial rows under their closing
time. Values without an end are in `fluxen.operators.aggregate.running`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from fluxen.arrays import MAX_TIME, MIN_TIME, Groups, Ints, Json, Mask
from fluxen.durations import words
from fluxen.operators.aggregate.measures import Measure, carried
from fluxen.operators.aggregate.partials import finished, fold
from fluxen.operators.base import Input, Operator, Progress, Results, SiteInput, SiteOutput
from fluxen.operators.kernels import bisect, hash_slices, ragged
from fluxen.partitioning import Resources
from fluxen.state.segment import H2, H, T, hashes
from fluxen.state.sorted_run import SortedRun
from fluxen.state.trees import Track

CLOSE_ROWS = 1 << 20
"""Closing groups are processed in slices of about this many state rows."""
W = "_w"
"""The closing time of a new row, in microseconds; MAX_TIME for one that ends with the input."""
WINDOW = "window"
"""The result column with a window's start and end."""

Emit = Literal["append", "update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Event-time windows [start, start + size), one of which starts at every multiple of `slide`."""

    size: int
    slide: int
    time_type: pa.DataType

    def first_after(self, mark: int) -> int:
        """The start of the first window that ends after `mark`.

        >>> Windows(size=10, slide=4, time_type=pa.timestamp("us")).first_after(12)
        4
        """
        return ((mark - self.size) // self.slide + 1) * self.slide

    def __str__(self) -> str:
        return words(self.size) + ("" if self.slide == self.size else f" every {words(self.slide)}")


@dataclass(frozen=True, kw_only=True)
class Windowed(Operator):
    """Aggregates per key and closing time: emitted once, when the watermark reaches it, or with every change before.

    State is only ever appended, one partial row per group and batch, with the closing time as its time. Rows of a group
    meet when it closes, or when a change of it is emitted.
    """

    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    described: Json
    windows: Windows | None = None
    """windows that the results name as `window`; None where keys tell when their group closes"""
    closes: str | None = None
    """the key, or the field of one as in "window.end", whose value is the closing time, where there are no `windows`"""
    emit: Emit = "append"
    clock: str | None = None
    """the input's event-time column"""
    division = "windows"
    resources = Resources.of("CLL")
    whole = "rows of a key are combined before they travel, so it comes as a row or two per task"

    @property
    def emits(self) -> Emit:
        return self.emit

    @property
    def result_key(self) -> tuple[str, ...]:
        if self.emit == "append":
            return ()
        return self.keys if self.windows is None else (*self.keys, WINDOW)

    @property
    def flushes(self) -> bool:
        return self.emit == "append"

    def identity(self) -> Json:
        return {"operator": "aggregate", "form": "windowed", **self.described}

    def keeps(self, clock: str) -> list[str]:
        if self.windows is not None:
            return [f"a row per key and open window of {self.windows}, until the watermark passes its end"]
        return [f"a row per group and batch, until the watermark passes {self.closes}"]

    def lifetime(self) -> int | None:
        # without windows nothing says when the last group that is open now closes: that of a null never does
        return None if self.windows is None else self.windows.size

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        """What was closed under the last watermark is out; what changed was, so with updates it just goes."""
        return ((used if self.flushes else following)[0] + 1,)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """Groups to come close after the watermark that groups were last closed, or rows last dropped, under."""
        mark = (progress.emitted if self.flushes else progress.watermarks)[0]
        if self.windows is not None:
            start = max(MIN_TIME, self.windows.first_after(mark))
            bounds = {"window.start": start, "window.end": start + self.windows.size}
            return bounds | carried(self.clock, self.keys, self.measures, start, start)
        assert self.closes is not None
        bound = min(mark + 1, MAX_TIME)
        times = carried(self.clock, self.keys, self.measures, bound, bound) if self.closes == self.clock else {}
        return {self.closes: bound} | times

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        whole = pa.concat_tables(tables).combine_chunks()
        alive = whole.filter(pa.array(whole.column(T).to_numpy() >= horizon))
        return fold(alive, self.keys, self.measures, by_time=True)

    def stays(self, rows: Input, track: Track, runs: Sequence[SortedRun], groups: Groups, watermark: int) -> Mask:
        """Rows of windows that were open when the move began: a window belongs to one site as a whole."""
        assert track.until is not None
        return np.asarray(closing(rows) <= track.until)

    def process(self, given: SiteInput) -> Results:
        rows = given.inputs[0]
        # a row that waited is not late, but must not make a group anew that has closed since
        kept = rows.take(closing(rows) > max(given.late_before[0], given.watermarks[0]))
        stored = self._stored(kept) if len(kept.h) else None
        rows_out = given.per_group()
        for found in self._closed(given) if self.flushes else self._changed(given, stored):
            rows_out += given.per_group(given.routing.groups(found.column(H).to_numpy()))
            yield self._result(found)
        return SiteOutput(
            state=(stored,),
            rows_out=rows_out,
            late=(rows.rows - kept.rows,),
            distinct=0 if stored is None else stored.num_rows,
        )

    def _stored(self, rows: Input) -> pa.Table:
        ending = Input(rows.h, rows.h2, closing(rows), rows.table.drop_columns([W]))
        return fold(ending.with_keys(), self.keys, self.measures, by_time=True)

    def _closed(self, given: SiteInput) -> Iterator[pa.Table]:
        """Groups that the watermark has closed since the batch before, a slice of the hash space at a time."""
        closing = [
            run for run in given.runs[0] if run.ref.t_min <= given.watermarks[0] and run.ref.t_max > given.emitted[0]
        ]
        for low, high in hash_slices(sum(run.ref.rows for run in closing), CLOSE_ROWS):
            parts = [part for run in closing if (part := closed_rows(given, run, low, high)) is not None]
            if parts:
                yield fold(pa.concat_tables(parts).combine_chunks(), self.keys, self.measures, by_time=True)

    def _changed(self, given: SiteInput, new: pa.Table | None) -> Iterator[pa.Table]:
        """Groups that have new rows, with all that is stored of them."""
        if new is None:
            return
        groups = given.routing.groups(hashes(new)[0])
        old = [part for run in given.runs[0] if (part := _same_groups(run, new, groups)) is not None]
        whole = pa.concat_tables([*old, new]).combine_chunks() if old else new
        yield fold(whole, self.keys, self.measures, by_time=True)

    def _result(self, groups: pa.Table) -> pa.Table:
        result = finished(groups, self.keys, self.measures)
        if self.windows is None:
            return result
        end, kind = groups.column(T).to_numpy(), self.windows.time_type
        bounds = [pa.array(end - self.windows.size).view(kind), pa.array(end).view(kind)]
        window = pa.StructArray.from_arrays(bounds, names=["start", "end"])
        return result.add_column(len(self.keys), WINDOW, window)


def closing(rows: Input) -> Ints:
    """When each row's group closes."""
    times: Ints = rows.table.column(W).to_numpy() if len(rows.h) else rows.h
    return times


def closed_rows(given: SiteInput, run: SortedRun, low: int, high: int, *, at_end: bool = True) -> pa.Table | None:
    """The rows of a run that have just closed, of keys with low <= hash <= high.

    Groups close when the watermark is at their end, or only when it has passed that.
    """
    a = int(np.searchsorted(run.segment.h, low, side="left"))
    b = int(np.searchsorted(run.segment.h, high, side="right"))
    t = run.segment.t[a:b]
    mask = (t >= given.emitted[0] + at_end) & (t < given.watermarks[0] + at_end)
    if mask.any() and not run.mine.all():
        mask &= run.mine[given.routing.groups(run.segment.h[a:b])]
    at = np.flatnonzero(mask) + a
    return run.segment.table.take(pa.array(at)) if len(at) else None


def _same_groups(run: SortedRun, new: pa.Table, groups: Groups) -> pa.Table | None:
    """The rows of a run that are of the same keys and closing times as rows of `new`, which has one row for each."""
    h, h2 = hashes(new)
    end = new.column(T).to_numpy()
    low, high = run.lookup(h, groups)
    if h2 is not None:
        second = run.segment.table.column(H2).to_numpy()
        low = bisect(second, low, high, h2)
        high = bisect(second, low, high, h2, right=True)
    low = bisect(run.segment.t, low, high, end)
    high = bisect(run.segment.t, low, high, end, right=True)
    at = ragged(low, high - low)
    return run.segment.table.take(pa.array(at)) if len(at) else None
