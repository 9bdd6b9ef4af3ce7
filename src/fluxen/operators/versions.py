"""State of which the newest row of each key counts: finding it, and dropping the rows it has taken the place of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from fluxen.arrays import MIN_TIME, Groups, Ints
from fluxen.operators.kernels import boundaries
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
