"""The first row of each key, and after a pause of more than `within` the next first row.

A row is a duplicate if a kept row of its key lies at most `within` away in event time. Rows are taken in the order
(batch, event time, values). State holds one row (hashes and time) per kept row until no row can meet it any more.

Whether a row is kept depends on which rows before it were, so two sites cannot decide about one key. While a group
moves by parallel track (`fluxen.site.shares`), the sender decides about the keys it still holds a kept row of, and
the receiver, which looks them up in the sender's state, about all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fluxen.arrays import MAX_TIME, MIN_TIME, UNBOUNDED, Groups, Ints, Json, Mask
from fluxen.durations import expiry
from fluxen.operators.base import Input, Operator, Progress, Results, SiteInput, SiteOutput
from fluxen.operators.kernels import bisect, boundaries, concat_sorted, total_order
from fluxen.partitioning import Resources
from fluxen.state.segment import H2
from fluxen.state.sorted_run import SortedRun
from fluxen.state.trees import Track

_EXPIRY = "within='1 hour' or ttl='7 days'"


@dataclass(frozen=True, kw_only=True)
class Distinct(Operator):
    """Rows whose key was not kept within `within` microseconds; UNBOUNDED for ever."""

    columns: tuple[tuple[str, pa.DataType | None], ...]
    """result columns in order; the event-time column comes with its type"""
    ties: tuple[str, ...]
    within: int
    described: Json
    division = "keys"
    resources = Resources.of("CLL")

    def identity(self) -> Json:
        return {"operator": "distinct", **self.described}

    def keeps(self, clock: str) -> list[str]:
        return [f"a row per key that was kept, {expiry(self.within, clock, _EXPIRY)}"]

    def lifetime(self) -> int | None:
        return self.within if self.within < UNBOUNDED else None

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        return (following[0] - self.within,)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        return {name: progress.watermarks[0] for name, kind in self.columns if kind is not None}

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        kept = [table.filter(pa.array(table.column("_t").to_numpy() >= horizon)) for table in tables]
        second = [H2] if H2 in tables[0].column_names else []
        return concat_sorted(kept, "_h", *second, "_t")

    def process(self, given: SiteInput) -> Results:
        (rows,), late = given.on_time()
        if len(rows.h) == 0:
            return SiteOutput(late=late)
        rows = rows.take(total_order(rows.h, rows.h2, rows.t, rows.table, list(self.ties)))
        new = boundaries(rows.h, rows.h2)
        kid = np.cumsum(new) - 1
        reach = (rows.t - self.within, rows.t + self.within)
        seen = _found(given.runs[0], rows, given.routing.groups(rows.h), *reach)
        kept = rows.take(self._first(new, kid, rows.t, seen))
        if len(kept.h) == 0:
            return SiteOutput(late=late)
        yield pa.table(
            {
                name: kept.table.column(name) if kind is None else pa.array(kept.t).view(kind)
                for name, kind in self.columns
            }
        )
        stored = Input(kept.h, kept.h2, kept.t, kept.table.select([])).with_keys()
        return SiteOutput(state=(stored,), rows_out=given.per_group(given.routing.groups(kept.h)), late=late)

    def stays(self, rows: Input, track: Track, runs: Sequence[SortedRun], groups: Groups, watermark: int) -> Mask:
        """Rows whose key the sender has kept a row of that some row to come may still meet.

        A key that has none is the receiver's from then on: the sender is not given its rows any more.
        """
        first = np.full(len(rows.h), max(MIN_TIME, watermark - self.within), dtype=np.int64)
        return _found(runs, rows, groups, first, np.full_like(first, MAX_TIME))

    def _first(self, new: Mask, kid: Ints, t: Ints, seen: Mask) -> Ints:
        """Per key, greedily: the first unseen row, then the first unseen row more than `within` later, and so on."""
        rows = np.flatnonzero(~seen)
        kept: list[Ints] = []
        until = np.full(int(kid[-1]) + 1, MIN_TIME - 1, dtype=np.int64)
        while len(rows):
            rows = rows[t[rows] > until[kid[rows]]]
            heads = rows[boundaries(kid[rows])] if len(rows) else rows
            kept.append(heads)
            until[kid[heads]] = t[heads] + min(self.within, UNBOUNDED)
            if self.within >= UNBOUNDED:
                break
        return np.sort(np.concatenate(kept)) if kept else np.zeros(0, dtype=np.int64)


def _found(runs: Sequence[SortedRun], rows: Input, groups: Groups, first: Ints, last: Ints) -> Mask:
    """Rows whose key was kept, by an earlier batch, between two times each."""
    found = np.zeros(len(rows.h), dtype=np.bool_)
    for run in runs:
        low, high = run.lookup(rows.h, groups)
        if rows.h2 is not None:
            stored = run.segment.table.column(H2).to_numpy()
            low = bisect(stored, low, high, rows.h2)
            high = bisect(stored, low, high, rows.h2, right=True)
        low = bisect(run.segment.t, low, high, first)
        high = bisect(run.segment.t, low, high, last, right=True)
        found |= high > low
    return found
