"""The state reduced to what a batch's rows can meet, in slices of keys: the first half of every join of inputs.

For each key among the new rows, the earliest and latest new row of the other inputs, widened by the time bounds, give
the interval of times worth looking at; each sorted run is searched for exactly those slices. Combinations are made of
what is left (`fluxen.operators.join.probe`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from fluxen.arrays import MAX_TIME, MIN_TIME, UNBOUNDED, Groups, Ints, Mask
from fluxen.operators.base import EMIT_ROWS, Input, SiteInput
from fluxen.operators.join.probe import Bounds, Probe, Side
from fluxen.operators.kernels import bisect, boundaries, portion, ragged, sorted_union
from fluxen.state.segment import column
from fluxen.state.sorted_run import SortedRun

GATHER_ROWS = 1 << 18
"""State rows gathered at a time, about; a single key may have more."""
_SAMPLED_KEYS = 2048
"""Keys looked up to find out how many state rows a batch will meet."""


@dataclass(frozen=True, slots=True)
class Slice:
    """New rows of some keys, and what of the state they can meet."""

    keys: Ints
    groups: Groups
    probe: Probe


def slices(
    given: SiteInput, fresh: Sequence[Input], runs: Sequence[Sequence[SortedRun]], reach: Bounds
) -> Iterator[Slice]:
    """The new rows, sorted by (hash, time), with the rows of `runs` they can meet, some keys at a time."""
    keys = sorted_union([rows.h for rows in fresh])
    if len(keys) == 0:
        return
    groups = given.routing.groups(keys)
    widths = [_row_bytes(rows, side) for rows, side in zip(fresh, runs)]
    emit_rows = portion(EMIT_ROWS, given.piece_bytes, sum(widths))
    cuts = _cuts(runs, keys, groups, portion(GATHER_ROWS, given.piece_bytes, max(widths)))
    for first, last in pairwise(cuts):
        part = [_between(rows, keys[first], keys[last - 1]) for rows in fresh] if len(cuts) > 2 else fresh
        old_until = None if given.old_until_epoch is None else given.old_until_epoch[groups[first:last]]
        reduced = _reduce(part, runs, keys[first:last], groups[first:last], reach, old_until)
        yield Slice(keys[first:last], groups[first:last], Probe(reduced, reach, last - first, emit_rows))


def at_least(time: int, gap: int) -> int:
    """`time` plus a lower bound: the end of an input is the end whatever the bound, and so is the time before its first
    row; no bound is no time at all."""
    if time >= MAX_TIME:
        return MAX_TIME
    if time <= MIN_TIME or gap <= -UNBOUNDED // 2:
        return MIN_TIME
    return min(max(time + gap, MIN_TIME), MAX_TIME)


def since(table: pa.Table, horizon: int) -> pa.Table:
    kept = column(table, "_t") >= horizon
    return table if kept.all() else table.filter(pa.array(kept))


def _found(
    fresh: Input,
    runs: list[SortedRun],
    picked: list[Ints],
    kids: list[Ints],
    new_kid: Ints,
    old_until: Ints | None,
) -> Side:
    """Rows found in runs, then a batch's new rows; `old_until` is each key's last old epoch while a group moves."""
    t = np.concatenate([*(run.segment.t[rows] for run, rows in zip(runs, picked)), fresh.t])
    h2: Ints | None = None
    if fresh.h2 is not None:
        old = [run.segment.table.column("_h2").to_numpy()[rows] for run, rows in zip(runs, picked)]
        h2 = np.concatenate([*old, fresh.h2])

    def payload() -> pa.Table:
        names = fresh.table.column_names
        old = [run.segment.table.select(names).take(pa.array(rows)) for run, rows in zip(runs, picked)]
        return pa.concat_tables([*old, fresh.table]).combine_chunks()

    since_: Mask | None = None
    if old_until is not None:
        stored = (old_until[kid] < run.ref.first_epoch for run, kid in zip(runs, kids))
        since_ = np.concatenate([*stored, np.ones(len(fresh.t), dtype=np.bool_)])
    return Side(np.concatenate([*kids, new_kid]), t, h2, len(t) - len(fresh.t), payload, since_)


def _between(rows: Input, first: int, last: int) -> Input:
    """The rows, sorted by hash, whose hash is in [first, last]."""
    low, high = np.searchsorted(rows.h, first, side="left"), np.searchsorted(rows.h, last, side="right")
    h2 = None if rows.h2 is None else rows.h2[low:high]
    return Input(rows.h[low:high], h2, rows.t[low:high], rows.table.slice(low, high - low))


def _row_bytes(fresh: Input, runs: Sequence[SortedRun]) -> float:
    """What a row of one side takes, new or stored."""
    size = int(fresh.table.nbytes) + sum(run.ref.bytes for run in runs)
    return size / max(len(fresh.h) + sum(run.ref.rows for run in runs), 1)


def _cuts(runs: Sequence[Sequence[SortedRun]], keys: Ints, groups: Groups, rows: int) -> list[int]:
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


def _reduce(
    fresh: Sequence[Input],
    runs: Sequence[Sequence[SortedRun]],
    keys: Ints,
    groups: Groups,
    reach: Bounds,
    old_until: Ints | None,
) -> list[Side]:
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
        sides.append(_found(rows, used, picked, found, kids[j], old_until))
    return sides


def _spans(rows: Input, kid: Ints) -> tuple[Ints, Ints, Ints]:
    """The new rows' keys, each with its earliest and latest time."""
    starts = np.flatnonzero(boundaries(kid))
    ends = np.append(starts[1:], len(kid))[: len(starts)] - 1
    return kid[starts], rows.t[starts], rows.t[ends]  # rows are sorted by (key, time)


def find_rows(run: SortedRun, keys: Ints, groups: Groups, wanted: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """(key index, row) of the run's rows whose key is wanted and whose time is within [first, last] of that key."""
    if run.ref.rows <= len(wanted):
        return _scan(run, keys, groups, first, last)
    return _search(run, keys, groups, wanted, first, last)


def _search(run: SortedRun, keys: Ints, groups: Groups, wanted: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    wanted = wanted[(first[wanted] <= run.ref.t_max) & (last[wanted] >= run.ref.t_min)]
    low, high = run.lookup(keys[wanted], groups[wanted])
    hit = np.flatnonzero(high > low)
    wanted, low, high = wanted[hit], low[hit], high[hit]
    low = bisect(run.segment.t, low, high, first[wanted])
    high = bisect(run.segment.t, low, high, last[wanted], right=True)
    counts = high - low
    return np.repeat(wanted, counts), ragged(low, counts)


def _scan(run: SortedRun, keys: Ints, groups: Groups, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """The same for a run that has fewer rows than there are keys: one search per row instead of four per key."""
    h, t = run.segment.h, run.segment.t
    kid = np.searchsorted(keys, h)
    np.minimum(kid, len(keys) - 1, out=kid)
    found = (keys[kid] == h) & (t >= first[kid]) & (t <= last[kid])
    if not run.whole:
        found &= run.mine[groups[kid]]
    rows = np.flatnonzero(found)
    return kid[rows], rows
