"""Kernels on sorted columns that several operators share: ragged ranges, key grouping, sliding reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fluxen.arrays import Ints, Mask

Frame = TypeVar("Frame")
Number = TypeVar("Number", bound=np.generic)


def ragged(starts: Ints, counts: Ints) -> Ints:
    """Concatenated ranges [starts[i], starts[i] + counts[i]).

    >>> ragged(np.array([10, 3]), np.array([2, 3])).tolist()
    [10, 11, 3, 4, 5]
    """
    total = int(counts.sum())
    if total == 0:
        return np.zeros(0, dtype=np.int64)
    ends = np.cumsum(counts)
    return np.arange(total, dtype=np.int64) + np.repeat(starts - ends + counts, counts)


def boundaries(*columns: Ints | None) -> Mask:
    """Where a new key starts in rows sorted by `columns` (missing ones are skipped)."""
    present = [column for column in columns if column is not None]
    new = np.ones(len(present[0]), dtype=np.bool_)
    if len(new) > 1:
        new[1:] = present[0][1:] != present[0][:-1]
        for column in present[1:]:
            new[1:] |= column[1:] != column[:-1]
    return new


def sorted_union(parts: list[Ints]) -> Ints:
    """Distinct values of sorted arrays; a stable sort only merges them, which beats hashing.

    >>> sorted_union([np.array([1, 3, 3]), np.array([2, 3])]).tolist()
    [1, 2, 3]
    """
    whole = np.sort(np.concatenate(parts), kind="stable")
    return whole[boundaries(whole)]


def positions(new: Mask) -> Ints:
    """Each row's position within its key, given where keys start.

    >>> positions(np.array([True, False, False, True])).tolist()
    [0, 1, 2, 0]
    """
    at = np.arange(len(new), dtype=np.int64)
    return at - np.maximum.accumulate(np.where(new, at, 0))


def sort_order(h: Ints, h2: Ints | None, *rest: Ints) -> Ints:
    """Stable order by (h, h2, rest...)."""
    keys = [h, *([] if h2 is None else [h2]), *rest]
    return np.lexsort(keys[::-1]).astype(np.int64)


def total_order(h: Ints, h2: Ints | None, t: Ints, table: pa.Table, ties: list[str]) -> Ints:
    """Order by (h, h2, t) and, where those are equal, by the columns `ties`: the same for any arrival order."""
    order = sort_order(h, h2, t)
    if not ties or len(order) < 2:
        return order
    new = boundaries(h[order], None if h2 is None else h2[order], t[order])
    if new.all():
        return order
    tied = ~new
    tied[:-1] |= ~new[1:]
    at = np.flatnonzero(tied)
    group = np.cumsum(new)[at]
    part = table.select(ties).take(pa.array(order[at]))
    part = part.append_column("_group", pa.array(group))
    keys = [("_group", "ascending"), *((name, "ascending") for name in ties)]
    ranked = pc.sort_indices(part, sort_keys=keys).to_numpy()
    order[at] = order[at][ranked]
    return order


def sliding(
    frame: Frame,
    position: Ints,
    n: int,
    combine: Callable[[Frame, Frame, Mask], Frame],
    shift: Callable[[Frame, int], Frame],
) -> Frame:
    """Reduce the last `n` rows of each key at every row, in O(rows log n), for any associative `combine`.

    Windows of length 2^k are doubled from those of length 2^(k-1), and the window of length n is put together from the
    binary digits of n. `combine(left, right, valid)` leaves `right` alone where `valid` is false; `shift(frame, k)`
    brings the value k rows earlier. Sums are pairwise, so they do not cancel as differences of prefix sums would.
    """
    result: Frame | None = None
    covered, width, power = 0, 1, frame
    while True:
        if n & width:
            if result is None:
                result = power
            else:
                # `result` covers the newest rows, the block before them has length `width`
                result = combine(shift(power, covered), result, position >= covered)
            covered += width
        width *= 2
        if width > n:
            break
        half = width // 2
        power = combine(shift(power, half), power, position >= half)
    assert result is not None
    return result


def reaching(
    frame: Frame,
    position: Ints,
    length: Ints,
    combine: Callable[[Frame, Frame, Mask], Frame],
    shift: Callable[[Frame, int], Frame],
    take: Callable[[Frame, Ints], Frame],
) -> Frame:
    """As `sliding`, over the last `length[i]` rows at row i, the row itself among them.

    Put together from the binary digits of each row's own length; `take(frame, rows)` picks rows of a frame.
    """
    result, power, width = frame, frame, 1
    rest = length - 1
    end = np.arange(len(length), dtype=np.int64) - 1
    most = int(rest.max(initial=0))
    while width <= most:
        used = (rest & width) > 0
        result = combine(take(power, np.maximum(end, 0)), result, used)
        end = np.where(used, end - width, end)
        power = combine(shift(power, width), power, position >= width)
        width *= 2
    return result


@dataclass(frozen=True, slots=True)
class Window:
    """The rows that count at each row: its key's last `n`, or fewer."""

    position: Ints
    """of each row within its key"""
    n: int
    length: Ints | None = None
    """how many count, where `n` alone does not say"""

    def within(self, clock: Ints, span: int) -> Window:
        """The same rows, but for those more than `span` before on a clock that never goes back within a key.

        >>> Window(np.arange(3), 3).within(np.array([1, 5, 6]), 2).rows.tolist()
        [1, 1, 2]
        """
        at = np.arange(len(clock), dtype=np.int64)
        first = bisect(clock, at - self.position, at, clock - span)
        return Window(self.position, self.n, np.minimum(at - first + 1, self.n))

    @property
    def rows(self) -> Ints:
        """How many rows count at each row."""
        return np.minimum(self.position + 1, self.n) if self.length is None else self.length

    def reduce(
        self,
        frame: Frame,
        combine: Callable[[Frame, Frame, Mask], Frame],
        shift: Callable[[Frame, int], Frame],
        take: Callable[[Frame, Ints], Frame],
    ) -> Frame:
        """What `combine` makes of the rows that count, at every row."""
        if self.length is None:
            return sliding(frame, self.position, self.n, combine, shift)
        return reaching(frame, self.position, self.length, combine, shift, take)


