"""Partial rows of aggregates, in the layout of a segment: combined to one row per key, and finished to results."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fluxen.arrays import Ints
from fluxen.operators.aggregate.combining import combine, finish
from fluxen.operators.aggregate.lists import plain
from fluxen.operators.aggregate.measures import MOMENTS, Measure
from fluxen.operators.kernels import boundaries, total_order
from fluxen.state.segment import H2, H, T, hashes


def fold(table: pa.Table, keys: tuple[str, ...], measures: tuple[Measure, ...], *, by_time: bool) -> pa.Table:
    """Rows in layout of a segment combined to one row per key (per key and time, if `by_time`), sorted by hash.

    Rows of one key are combined in an order that depends only on their values, so floating-point sums repeat exactly.
    """
    if table.num_rows == 0:
        return table
    table = in_order(table, measures, table.column(T).to_numpy())
    new = boundaries(*hashes(table), table.column(T).to_numpy() if by_time else None)
    return combined(table, np.flatnonzero(new), keys, measures)


def in_order(table: pa.Table, measures: tuple[Measure, ...], moments: Ints) -> pa.Table:
    """Rows in layout of a segment by key and moment, and where these are equal by what sums depend on."""
    table = _with_plain_lists(table, measures)
    order = total_order(*hashes(table), moments, table, _inexact(table, measures))
    return table.take(pa.array(order))


def _with_plain_lists(table: pa.Table, measures: tuple[Measure, ...]) -> pa.Table:
    for part in (part for measure in measures if measure.lists for part in measure.parts):
        at, column = table.column_names.index(part), table.column(part)
        same = plain(column)
        table = table if same is column else table.set_column(at, part, same)
    return table


def _inexact(table: pa.Table, measures: tuple[Measure, ...]) -> list[str]:
    """The partial columns whose sum depends on the order of rows."""
    kinds = ("sum", "avg", *MOMENTS)
    added = [part for m in measures if m.kind in kinds and not m.distinct for part in m.parts]
    return [part for part in added if pa.types.is_floating(table.schema.field(part).type)]


def combined(table: pa.Table, starts: Ints, keys: tuple[str, ...], measures: tuple[Measure, ...]) -> pa.Table:
    if len(starts) == table.num_rows:
        return table
    fixed = [name for name in (H, H2) if name in table.column_names] + list(keys)
    columns = {name: table.column(name).take(pa.array(starts)) for name in fixed}
    columns[T] = pa.array(np.maximum.reduceat(table.column(T).to_numpy(), starts))
    columns.update(combine(table, starts, measures))
    return pa.table({name: columns[name] for name in table.column_names})


def finished(state: pa.Table, keys: tuple[str, ...], measures: tuple[Measure, ...]) -> pa.Table:
    partial = {name: state.column(name) for name in state.column_names}
    columns = {name: state.column(name) for name in keys}
    columns.update({measure.name: finish(partial, measure) for measure in measures})
    return pa.table(columns)
