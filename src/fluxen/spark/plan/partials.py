"""Partial aggregates in the JVM: one row per key and task leaves each task, so a hot key costs one row.

The parts' meaning and how they combine is in `fluxen.operators.aggregate.measures` and `combining`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.errors import QueryError
from fluxen.operators.aggregate.functions import Aggregate
from fluxen.operators.aggregate.measures import MOMENTS, Measure, measure
from fluxen.site.wire import IN, WEIGHT, Hops, Wire, assign_slots
from fluxen.spark.plan.layout import field, one_zero, quoted
from fluxen.spark.plan.types import arrow_type, spark_type
from fluxen.state.segment import H2, H, T

_TASK = "_task"
_TOO_LARGE = "a sum is larger than its decimal type holds; cast to a type with more room"


def measures(df: DataFrame, aggregates: Mapping[str, Aggregate]) -> tuple[Measure, ...]:
    """The user's aggregates with their result types, checked against the input's columns."""
    if not aggregates:
        raise QueryError("aggregate() needs at least one aggregate, such as n=fx.count()")
    found = []
    strict = df.sparkSession.conf.get("spark.sql.ansi.enabled") == "true"
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise QueryError(f"{name}={aggregate!r} is not an aggregate; use fx.count(), fx.sum('column') and the like")
        what = f"{name}={aggregate}"
        if aggregate.column is not None:
            field(df, aggregate.column, f"column of {what}")

        def type_of(column: str, what: str = what) -> pa.DataType:
            return arrow_type(field(df, column, f"column of {what}").dataType, f"{column!r} of {what}")

        found.append(measure(name, aggregate, type_of, strict=strict))
    return tuple(found)


def result_spark_type(df: DataFrame, measure: Measure) -> st.DataType:
    if measure.kind in ("min", "max", "first", "last", "min_by", "max_by", "collect_list", "collect_set"):
        assert measure.column is not None
        kind = field(df, measure.column, "column").dataType
        return st.ArrayType(kind, containsNull=False) if measure.lists else kind
    return spark_type(measure.type)


class _Read:
    """What a measure reads of a row: nulls where its condition does not hold."""

    def __init__(self, measure: Measure) -> None:
        kept = None if measure.where is None else F.col(quoted(measure.where))
        only: Callable[[Column], Column] = lambda column: column if kept is None else F.when(kept, column)  # noqa: E731
        self.value = only(F.lit(1) if measure.column is None else F.col(quoted(measure.column)))
        self.time = only(F.col(T))
        self.by = F.lit(None) if measure.by is None else only(F.col(quoted(measure.by)))
        self.number = self.value.cast("double")
        exact = measure.kind == "avg" and pa.types.is_decimal(measure.type)
        self.summed = self.value if exact else self.number
        """what a mean adds up"""


def parts(measure: Measure) -> list[Column]:
    """The partial columns of one measure as aggregate expressions."""
    read = _Read(measure)
    value, time, by = read.value, read.time, read.by
    if measure.distinct:
        return [F.collect_set(value).alias(measure.parts[0])]
    # an order that is null does not count, and neither does a pair that is
    at = F.when(time.isNotNull(), F.struct(time, value))
    ranked = F.when(by.isNotNull(), F.struct(by, value))
    pairs = F.collect_list(F.when(value.isNotNull(), F.struct(time.alias("t"), value.alias("v"))))
    moments = [F.count(value), F.avg(read.number), F.var_pop(read.number) * F.count(value)]
    made: dict[str, list[Column]] = {
        "count": [F.count(value)],
        "sum": [_sum(measure, value)],
        "min": [F.min(value)],
        "max": [F.max(value)],
        "avg": [_sum(measure, read.summed), F.count(value)],
        **dict.fromkeys(MOMENTS, moments),
        "first": [F.min(time), F.min_by(value, at)],
        "last": [F.max(time), F.max_by(value, at)],
        "min_by": [F.min(by), F.min_by(value, ranked)],
        "max_by": [F.max(by), F.max_by(value, ranked)],
        "collect_list": [pairs.getField("t"), pairs.getField("v")],
        "collect_set": [F.collect_set(value)],
        "bool_and": [F.min(value)],
        "bool_or": [F.max(value)],
    }
    return [column.alias(part) for column, part in zip(made[measure.kind], measure.parts)]


def _sum(measure: Measure, value: Column) -> Column:
    """A sum. Of decimals one that is too large is null outside of ANSI mode, which would be nothing to the sites."""
    if not pa.types.is_decimal(measure.type):
        return F.sum(value)
    too_large = F.raise_error(f"fluxen.errors.QueryError: {measure.kind}({measure.column}): {_TOO_LARGE}")
    return F.when(F.count(value) > 0, F.coalesce(F.sum(value), too_large))


def single(measure: Measure) -> list[Column]:
    """The partial columns of one measure for a row on its own: what `parts` gives for a group of one."""
    read = _Read(measure)
    value, present = read.value, read.value.isNotNull()
    listed, counted = F.when(present, F.array(value)), present.cast("long")
    if measure.distinct:
        return [listed.alias(measure.parts[0])]
    made: dict[str, list[Column]] = {
        "count": [counted],
        "sum": [value],
        "avg": [read.summed, counted],
        **{kind: [counted, read.number, F.when(present, F.lit(0.0))] for kind in MOMENTS},
        "first": [read.time, value],
        "last": [read.time, value],
        "min_by": [read.by, value],
        "max_by": [read.by, value],
        "collect_list": [F.when(present, F.array(read.time)), listed],
        "collect_set": [listed],
    }
    return [column.alias(part) for column, part in zip(made.get(measure.kind, [value]), measure.parts)]


def _loosely(column: Column, kind: st.DataType) -> Column:
    """The column with this type; an array of it may hold nulls as far as Spark knows, which it does not cast away."""
    return column.cast(st.ArrayType(kind.elementType) if isinstance(kind, st.ArrayType) else kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partials:
    """A batch as partial aggregates in wire layout.

    The columns are built once: each call into the JVM and each further DataFrame costs every batch.
    """

    wire: Wire
    grouping: tuple[Column, ...]
    combined: tuple[Column, ...]
    singles: tuple[Column, ...]

    def of(self, df: DataFrame, combine: bool) -> DataFrame:
        """One row per key (and whatever else is grouped by) and task; or, where keys hardly repeat, every row alone.

        The task is part of the grouping so that Spark never adds two tasks' floating-point sums in arrival order: the
        sites do it in an order of their own, and a rerun gives the same bits.
        """
        return df.groupBy(*self.grouping).agg(*self.combined) if combine else df.select(*self.singles)


def partials(
    template: DataFrame, group: Sequence[str], measured: Sequence[Measure], hops: Hops | None = None
) -> Partials:
    """How to turn rows like those of `template`, with hashes and time, into partial aggregates per `group`."""
    made = [column for measure in measured for column in parts(measure)]
    columns = [template.schema[name] for name in group] + template.groupBy().agg(*made).schema.fields
    clash = {part for measure in measured for part in measure.parts} & set(group)
    if clash:
        raise QueryError(f"key column {min(clash)!r} is named like a part of an aggregate; rename one of the two")
    placed, _ = assign_slots([[(column.name, column.dataType.simpleString()) for column in columns]])
    slots = dict(placed[0])
    hashed = [F.col(name) for name in (H, H2) if name in template.columns]
    of = template.schema
    keys = [*hashed, *(one_zero(F.col(quoted(name)), of[name].dataType).alias(slots[name]) for name in group)]
    alone = [column for measure in measured for column in single(measure)]
    typed = columns[len(group) :]
    return Partials(
        wire=Wire(inputs=(tuple(placed[0]),), exact=len(hashed) == 1, weighted=True, hops=hops),
        grouping=(F.spark_partition_id().alias(_TASK), *keys),
        combined=(
            F.lit(0).alias(IN),
            F.max(T).alias(T),
            F.count(F.lit(1)).alias(WEIGHT),
            *(column.alias(slots[part.name]) for column, part in zip(made, typed)),
        ),
        singles=(
            F.lit(0).alias(_TASK),
            *keys,
            F.lit(0).alias(IN),
            F.col(T),
            F.lit(1).cast("long").alias(WEIGHT),
            *(_loosely(column, part.dataType).alias(slots[part.name]) for column, part in zip(alone, typed)),
        ),
    )
