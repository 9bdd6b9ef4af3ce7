"""Partial columns of aggregates: those of rows on their own, how they combine, what users see of them.

Rows of a group lie together, and `starts` says where each group begins. Spark's half is `fluxen.spark.plan.partials`;
the same functions over the last n rows of a key are in `fluxen.operators.aggregate.last`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.arrays import Floats, Ints, Mask
from fluxen.operators.aggregate.lists import concatenated, distinct_values, in_order, lists_of, one_each
from fluxen.operators.aggregate.measures import MOMENTS, Measure
from fluxen.operators.aggregate.overflow import check_sums

Column: TypeAlias = "pa.Array | pa.ChunkedArray"


def combine(table: pa.Table, starts: Ints, measures: tuple[Measure, ...]) -> dict[str, pa.Array]:
    """Partial columns of rows grouped by `starts`, combined to one row per group."""
    columns: dict[str, pa.Array] = {}
    counts = np.diff(np.append(starts, table.num_rows))
    for measure in measures:
        values = [table.column(part) for part in measure.parts]
        columns.update(zip(measure.parts, _combined(measure, values, starts, counts)))
    return columns


def _combined(measure: Measure, values: list[pa.ChunkedArray], starts: Ints, counts: Ints) -> list[pa.Array]:
    kind = measure.kind
    if measure.distinct or kind == "collect_set":
        return [lists_of(*distinct_values(concatenated(values[0], starts)))]
    if kind == "collect_list":
        return [concatenated(column, starts) for column in values]
    if kind in MOMENTS:
        return _combine_moments(values, starts, counts)
    if kind in ("first", "last", "min_by", "max_by"):
        return _pick(values, starts, counts, kind in ("last", "max_by"))
    how = "min" if kind in ("min", "bool_and") else "max" if kind in ("max", "bool_or") else "sum"
    if how == "sum":
        check_sums(measure, values, starts, counts)
    return [_reduce(column, starts, counts, how) for column in values]


def finish(partial: dict[str, Column], measure: Measure) -> pa.Array:
    """What the user sees of one measure's partial columns."""
    parts = [_whole(partial[part]) for part in measure.parts]
    if measure.distinct:
        return _of_distinct(parts[0], measure)
    if measure.kind == "collect_set":
        return lists_of(*distinct_values(parts[0]), kind=measure.type)
    if measure.kind == "collect_list":
        return in_order(parts[0], parts[1], measure.type)
    if measure.kind == "avg":
        return mean(parts[0], parts[1], measure.type)
    if measure.kind in MOMENTS:
        return spread(measure, _floats(parts[0]), _floats(parts[2]))
    value = parts[-1]
    if measure.kind in ("min_by", "max_by") and parts[0].null_count:
        value = pc.if_else(pc.is_valid(parts[0]), value, pa.scalar(None, value.type))
    return value if value.type == measure.type else value.cast(measure.type)


def alone(measure: Measure, table: pa.Table, t: Ints) -> list[Column]:
    """The partial columns of rows on their own, of which `table` holds the values and `t` the times."""
    kept = None if measure.where is None else pc.fill_null(table.column(measure.where), False)
    if measure.column is None:
        rows = np.ones(table.num_rows, dtype=np.int64)
        return [pa.array(rows) if kept is None else kept.cast(pa.int64())]
    value, times = _only(table.column(measure.column), kept), _only(pa.array(t), kept)
    present = pc.is_valid(value)
    if measure.distinct or measure.kind == "collect_set":
        return [one_each(value, present)]
    if measure.kind == "collect_list":
        return [one_each(times, present), one_each(value, present)]
    if measure.kind in ("first", "last"):
        return [times, value]
    if measure.by is not None:
        return [_only(table.column(measure.by), kept), value]
    counted = present.cast(pa.int64())
    if measure.kind == "count":
        return [counted]
    if measure.kind == "avg":
        return [value.cast(_sum_type(measure, value.type), safe=False), counted]
    if measure.kind in MOMENTS:
        return [counted, value.cast(pa.float64(), safe=False), pc.multiply(counted.cast(pa.float64()), 0.0)]
    return [value.cast(measure.type) if measure.kind == "sum" else value]


def mean(total: pa.Array, n: pa.Array, kind: pa.DataType) -> pa.Array:
    """Sums over counts, of decimals rounded half up; null where there is nothing."""
    counts = n.to_numpy(zero_copy_only=False)
    if not pa.types.is_decimal(kind):
        return _nullable(_floats(total) / np.where(counts == 0, 1, counts), counts > 0)
    # Arrow cuts a quotient off, but 21 digits further on, where that makes no difference to rounding
    divisor = pa.array(np.maximum(counts, 1)).cast(pa.decimal256(20, 0))
    quotient = pc.divide(total.cast(pa.decimal256(38, total.type.scale)), divisor)
    rounded = pc.round(quotient, ndigits=kind.scale, round_mode="half_towards_infinity").cast(kind)
    return pc.if_else(pa.array(counts > 0), rounded, pa.scalar(None, kind))


