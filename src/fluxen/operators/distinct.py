"""The first row of each key, and after a pause of more than `within` the next first row.

A row is a duplicate if a kept row of its key lies at most `within` away in event time. Rows are taken in the order
(batch, event time, values). State holds one row (hashes and time) per kept row until no row can meet it any more.

Spark's `dropDuplicatesWithinWatermark` has another rule: whatever its event time, a row is a duplicate as long as the
watermark has not passed the row that was kept by `within`. That is decided by the watermark a row came under, be it
processed at once or later.

Whether a row is kept depends on which rows before it were, so two sites cannot decide about one key. While a group
moves by parallel track (`fluxen.site.shares`), the sender decides about the keys it still holds a kept row of, and
the receiver, which looks them up in the sender's state, about all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from fluxen.arrays import MAX_TIME, MIN_TIME, NO_TIME, UNBOUNDED, Groups, Ints, Json, Mask
from fluxen.durations import expiry, words
from fluxen.operators.base import Input, Operator, Progress, Results, SiteInput, SiteOutput
from fluxen.operators.kernels import bisect, boundaries, concat_sorted, total_order
from fluxen.partitioning import Resources
from fluxen.state.segment import H2
from fluxen.state.sorted_run import SortedRun
from fluxen.state.trees import Track

Rule = Literal["apart", "watermark"]
_EXPIRY = "within='1 hour' or ttl='7 days'"


@dataclass(frozen=True, kw_only=True)
class Distinct(Operator):
    """Rows whose key was not kept within `within` microseconds; UNBOUNDED for ever."""

    columns: tuple[tuple[str, pa.DataType | None], ...]
    """result columns in order; the event-time column comes with its type"""
    ties: tuple[str, ...]
    within: int
    described: Json
    rule: Rule = "apart"
    """what `within` measures: how far rows are apart, or how far the watermark is past the one that was kept"""
    untimed: bool = False
    """whether rows without event time count; if so, they come with the earliest time there is"""
    division = "keys"
    resources = Resources.of("CLL")
    whole = "which row is the first one depends on their order"

    def identity(self) -> Json:
        return {"operator": "distinct", **self.described}

    def keeps(self, clock: str) -> list[str]:
        if self.rule == "watermark" or self.within == 0:
            by = f" by {words(self.within)}" if self.within else ""
            return [f"a row per key that was kept, until the watermark has passed it{by}"]
        return [f"a row per key that was kept, {expiry(self.within, clock, _EXPIRY)}"]

    @property
    def by_arrival(self) -> bool:
        return self.rule == "watermark"

    def lifetime(self) -> int | None:
        # a key that is met by any row that comes in time has no end that the sender's rows could tell
        plain = self.rule == "apart" and not self.untimed and 0 < self.within < UNBOUNDED
        return self.within if plain else None

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        if self.within >= UNBOUNDED:
            return (MIN_TIME,)
        return (following[0] - self.within + (self.rule == "watermark"),)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        return {name: progress.watermarks[0] for name, kind in self.columns if kind is not None}

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        kept = [table.filter(pa.array(table.column("_t").to_numpy() >= horizon)) for table in tables]
        second = [H2] if H2 in tables[0].column_names else []
        return concat_sorted(kept, "_h", *second, "_t")

    def process(self, given: SiteInput) -> Results:
        rows, late = self._in_time(given)
        if len(rows.h) == 0:
            return SiteOutput(late=late)
        rows = rows.take(total_order(rows.h, rows.h2, self._stamped(rows.t), rows.table, list(self.ties)))
        new = boundaries(rows.h, rows.h2)
        kid = np.cumsum(new) - 1
        stamps = self._stamped(rows.t)
        reach = self._reach(stamps, given.late_before[0])
        seen = _found(given.runs[0], rows, given.routing.groups(rows.h), *reach)
        first = self._first(new, kid, stamps, seen)
        kept = rows.take(first)
        if len(kept.h) == 0:
            return SiteOutput(late=late)
        yield pa.table(
            {
                name: kept.table.column(name)
                if kind is None
                else pa.array(kept.t, mask=kept.t == MIN_TIME if self.untimed else None).view(kind)
                for name, kind in self.columns
            }
        )
        stored = Input(kept.h, kept.h2, stamps[first], kept.table.select([])).with_keys()
        return SiteOutput(state=(stored,), rows_out=given.per_group(given.routing.groups(kept.h)), late=late)

    def _in_time(self, given: SiteInput) -> tuple[Input, tuple[int, ...]]:
        """The rows that are not late, and how many were; one without event time never is."""
        if not self.untimed:
            (rows,), late = given.on_time()
            return rows, late
        (rows,) = given.inputs
        fresh = rows.take((rows.t >= given.late_before[0]) | (rows.t == MIN_TIME))
        return fresh, (rows.rows - fresh.rows,)

    def _stamped(self, t: Ints) -> Ints:
        """The times rows are stored with: of one without event time, such that it stays; by the watermark, 1970's."""
        if not self.untimed:
            return t
        stamps: Ints = np.where(t == MIN_TIME, NO_TIME if self.rule == "watermark" else MAX_TIME, t)
        return stamps

    def _reach(self, t: Ints, watermark: int) -> tuple[Ints, Ints]:
        """The first and the last time at which a kept row of its key makes each row a duplicate."""
        if self.rule == "apart" and self.within < UNBOUNDED:
            return t - self.within, t + self.within
        first = watermark - self.within + 1 if self.rule == "watermark" else MIN_TIME
        return np.full_like(t, first), np.full_like(t, MAX_TIME)

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
            if self.within >= UNBOUNDED or self.rule == "watermark":
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
