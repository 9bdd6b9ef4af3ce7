"""Aggregates over everything a key has seen.

Spark has already combined each task's rows to one row per key; the sites combine those partial rows with their state,
one row per key whose newest version counts. Groups that end, such as windows, are in
`fluxen.operators.aggregate.windowed`, the last n rows in `fluxen.operators.aggregate.last`, functions and partial
columns in `fluxen.operators.aggregate.combining`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fluxen.arrays import MIN_TIME, UNBOUNDED, Groups, Json
from fluxen.durations import expiry
from fluxen.operators.aggregate.measures import Measure, carried
from fluxen.operators.aggregate.partials import combined, finished, fold
from fluxen.operators.base import Operator, Progress, Results, SiteInput, SiteOutput
from fluxen.operators.kernels import boundaries
from fluxen.operators.versions import latest, newest
from fluxen.partitioning import Resources
from fluxen.state.segment import T, hashes
from fluxen.state.sorted_run import SortedRun

_EXPIRY = "ttl='7 days' or window='1 hour'"


@dataclass(frozen=True, kw_only=True)
class Running(Operator):
    """Aggregates over everything a key has seen: one result per key that changed in the batch."""

    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    described: Json
    clock: str | None = None
    """the input's event-time column"""
    ttl: int = UNBOUNDED
    """microseconds after a key's last update at which its value is forgotten"""
    emits = "update"
    shadows = True
    resources = Resources.of("CLL")
    whole = "rows of a key are combined before they travel, so it comes as a row or two per task"

    @property
    def result_key(self) -> tuple[str, ...]:
        return self.keys

    def identity(self) -> Json:
        return {"operator": "aggregate", "form": "running", **self.described}

    def keeps(self, clock: str) -> list[str]:
        return [f"a row per key, {expiry(self.ttl, clock, _EXPIRY)}"]

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        """An update to come counts at the watermark or later, so what it cannot see any more is dead."""
        return (MIN_TIME if self.ttl >= UNBOUNDED else max(MIN_TIME, following[0] - self.ttl),)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """A key's result comes with a new row of it; what is oldest among its rows may be from any time."""
        return carried(self.clock, self.keys, self.measures, progress.watermarks[0], MIN_TIME)

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        return newest(tables, horizon)

    def process(self, given: SiteInput) -> Results:
        rows = given.inputs[0]
        if len(rows.h) == 0:
            return SiteOutput()
        new = fold(rows.with_keys(), self.keys, self.measures, by_time=False)
        groups = given.routing.groups(hashes(new)[0])
        if self.ttl < UNBOUNDED:
            new = _updated(new, given.late_before[0])
        old = list(self._old(given.runs[0], new, groups))
        state = self._merge(old, new)
        yield finished(state, self.keys, self.measures)
        return SiteOutput(state=(state,), rows_out=given.per_group(groups), distinct=new.num_rows)

    def _old(self, runs: Sequence[SortedRun], new: pa.Table, groups: Groups) -> Iterator[pa.Table]:
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
        return combined(whole, starts, self.keys, self.measures)


def _updated(new: pa.Table, watermark: int) -> pa.Table:
    """Rows with the time at which they count as updates: their own, or the watermark if that is later."""
    stamps = np.maximum(new.column(T).to_numpy(), watermark)
    return new.set_column(new.schema.get_field_index(T), T, pa.array(stamps))