def spread(measure: Measure, n: Floats, squares: Floats) -> pa.Array:
    """Variance or standard deviation, of a sample or of all there are, from counts and squared deviations."""
    sample = measure.kind in ("stddev", "variance")
    least = 2 if sample else 1
    result = np.maximum(squares, 0) / np.where(n >= least, n - 1 if sample else n, 1)
    return _nullable(np.sqrt(result) if measure.kind.startswith("stddev") else result, n >= least)


# ---- numbers


def _reduce(column: pa.ChunkedArray, starts: Ints, counts: Ints, how: str) -> pa.Array:
    if len(starts) == len(column):  # every group has one row
        return _whole(column)
    plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if plain and column.null_count == 0:
        values = column.to_numpy()
        if how == "sum":
            return pa.array(np.add.reduceat(values, starts), column.type)
        # Spark counts NaN as larger than any number
        step = np.fmin if how == "min" else np.maximum
        return pa.array(step.reduceat(values, starts), column.type)
    if pa.types.is_floating(column.type) and how != "sum":
        return _extreme_float(column, starts, how)
    group = np.repeat(np.arange(len(starts)), counts)
    grouped = pa.table({"g": group, "v": column}).group_by("g", use_threads=False).aggregate([("v", how)])
    reduced = grouped.column(f"v_{how}").combine_chunks()
    return reduced.cast(column.type) if reduced.type != column.type else reduced


def _extreme_float(column: pa.ChunkedArray, starts: Ints, how: str) -> pa.Array:
    valid = pc.is_valid(column).to_numpy()
    values = np.where(valid, column.to_numpy(), -np.inf if how == "max" else np.nan)
    step = np.maximum if how == "max" else np.fmin
    return _nullable(step.reduceat(values, starts), np.logical_or.reduceat(valid, starts), column.type)


def _combine_moments(values: list[pa.ChunkedArray], starts: Ints, counts: Ints) -> list[pa.Array]:
    """Counts, means and sums of squared deviations of groups put together (Chan, Golub and LeVeque 1979)."""
    n, centres, squares = (_floats(column) for column in values)
    centres, squares = np.where(n > 0, centres, 0.0), np.where(n > 0, squares, 0.0)
    total = np.add.reduceat(n, starts)
    with np.errstate(invalid="ignore"):  # of an infinite value: the result is NaN, as Spark's
        centre = np.add.reduceat(n * centres, starts) / np.where(total == 0, 1, total)
        off = centres - np.repeat(centre, counts)
        spread = np.add.reduceat(squares + n * off * off, starts)
    return [pa.array(total.astype(np.int64)), pa.array(centre), pa.array(spread)]


# ---- one row of many


def _pick(values: list[pa.ChunkedArray], starts: Ints, counts: Ints, latest: bool) -> list[pa.Array]:
    """The (order, value) pair that comes first or last in each group; nulls come before values, without order none."""
    order, value = values
    if len(starts) < len(order):
        group = np.repeat(np.arange(len(starts)), counts)
        table = pa.table({"g": group, "o": order, "present": pc.is_valid(value), "v": value})
        keys = [(name, "ascending") for name in ("g", "o", "present", "v")]
        if order.null_count:
            table = table.append_column("ordered", pc.is_valid(order))
            keys.insert(1, ("ordered", "ascending" if latest else "descending"))
        ranked = pc.sort_indices(table, sort_keys=keys).to_numpy()
        at = pa.array(ranked[starts + counts - 1] if latest else ranked[starts])
        order, value = order.take(at), value.take(at)
    return [_whole(order), _whole(value)]


# ---- values that count once


def _of_distinct(lists: pa.Array, measure: Measure) -> pa.Array:
    """The function over each group's distinct values."""
    values, counts = distinct_values(lists)
    if measure.kind == "count":
        return pa.array(counts)
    plain = replace(measure, distinct=False, where=None)
    held = np.flatnonzero(counts)
    at = np.full(len(counts), -1, dtype=np.int64)
    at[held] = np.arange(len(held))
    index = pa.array(at, mask=counts == 0)
    if len(held) == 0:
        return pa.nulls(len(counts), measure.type)
    assert measure.column is not None
    rows = alone(plain, pa.table({measure.column: values}), np.zeros(len(values), dtype=np.int64))
    table = pa.table(dict(zip(plain.parts, rows)))
    starts = (np.cumsum(counts) - counts)[held]
    return finish(combine(table, starts, (plain,)), plain).take(index)


# ---- columns


def _sum_type(measure: Measure, value: pa.DataType) -> pa.DataType:
    """Of the sum in a mean: that of a sum of decimals, otherwise double."""
    if not pa.types.is_decimal(measure.type):
        return pa.float64()
    return pa.decimal128(min(value.precision + 10, 38), value.scale)


def _only(values: Column, kept: Column | None) -> Column:
    return values if kept is None else pc.if_else(kept, values, pa.scalar(None, values.type))


def _whole(column: Column) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _floats(column: Column) -> Floats:
    filled = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0)
    values: Floats = filled.to_numpy(zero_copy_only=False) if isinstance(filled, pa.Array) else filled.to_numpy()
    return values


def _nullable(values: Floats, valid: Mask, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, kind or pa.float64(), mask=~valid)
