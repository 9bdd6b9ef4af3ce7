"""Aggregate functions as columns: what Spark computes per task, how partial values combine, what users see.

A function's partial columns are named `<result>.<part>`. Spark's half, the SQL of each part, is in
`fluxen.spark.partials`; the same functions over the last n rows of a key are in `fluxen.operators.last`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.errors import QueryError
from fluxen.typing import Floats, Ints

Kind = Literal["count", "sum", "min", "max", "avg", "stddev", "first", "last"]
PARTS: dict[Kind, tuple[str, ...]] = {
    "count": ("n",),
    "sum": ("s",),
    "min": ("v",),
    "max": ("v",),
    "avg": ("s", "n"),
    "stddev": ("n", "m", "q"),
    "first": ("t", "v"),
    "last": ("t", "v"),
}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate as the user wrote it; `column` is None for count()."""

    kind: Kind
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}({self.column or ''})"


def count(column: str | None = None) -> Aggregate:
    """Number of rows, or of rows where `column` is not null."""
    return Aggregate("count", column)


def sum(column: str) -> Aggregate:
    """Sum of the values that are not null."""
    return Aggregate("sum", column)


def min(column: str) -> Aggregate:
    """Smallest value that is not null."""
    return Aggregate("min", column)


def max(column: str) -> Aggregate:
    """Largest value that is not null."""
    return Aggregate("max", column)


def avg(column: str) -> Aggregate:
    """Mean of the values that are not null, as a double."""
    return Aggregate("avg", column)


def stddev(column: str) -> Aggregate:
    """Sample standard deviation of the values that are not null, as a double; null for fewer than two."""
    return Aggregate("stddev", column)


def first(column: str) -> Aggregate:
    """Value of the earliest row by event time (the smallest value among rows of one time)."""
    return Aggregate("first", column)


