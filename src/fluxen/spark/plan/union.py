"""A stage for rows of several inputs, streams and results, as one stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import functions as F

from fluxen.control.stage import Stage
from fluxen.errors import QueryError
from fluxen.operators.union import Union
from fluxen.spark.plan.base import Given, Length, StagePlan, check_names, described, make_plan, time_or_first, time_type
from fluxen.spark.plan.layout import Travelling, hashable_columns, key_hashes, lay_out
from fluxen.spark.plan.sources import lateness_of
from fluxen.state.segment import H

__all__ = ["union_stage"]


def union_stage(inputs: Sequence[Given], time: str | None, lateness: Length | None = None) -> StagePlan:
    """All rows of inputs that have the same columns in any order; `time` is an event time of all of them, or None."""
    if len(inputs) < 2:
        raise QueryError(f"union() takes two inputs or more, got {len(inputs)}")
    first = inputs[0].df
    wanted = sorted(described(first, first.columns))
    for number, one in enumerate(inputs):
        check_names(one.df, f"input {number + 1} of union()")
        found = sorted(described(one.df, one.df.columns))
        if found != wanted:
            raise QueryError(
                f"input {number + 1} of union() has the columns {', '.join(found)}, the first one has "
                f"{', '.join(wanted)}; use select() to make them the same"
            )
    kinds = {name: None if name != time else time_type(first, name) for name in first.columns}
    feeding = [one.plan.stage.operator for one in inputs if one.plan is not None]
    operator = Union(
        columns=tuple(kinds.items()),
        count=len(inputs),
        described={"columns": described(first, first.columns), "time": time, "count": len(inputs)},
        updating=any(one.emits == "update" for one in feeding),
    )
    late = [lateness_of(one.df, time, lateness, "lateness", "an input of union()") if time else 0 for one in inputs]
    parts, wire = lay_out([(one.df, _travelling(one, time)) for one in inputs])
    fields = [field if field.nullable else type(field)(field.name, field.dataType, True) for field in first.schema]
    built = make_plan(Stage(operator=operator, lateness=tuple(late)), inputs, [time] * len(inputs), parts, wire, fields)
    if all(one.plan is None or one.plan.updating is None for one in inputs):
        return built
    return replace(built, updating=lambda: union_stage([_updating(one) for one in inputs], time, lateness))


def _updating(given: Given) -> Given:
    """An input whose results come whenever they change, where that is a choice."""
    if given.plan is None or given.plan.updating is None:
        return given
    return replace(given, plan=given.plan.updating())


def _travelling(given: Given, time: str | None) -> Travelling:
    """Any site will do, so all columns say which."""
    keys = hashable_columns(given.df)
    return Travelling(
        hashes=key_hashes(given.df, keys, nulls=True)[:1] if keys else [F.xxhash64(F.lit(0)).alias(H)],
        time=time_or_first(given.df, time),
        payload=[name for name in given.df.columns if name != time],
    )
