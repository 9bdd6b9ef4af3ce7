"""What an aggregate is made of: the partial columns of each function, and the types of results, which are Spark's.

A function's partial columns are named `<result>.<part>`. How they combine is in `fluxen.operators.aggregate.combining`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from fluxen.errors import QueryError
from fluxen.operators.aggregate.functions import Aggregate, Kind

PARTS: dict[Kind, tuple[str, ...]] = {
    "count": ("n",),
    "sum": ("s",),
    "min": ("v",),
    "max": ("v",),
    "avg": ("s", "n"),
    "stddev": ("n", "m", "q"),
    "stddev_pop": ("n", "m", "q"),
    "variance": ("n", "m", "q"),
    "var_pop": ("n", "m", "q"),
    "first": ("t", "v"),
    "last": ("t", "v"),
    "min_by": ("o", "v"),
    "max_by": ("o", "v"),
    "collect_list": ("t", "v"),
    "collect_set": ("v",),
    "bool_and": ("v",),
    "bool_or": ("v",),
}
MOMENTS: tuple[Kind, ...] = ("stddev", "stddev_pop", "variance", "var_pop")
"""Functions of a count, a mean and a sum of squared deviations."""
_NUMERIC: tuple[Kind, ...] = ("sum", "avg", *MOMENTS)
_COUNTED_ONCE: tuple[Kind, ...] = ("count", *_NUMERIC)
"""Functions for which it makes a difference that a value is counted once."""
_SAME_ONCE: tuple[Kind, ...] = ("min", "max", "bool_and", "bool_or", "collect_set")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """An aggregate with its result's name and Arrow type."""

    name: str
    kind: Kind
    column: str | None
    type: pa.DataType
    by: str | None = None
    distinct: bool = False
    where: str | None = None
    strict: bool = False
    """whether a sum of whole numbers that is too large for its type is an error, or wraps"""

    @property
    def columns(self) -> tuple[str, ...]:
        """The input's columns it reads."""
        return tuple(name for name in (self.column, self.by, self.where) if name is not None)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{part}" for part in (("v",) if self.distinct else PARTS[self.kind]))

    @property
    def lists(self) -> bool:
        """Whether its partial columns are lists: of values, or of times and values."""
        return self.distinct or self.kind in ("collect_list", "collect_set")


def measure(name: str, aggregate: Aggregate, type_of: Callable[[str], pa.DataType], *, strict: bool = False) -> Measure:
    """An aggregate over columns of the types that `type_of` tells; it raises for those that cannot be aggregated."""
    what = f"{name}={aggregate}"
    kind, distinct = aggregate.kind, aggregate.distinct and aggregate.kind not in _SAME_ONCE
    if kind == "collect_list" and distinct:
        kind, distinct = "collect_set", False
    if distinct and kind not in _COUNTED_ONCE:
        raise QueryError(f"{what}: {kind} does not take distinct; leave it out")
    if aggregate.column is None and (kind != "count" or distinct):
        raise QueryError(f"{what} needs a column")
    if (aggregate.by is not None) != (kind in ("min_by", "max_by")):
        raise QueryError(f"{what}: min_by and max_by, and only these, go by a second column")
    if aggregate.where is not None and type_of(aggregate.where) != pa.bool_():
        raise QueryError(f"{what}: where needs a boolean column, {aggregate.where!r} is {type_of(aggregate.where)}")
    if aggregate.by is not None:
        type_of(aggregate.by)
    counted = kind == "count" and not distinct  # of a value of any type
    value = None if aggregate.column is None or counted else type_of(aggregate.column)
    return Measure(
        name=name,
        kind=kind,
        column=aggregate.column,
        type=result_type(kind, value),
        by=aggregate.by,
        distinct=distinct,
        where=aggregate.where,
        strict=strict,
    )


def result_type(kind: Kind, value: pa.DataType | None) -> pa.DataType:
    """Arrow type of an aggregate over a column of type `value`, as Spark would have it."""
    if kind == "count":
        return pa.int64()
    assert value is not None
    if kind in _NUMERIC and not _numeric(value):
        raise QueryError(f"{kind} needs a numeric column, got {value}; cast it first")
    if kind in ("bool_and", "bool_or") and value != pa.bool_():
        raise QueryError(f"{kind} needs a boolean column, got {value}; compare it with something first")
    if kind == "avg" and pa.types.is_decimal(value):
        return _decimal(value.precision + 4, value.scale + 4)
    if kind == "avg" or kind in MOMENTS:
        return pa.float64()
    if kind == "sum":
        if pa.types.is_decimal(value):
            return _decimal(value.precision + 10, value.scale)
        return pa.int64() if pa.types.is_integer(value) else pa.float64()
    return pa.list_(value) if kind in ("collect_list", "collect_set") else value


def _decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(min(precision, 38), min(scale, 38))


def _numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def carried(
    time: str | None, keys: tuple[str, ...], measures: tuple[Measure, ...], newest: int, oldest: int
) -> dict[str, int]:
    """The result columns that are event times of their rows: the latest ones not before `newest`, others `oldest`."""
    if time is None:
        return {}
    bounds = dict.fromkeys([key for key in keys if key == time], newest)
    for measured in measures:
        if measured.column != time:
            continue
        if measured.kind in ("max", "last") and measured.where is None:
            bounds[measured.name] = newest
        elif measured.kind in ("min", "max", "first", "last", "min_by", "max_by"):
            bounds[measured.name] = oldest
    return bounds
