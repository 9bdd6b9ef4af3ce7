"""Lists of values as Arrow columns: what collect_list, collect_set and functions of distinct values keep of a group.

Rows of a group lie together, so putting their lists together moves offsets and no values.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.arrays import Ints

Column: TypeAlias = "pa.Array | pa.ChunkedArray"


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A list column of the type that state has: Spark says of some lists that they hold no nulls, of others not."""
    kind = pa.list_(column.type.value_type)
    if column.type.value_field.nullable:
        return column
    return pa.chunked_array([lists_of(_values(part), _lengths(part), kind=kind) for part in column.chunks], kind)


def one_each(values: Column, present: Column) -> pa.Array:
    """Each value as a list of its own, an empty one where there is none."""
    whole, held = _whole(values), _whole(present).to_numpy(zero_copy_only=False)
    return lists_of(whole.filter(pa.array(held)), held.astype(np.int64))


def lists_of(values: pa.Array, lengths: Ints, kind: pa.DataType | None = None) -> pa.Array:
    """Lists of these lengths, one after the other."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind or pa.list_(values.type))


def concatenated(column: Column, starts: Ints) -> pa.Array:
    """The lists of each group's rows as one."""
    whole = _whole(column)
    if len(starts) == len(whole):
        return whole
    lengths = np.add.reduceat(_lengths(whole), starts) if len(starts) else starts
    return lists_of(_values(whole), lengths)


def distinct_values(lists: pa.Array) -> tuple[pa.Array, Ints]:
    """Each list's distinct values in their own order, one list after the other, and how many there are of each."""
    lengths, values = _lengths(lists), _values(lists)
    if pa.types.is_floating(values.type):
        values = pa.array(values.to_numpy(zero_copy_only=False) + 0.0, values.type)  # -0.0 and 0.0 are one value
    group = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    if len(values) == 0:
        return values, lengths
    rank = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    kept, first = np.unique(group * (int(rank.max()) + 1) + rank, return_index=True)
    counts = np.bincount(kept // (int(rank.max()) + 1), minlength=len(lengths)).astype(np.int64)
    return values.take(pa.array(first)), counts


def in_order(times: pa.Array, lists: pa.Array, kind: pa.DataType) -> pa.Array:
    """Each list's values in order of their times, those of one time in their own order."""
    lengths, values = _lengths(lists), _values(lists)
    group = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    table = pa.table({"g": group, "t": _values(times), "v": values})
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in ("g", "t", "v")])
    return lists_of(values.take(order), lengths, kind)


def _lengths(lists: pa.Array) -> Ints:
    lengths: Ints = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _values(lists: pa.Array) -> pa.Array:
    return lists.flatten()


def _whole(column: Column) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
