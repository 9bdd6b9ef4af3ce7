"""One result per key and batch, where results take the place of earlier ones.

Rows that waited are processed arrival by arrival, each as a batch of its own (`fluxen.site.backlog`), so a key may
change several times in the batch that catches up. Whoever stores results by key wants its last value: an upsert with
two rows for one key has no defined outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.arrays import Ints
from fluxen.operators.base import EMIT_ROWS

__all__ = ["LastOfKeys"]


class LastOfKeys:
    """Results as they come, of which the last of each key is kept; no more is held than twice what is kept."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = tuple(key)
        self._tables: list[pa.Table] = []
        self._rows, self._bound = 0, EMIT_ROWS

    def add(self, tables: Sequence[pa.Table]) -> None:
        self._tables += tables
        self._rows += sum(table.num_rows for table in tables)
        if self._rows > self._bound:
            self._reduce()
            self._bound = max(EMIT_ROWS, 2 * self._rows)

    def tables(self) -> Iterator[pa.Table]:
        self._reduce()
        for table in self._tables:
            for start in range(0, table.num_rows, EMIT_ROWS):
                yield table.slice(start, EMIT_ROWS)

    def _reduce(self) -> None:
        if len(self._tables) > 1:
            whole = pa.concat_tables(self._tables).combine_chunks()
            self._tables = [whole.take(pa.array(last_rows([whole.column(name) for name in self._key])))]
            self._rows = self._tables[0].num_rows


def last_rows(key: Sequence[pa.ChunkedArray]) -> Ints:
    """The last row of each combination of values, in order.

    >>> last_rows([pa.chunked_array([[0.0, 1.0, -0.0, None, None]])]).tolist()
    [1, 2, 4]
    """
    parts = {str(number): part for number, part in enumerate(part for column in key for part in _comparable(column))}
    rows = len(key[0])
    found = pa.table({**parts, "row": np.arange(rows)}).group_by(list(parts)).aggregate([("row", "max")])
    last: Ints = np.sort(found.column("row_max").to_numpy())
    return last


def _comparable(column: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    """Columns of plain values that are equal where the values of this one are the same key."""
    if pa.types.is_struct(column.type):
        yield pc.is_null(column)
        for part in column.flatten():
            yield from _comparable(part)
    elif pa.types.is_floating(column.type):
        nan, zero = (pa.scalar(value, column.type) for value in (float("nan"), 0.0))
        yield pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))
    elif pa.types.is_nested(column.type):
        yield pa.chunked_array([pa.array([repr(value) for value in column.to_pylist()])])
    else:
        yield column
