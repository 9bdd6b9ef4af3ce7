"""Partial aggregates in the JVM: one row per key and task leaves each task, so a hot key costs one row.

The parts' meaning and how they combine is in `fluxen.operators.functions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.errors import QueryError
from fluxen.operators.functions import Aggregate, Measure, result_type
from fluxen.operators.wire import IN, WEIGHT, Wire, assign_slots
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


def partials(template: DataFrame, group: Sequence[str], measured: Sequence[Measure]) -> Partials:
    """How to turn rows like those of `template`, with hashes and time, into partial aggregates per `group`."""
    made = [column for measure in measured for column in parts(measure)]
    columns = [template.schema[name] for name in group] + template.groupBy().agg(*made).schema.fields
    placed, _ = assign_slots([[(column.name, column.dataType.simpleString()) for column in columns]])
    slots = dict(placed[0])
    hashed = [F.col(name) for name in (H, H2) if name in template.columns]
    keys = [*hashed, *(F.col(quoted(name)).alias(slots[name]) for name in group)]
    alone = [column for measure in measured for column in single(measure)]
    typed = columns[len(group) :]
    return Partials(
        wire=Wire(inputs=(tuple(placed[0]),), exact=len(hashed) == 1, weighted=True),
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
            *(column.cast(part.dataType).alias(slots[part.name]) for column, part in zip(alone, typed)),
        ),
    )
