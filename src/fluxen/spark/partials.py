"""Partial aggregates in the JVM: one row per key and task leaves each task, so a hot key costs one row.

The parts' meaning and how they combine is in `fluxen.operators.functions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.errors import QueryError
from fluxen.operators.functions import Aggregate, Measure, result_type
from fluxen.operators.wire import WEIGHT
from fluxen.spark.split import field, quoted
from fluxen.spark.types import arrow_type, spark_type
from fluxen.state.segment import H2, H, T

_TASK = "_task"


def measures(df: DataFrame, aggregates: Mapping[str, Aggregate]) -> tuple[Measure, ...]:
    """The user's aggregates with their result types, checked against the input's columns."""
    if not aggregates:
        raise QueryError("aggregate() needs at least one aggregate, such as n=fx.count()")
    found = []
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise QueryError(f"{name}={aggregate!r} is not an aggregate; use fx.count(), fx.sum('column') and the like")
        value = None
        if aggregate.column is not None:
            kind = field(df, aggregate.column, f"column of {name}={aggregate}").dataType
            value = (
                arrow_type(kind, f"{aggregate.column!r} of {name}={aggregate}") if aggregate.kind != "count" else None
            )
        found.append(
            Measure(
                name=name,
                kind=aggregate.kind,
                column=aggregate.column,
                type=result_type(aggregate.kind, value),
            )
        )
    return tuple(found)


def result_spark_type(df: DataFrame, measure: Measure) -> st.DataType:
    if measure.kind in ("min", "max", "first", "last"):
        assert measure.column is not None
        return field(df, measure.column, "column").dataType
    return spark_type(measure.type)


def parts(measure: Measure) -> list[Column]:
    """The partial columns of one measure as aggregate expressions."""
    value = F.lit(1) if measure.column is None else F.col(quoted(measure.column))
    number = value.cast("double")
    order = F.struct(F.col(T), value)
    made: dict[str, list[Column]] = {
        "count": [F.count(value)],
        "sum": [F.sum(value)],
        "min": [F.min(value)],
        "max": [F.max(value)],
        "avg": [F.sum(number), F.count(value)],
        "stddev": [F.count(value), F.avg(number), F.var_pop(number) * F.count(value)],
        "first": [F.min(T), F.min_by(value, order)],
        "last": [F.max(T), F.max_by(value, order)],
    }
    return [column.alias(part) for column, part in zip(made[measure.kind], measure.parts)]


def single(measure: Measure) -> list[Column]:
    """The partial columns of one measure for a row on its own: what `parts` gives for a group of one."""
    value = F.lit(1) if measure.column is None else F.col(quoted(measure.column))
    number, present = value.cast("double"), value.isNotNull()
    counted = present.cast("long")
    made: dict[str, list[Column]] = {
        "count": [counted],
        "sum": [value.cast(spark_type(measure.type))],
        "min": [value],
        "max": [value],
        "avg": [number, counted],
        "stddev": [counted, number, F.when(present, F.lit(0.0))],
        "first": [F.col(T), value],
        "last": [F.col(T), value],
    }
    return [column.alias(part) for column, part in zip(made[measure.kind], measure.parts)]


def one_by_one(df: DataFrame, group: Sequence[str], measured: Sequence[Measure]) -> DataFrame:
    """Every row as a partial aggregate of its own: cheaper than `pre_aggregate` where keys hardly repeat."""
    keys = [F.col(name) for name in (H, H2) if name in df.columns]
    columns = [part for measure in measured for part in single(measure)]
    kept = (F.col(quoted(name)) for name in group)
    return df.select(*keys, *kept, F.col(T), F.lit(1).cast("long").alias(WEIGHT), *columns)


def pre_aggregate(df: DataFrame, group: Sequence[str], measured: Sequence[Measure]) -> DataFrame:
    """One row per key (and whatever else is in `group`) and task.

    The task is part of the grouping so that Spark never adds two tasks' floating-point sums in arrival order: the
    sites do it in an order of their own, and a rerun gives the same bits.
    """
    keys = [name for name in (H, H2) if name in df.columns]
    grouped = df.withColumn(_TASK, F.spark_partition_id()).groupBy(_TASK, *keys, *(quoted(name) for name in group))
    columns = [part for measure in measured for part in parts(measure)]
    return grouped.agg(F.max(T).alias(T), F.count(F.lit(1)).alias(WEIGHT), *columns)
