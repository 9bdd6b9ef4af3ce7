"""A site's view of its state: the runs it may read, the rows of them that are its own, and when to merge them.

Sites never own files, only partition groups: a segment written by one site is read by whichever site the routing
gives its groups to. A move of a group is therefore a change of routing and copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fluxen.arrays import MAX_TIME, MIN_TIME, Groups, Ints, Mask
from fluxen.state.routing import Routing, base_group, mask_of
from fluxen.state.segment import Segment, SegmentRef, hold_segment, open_segment, time_range
from fluxen.state.store import Store

FAN_IN = 4
"""Runs of about one size that are merged into one of the next size."""
TIER_ROWS = 4096
"""Runs up to this many rows count as one size."""
MAX_MERGED_BYTES = 256 << 20
"""Runs are not merged beyond this: Arrow's strings have 32-bit offsets, and one batch should not pay for a site."""


@dataclass(frozen=True, slots=True)
class SortedRun:
    """One segment as one site sees it."""

    ref: SegmentRef
    segment: Segment
    mine: Mask
    """per group: owned by this site and live in this segment"""
    whole: bool
    """every group this site owns is live here, so a probe needs no check"""

    def lookup(self, keys: Ints, groups: Groups) -> tuple[Ints, Ints]:
        """Row range of each of the sorted key hashes `keys` (whose groups are `groups`)."""
        h = self.segment.h
        if self.whole:
            return _ranges(h, keys)
        # a group that is not here, because it was spilled or moved, must not cost its pages
        asked = np.flatnonzero(self.mine[groups])
        low, high = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
        low[asked], high[asked] = _ranges(h, keys[asked])
        return low, high

    def rows(self, routing: Routing) -> pa.Table:
        """The rows that are this site's own."""
        mask = self.mine[routing.groups(self.segment.h)]
        return self.segment.table if mask.all() else self.segment.table.filter(pa.array(mask))

    def rows_per_group(self, routing: Routing) -> Ints:
        if routing.copies:
            counts = np.bincount(routing.groups(self.segment.h), minlength=routing.size)
            counts[~self.mine] = 0
            return counts
        counts = np.zeros(routing.size, dtype=np.int64)
        counts[: routing.partitions] = np.diff(self.segment.offsets)
        if len(routing.explicit):
            low = np.searchsorted(self.segment.h, routing.explicit, side="left")
            found = np.searchsorted(self.segment.h, routing.explicit, side="right") - low
            np.subtract.at(counts, base_group(routing.explicit, routing.partitions), found)
            counts[routing.explicit_groups] = found
        counts[~self.mine] = 0
        return counts


def _ranges(h: Ints, keys: Ints) -> tuple[Ints, Ints]:
    low = np.searchsorted(h, keys, side="left")
    high = low.copy()
    if len(h):
        hit = np.flatnonzero(h[np.minimum(low, len(h) - 1)] == keys)
        high[hit] = np.searchsorted(h, keys[hit], side="right")
    return low, high


def visible(refs: Sequence[SegmentRef], routing: Routing, site: int) -> list[SegmentRef]:
    """The segments a site must open, oldest rows first: not those of generations on disk."""
    owned = routing.owned(site)
    mine = [ref for ref in refs if ref.kind != "generation" and any(owned[low:high].any() for low, high in ref.live)]
    return sorted(mine, key=lambda ref: (ref.last_epoch, ref.first_epoch, ref.id))


def open_runs(
    store: Store, refs: Sequence[SegmentRef], routing: Routing, site: int, hidden: Mask | None = None
) -> list[SortedRun]:
    """The site's runs; of `hidden` groups it sees nothing."""
    owned = routing.owned(site)
    runs = []
    for ref in refs:
        mine = owned & mask_of(ref.live, routing.size)
        if hidden is not None:
            mine &= ~hidden
        runs.append(SortedRun(ref, open_segment(store, ref), mine, bool((mine == owned).all())))
    return runs


def memory_run(table: pa.Table, routing: Routing) -> SortedRun:
    """Rows in layout of a segment that no file holds yet, all of them the site's own."""
    segment = hold_segment(table, routing.partitions)
    t_min, t_max = time_range(segment.t)
    ref = SegmentRef(
        name="",
        side=0,
        rows=table.num_rows,
        bytes=table.nbytes,
        crc=0,
        t_min=t_min,
        t_max=t_max,
        first_epoch=-1,
        last_epoch=-1,
        live=((0, routing.size),),
    )
    return SortedRun(ref, segment, np.ones(routing.size, dtype=np.bool_), True)


def due(sizes: Sequence[tuple[int, int]], limit: int = MAX_MERGED_BYTES) -> int:
    """How many of the newest runs to merge now, given (rows, bytes) of each, oldest first; 0 for none.

    Size-tiered with fan-in `FAN_IN`, in age order, so each row is rewritten a logarithmic number of times and a
    probe meets a logarithmic number of runs.

    >>> due([(100_000, 1), (5_000, 1), (5_000, 1), (5_000, 1)])
    0
    >>> due([(100_000, 1), (5_000, 1), (5_000, 1), (5_000, 1), (6_000, 1)])
    4
    """
    best = rows = total = 0
    for count, (row_count, byte_count) in enumerate(reversed(sizes), start=1):
        rows += row_count
        total += byte_count
        if total > limit:
            break
        # the next older run is bigger than everything newer: merging up to here rewrites nothing big
        if count >= FAN_IN and _tier(row_count) <= _tier(max(rows // FAN_IN, 1)):
            best = count
    return best


def young(runs: Sequence[SortedRun], horizon: int) -> list[SortedRun]:
    """The newest runs with more life before them than behind them; merging one that soon expires is wasted."""
    if not runs or horizon <= MIN_TIME:  # rows that stay for ever may have no time to go by
        return list(runs)
    # a row that never expires says nothing about the others
    newest = max((run.ref.t_max for run in runs if run.ref.t_max < MAX_TIME), default=horizon)
    kept: list[SortedRun] = []
    for run in reversed(runs):
        if 2 * (newest - run.ref.t_max) > newest - horizon:
            break
        kept.append(run)
    return kept[::-1]


def _tier(rows: int) -> int:
    tier, limit = 0, TIER_ROWS
    while rows > limit:
        tier, limit = tier + 1, limit * FAN_IN
    return tier
