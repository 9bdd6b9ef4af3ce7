"""State of which the newest version of each key counts: finding it, and dropping the rows it has taken the place of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from fluxen.arrays import MIN_TIME, Groups, Ints
from fluxen.operators.kernels import bisect, boundaries, ragged
from fluxen.state.segment import H2, T, hashes
from fluxen.state.sorted_run import SortedRun


def newest(tables: Sequence[pa.Table], horizon: int = MIN_TIME) -> pa.Table:
    """The newest version of each key, unless it is older than `horizon`; the tables come oldest first."""
    whole = pa.concat_tables(tables).combine_chunks()
    age = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    h, h2 = hashes(whole)
    order = np.lexsort([key for key in (-age, h2, h) if key is not None])
    first = order[boundaries(h[order], None if h2 is None else h2[order])]
    if horizon > MIN_TIME:
        first = first[whole.column(T).to_numpy()[first] >= horizon]
    return whole.take(pa.array(first))


def latest(
    runs: Sequence[SortedRun], h: Ints, h2: Ints | None, groups: Groups
) -> Iterator[tuple[SortedRun, Ints, Ints]]:
    """The newest version of each key: (run, its rows, positions of their keys in `h`), newest run first."""
    wanted = np.arange(len(h))
    for run in reversed(runs):
        if len(wanted) == 0:
            return
        low, high = run.lookup(h[wanted], groups[wanted])
        hit = high > low
        row = low[hit]
        if h2 is not None and hit.any():
            row, hit = _match_second(run, low, high, hit, h2[wanted])
        if hit.any():
            yield run, row, wanted[hit]
            wanted = wanted[~hit]


def _match_second(run: SortedRun, low: Ints, high: Ints, hit: np.ndarray, h2: Ints) -> tuple[Ints, np.ndarray]:
    """Among rows with an equal first hash, the one whose second hash is equal too."""
    stored = run.segment.table.column(H2).to_numpy()
    row = low.copy()
    searching = np.flatnonzero(hit)
    found = np.zeros(len(hit), dtype=np.bool_)
    while len(searching):
        same = stored[row[searching]] == h2[searching]
        found[searching[same]] = True
        searching = searching[~same]
        row[searching] += 1
        searching = searching[row[searching] < high[searching]]
    return row[found], found


# ---- keys of which a version is several rows


def newest_rows(tables: Sequence[pa.Table], horizon: int = MIN_TIME, *, by_time: bool = False) -> pa.Table:
    """The rows of each key's newest version (of each key and time's, if `by_time`) that are not older than `horizon`.

    The tables come oldest first, each sorted by hash and time, as the result is.
    """
    whole = pa.concat_tables(tables).combine_chunks()
    age = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    h, h2 = hashes(whole)
    t = whole.column(T).to_numpy()
    order = np.lexsort([key for key in (-age, t if by_time else None, h2, h) if key is not None])
    new = boundaries(h[order], None if h2 is None else h2[order], t[order] if by_time else None)
    youngest = age[order][np.flatnonzero(new)][np.cumsum(new) - 1]
    return whole.take(pa.array(order[(age[order] == youngest) & (t[order] >= horizon)]))


def latest_rows(
    runs: Sequence[SortedRun], h: Ints, h2: Ints | None, groups: Groups, t: Ints | None = None
) -> Iterator[tuple[SortedRun, Ints, Ints]]:
    """All rows of each key's newest version (of each key and time's, given `t`), as `latest` gives one of each."""
    wanted = np.arange(len(h))
    for run in reversed(runs):
        if len(wanted) == 0:
            return
        low, high = rows_of(run, h[wanted], None if h2 is None else h2[wanted], groups[wanted])
        if t is not None:
            low = bisect(run.segment.t, low, high, t[wanted])
            high = bisect(run.segment.t, low, high, t[wanted], right=True)
        counts = high - low
        if counts.any():
            yield run, ragged(low, counts), np.repeat(wanted, counts)
            wanted = wanted[counts == 0]


def rows_of(run: SortedRun, h: Ints, h2: Ints | None, groups: Groups) -> tuple[Ints, Ints]:
    """Where the rows of each key begin and end in a run."""
    low, high = run.lookup(h, groups)
    if h2 is not None:
        stored = run.segment.table.column(H2).to_numpy()
        low = bisect(stored, low, high, h2)
        high = bisect(stored, low, high, h2, right=True)
    return low, high