def shifted(values: NDArray[Number], by: int) -> NDArray[Number]:
    """The value `by` rows earlier; the first rows keep arbitrary values."""
    return values if by == 0 else np.concatenate((values[:by], values[:-by]))[: len(values)]


def bisect(values: Ints, low: Ints, high: Ints, targets: Ints, *, right: bool = False) -> Ints:
    """Binary search of each target in its own slice values[low:high], all slices at once.

    >>> bisect(np.array([1, 5, 9, 2, 4]), np.array([0, 3]), np.array([3, 5]), np.array([5, 3])).tolist()
    [1, 4]
    """
    low, high = low.copy(), high.copy()
    active = np.flatnonzero(low < high)
    while len(active):
        middle = (low[active] + high[active]) >> 1
        found = values[middle]
        below = found <= targets[active] if right else found < targets[active]
        low[active] = np.where(below, middle + 1, low[active])
        high[active] = np.where(below, high[active], middle)
        active = active[low[active] < high[active]]
    return low


def concat_sorted(tables: list[pa.Table], *columns: str) -> pa.Table:
    """Sorted tables as one table sorted by the int64 `columns`; equal rows keep the tables' order."""
    whole = pa.concat_tables(tables)
    if len(tables) == 1:
        return whole.combine_chunks()
    keys = [whole.column(name).to_numpy() for name in columns]
    order = pa.array(np.lexsort(keys[::-1]))
    # a column at a time: the whole is held once and a column twice, not everything twice
    taken = [values.combine_chunks().take(order) for values in whole.columns]
    return pa.Table.from_arrays(taken, schema=whole.schema)


def hash_slices(rows: int, each: int) -> Iterator[tuple[int, int]]:
    """Intervals of the hash space, both ends included, that each hold about `each` of so many rows."""
    pieces = max(1, -(-rows // each))
    edges = [-(2**63) + (2**64 * k) // pieces for k in range(pieces + 1)]
    for low, high in pairwise(edges):
        yield low, high - 1


def portion(rows: int, piece_bytes: int | None, row_bytes: float) -> int:
    """How many rows to hold at a time: `rows`, or as many as make `piece_bytes` where memory is limited.

    >>> portion(1 << 16, None, 200.0), portion(1 << 16, 1 << 20, 200.0)
    (65536, 5242)
    """
    if piece_bytes is None:
        return rows
    return max(1, min(rows, int(piece_bytes / max(row_bytes, 1.0))))