def last(column: str) -> Aggregate:
    """Value of the latest row by event time (the largest value among rows of one time)."""
    return Aggregate("last", column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """An aggregate with its result's name and Arrow type."""

    name: str
    kind: Kind
    column: str | None
    type: pa.DataType

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{part}" for part in PARTS[self.kind])


def combine(table: pa.Table, starts: Ints, measures: tuple[Measure, ...]) -> dict[str, pa.Array]:
    """Partial columns of rows grouped by `starts`, combined to one row per group."""
    columns: dict[str, pa.Array] = {}
    counts = np.diff(np.append(starts, table.num_rows))
    for measure in measures:
        values = [table.column(part) for part in measure.parts]
        if measure.kind == "stddev":
            combined: list[pa.Array] = _combine_moments(values, starts, counts)
        elif measure.kind in ("first", "last"):
            combined = _pick(values, starts, counts, measure.kind == "last")
        else:
            how = measure.kind if measure.kind in ("min", "max") else "sum"
            combined = [_reduce(column, starts, counts, how) for column in values]
        columns.update(zip(measure.parts, combined))
    return columns


def finish(partial: dict[str, pa.Array], measure: Measure) -> pa.Array:
    """What the user sees of one measure's partial columns."""
    parts = [partial[part] for part in measure.parts]
    if measure.kind == "avg":
        total, n = _floats(parts[0]), _floats(parts[1])
        return _nullable(total / np.where(n == 0, 1, n), n > 0)
    if measure.kind == "stddev":
        n, spread = _floats(parts[0]), _floats(parts[2])
        return _nullable(np.sqrt(np.maximum(spread, 0) / np.where(n > 1, n - 1, 1)), n > 1)
    value = parts[-1]
    return value if value.type == measure.type else value.cast(measure.type)


def _reduce(column: pa.ChunkedArray, starts: Ints, counts: Ints, how: str) -> pa.Array:
    if len(starts) == len(column):  # every group has one row
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if plain and column.null_count == 0:
        values = column.to_numpy()
        if how == "sum":
            return pa.array(np.add.reduceat(values, starts), column.type)
        # Spark counts NaN as larger than any number
        step = np.fmin if how == "min" else np.maximum
        return pa.array(step.reduceat(values, starts), column.type)
    if pa.types.is_floating(column.type) and how == "max":
        return _reduce_floats(column, starts, counts)
    group = np.repeat(np.arange(len(starts)), counts)
    grouped = pa.table({"g": group, "v": column}).group_by("g", use_threads=False).aggregate([("v", how)])
    reduced = grouped.column(f"v_{how}").combine_chunks()
    return reduced.cast(column.type) if reduced.type != column.type else reduced


def _reduce_floats(column: pa.ChunkedArray, starts: Ints, counts: Ints) -> pa.Array:
    valid = pc.is_valid(column).to_numpy()
    values = np.where(valid, column.to_numpy(), -np.inf)
    return _nullable(np.maximum.reduceat(values, starts), np.logical_or.reduceat(valid, starts), column.type)


def _combine_moments(values: list[pa.ChunkedArray], starts: Ints, counts: Ints) -> list[pa.Array]:
    """Counts, means and sums of squared deviations of groups put together (Chan, Golub and LeVeque 1979)."""
    n, mean, spread = (_floats(column) for column in values)
    mean, spread = np.where(n > 0, mean, 0.0), np.where(n > 0, spread, 0.0)
    total = np.add.reduceat(n, starts)
    centre = np.add.reduceat(n * mean, starts) / np.where(total == 0, 1, total)
    off = mean - np.repeat(centre, counts)
    return [
        pa.array(total.astype(np.int64)),
        pa.array(centre),
        pa.array(np.add.reduceat(spread + n * off * off, starts)),
    ]


def _pick(values: list[pa.ChunkedArray], starts: Ints, counts: Ints, latest: bool) -> list[pa.Array]:
    """The (time, value) pair that comes first or last in each group; nulls come before values."""
    if len(starts) == len(values[0]):
        return [column.combine_chunks() for column in values]
    group = np.repeat(np.arange(len(starts)), counts)
    table = pa.table({"g": group, "t": values[0], "present": pc.is_valid(values[1]), "v": values[1]})
    keys = [(name, "ascending") for name in ("g", "t", "present", "v")]
    order = pc.sort_indices(table, sort_keys=keys).to_numpy()
    at = order[starts + counts - 1] if latest else order[starts]
    return [column.take(pa.array(at)).combine_chunks() for column in values]


def _floats(column: pa.ChunkedArray | pa.Array) -> Floats:
    filled = pc.fill_null(column.cast(pa.float64()), 0.0)
    values: Floats = filled.to_numpy(zero_copy_only=False) if isinstance(filled, pa.Array) else filled.to_numpy()
    return values


def _nullable(values: Floats, valid: np.ndarray, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, kind or pa.float64(), mask=~valid)


def result_type(kind: Kind, value: pa.DataType | None) -> pa.DataType:
    """Arrow type of an aggregate over a column of type `value`, as Spark would have it (avg and stddev: double)."""
    if kind == "count":
        return pa.int64()
    assert value is not None
    if kind in ("avg", "stddev", "sum") and not _numeric(value):
        raise QueryError(f"{kind} needs a numeric column, got {value}; cast it first")
    if kind in ("avg", "stddev"):
        return pa.float64()
    if kind == "sum":
        if pa.types.is_integer(value):
            return pa.int64()
        if pa.types.is_decimal(value):
            precision: int = value.precision + 10
            return pa.decimal128(precision if precision < 38 else 38, value.scale)
        return pa.float64()
    return value


def _numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def carried(
    time: str | None, keys: tuple[str, ...], measures: tuple[Measure, ...], newest: int, oldest: int
) -> dict[str, int]:
    """The result columns that are event times of their rows: the latest ones not before `newest`, others `oldest`."""
    if time is None:
        return {}
    bounds = dict.fromkeys([key for key in keys if key == time], newest)
    for measure in measures:
        if measure.column == time and measure.kind in ("max", "last"):
            bounds[measure.name] = newest
        elif measure.column == time and measure.kind in ("min", "first"):
            bounds[measure.name] = oldest
    return bounds
