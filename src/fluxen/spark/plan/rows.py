"""Stages that keep or see whole rows: distinct, and user code."""

from __future__ import annotations

from typing import Any, Literal, get_args

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.arrays import UNBOUNDED
from fluxen.control.stage import Stage
from fluxen.durations import microseconds
from fluxen.errors import QueryError
from fluxen.operators.distinct import Distinct
from fluxen.operators.user_code import result_schema, runner
from fluxen.spark.plan.base import (
    Given,
    Keys,
    Length,
    StagePlan,
    check_names,
    described,
    lifetime,
    listed,
    make_plan,
    time_or_first,
    time_type,
)
from fluxen.spark.plan.layout import Travelling, field, hashable_columns, key_hashes, lay_out, quoted
from fluxen.spark.plan.sources import lateness_of
from fluxen.spark.plan.types import arrow_schema


def _whole_rows(df: DataFrame, time: str | None) -> tuple[tuple[tuple[str, pa.DataType | None], ...], tuple[str, ...]]:
    """All columns (the event time with its type), and those that can break ties."""
    if time is not None:
        time_type(df, time)
    columns = tuple((name, time_type(df, name) if name == time else None) for name in df.columns)
    unordered = (st.MapType, st.StructType, st.ArrayType)
    ties = tuple(f.name for f in df.schema.fields if f.name != time and not isinstance(f.dataType, unordered))
    return columns, ties


def _travelling(df: DataFrame, keys: list[str], time: str | None, *, timed_only: bool) -> Travelling:
    return Travelling(
        hashes=key_hashes(df, keys, nulls=True),
        time=time_or_first(df, time),
        payload=[name for name in df.columns if name != time],
        where=F.col(quoted(time)).isNotNull() if timed_only and time is not None else None,
    )


def distinct_stage(
    given: Given, by: Keys, time: str | None, within: Length | None, lateness: Length | None, ttl: Length | None
) -> StagePlan:
    df, keys = given.df, listed(by, "by")
    check_names(df, "the input of distinct()")
    for key in keys:
        field(df, key, "key column")
    if within is not None and time is None:
        raise QueryError("within needs the event time: pass time='column'")
    if within is not None and ttl is not None:
        raise QueryError("give either within or ttl, not both")
    columns, ties = _whole_rows(df, time)
    length = within if ttl is None else ttl
    span = UNBOUNDED if length is None else microseconds(length, "within" if ttl is None else "ttl", positive=True)
    identity = {"by": described(df, keys), "time": time, "within": None if within is None else span, **lifetime(ttl)}
    stage = Stage(
        operator=Distinct(columns=columns, ties=ties, within=span, described=identity),
        lateness=(lateness_of(df, time, lateness, "lateness", "the input of distinct()"),),
        on_arrival=ttl is not None and time is None,
    )
    parts, wire = lay_out([(df, _travelling(df, keys, time, timed_only=True))])
    return make_plan(stage, [given], [time], parts, wire, df.schema.fields)


Expiry = Literal["never", "time", "watermark"]


def deduplicated_stage(
    given: Given,
    by: Keys,
    time: str | None,
    expiry: Expiry,
    *,
    delay: Length | None = None,
    lateness: Length | None = None,
) -> StagePlan:
    """Spark's dropDuplicates and dropDuplicatesWithinWatermark, for compilers; `fluxen.distinct` is the user's word.

    `expiry` says when a key is forgotten: "never", as dropDuplicates does unless the event time is among its columns;
    "time", where it is: once the watermark has passed it, as rows with that time are late then; "watermark", as
    dropDuplicatesWithinWatermark does: once the watermark has passed the row that was kept by `delay`, which is that of
    withWatermark() unless it is given. Rows without event time are never late, and those of one key duplicates of each
    other; by "watermark" they count as rows of 1970, as in Spark.
    """
    df, keys = given.df, listed(by, "by")
    check_names(df, "the input of dropDuplicates()")
    for key in keys:
        field(df, key, "key column")
    if expiry not in get_args(Expiry):
        raise QueryError(f"expiry must be 'never', 'time' or 'watermark', got {expiry!r}")
    if expiry != "never" and time is None:
        raise QueryError(f"expiry={expiry!r} needs the event time: pass time='column', or expiry='never'")
    if expiry == "time" and time not in keys:
        raise QueryError(f"expiry='time' needs the event time {time!r} among the columns in by, got {', '.join(keys)}")
    if delay is not None and expiry != "watermark":
        raise QueryError("delay is for expiry='watermark'; leave it out")
    columns, ties = _whole_rows(df, time)
    late = 0 if time is None else lateness_of(df, time, lateness, "lateness", "the input of dropDuplicates()")
    past = late if delay is None else microseconds(delay, "delay")
    span = {"never": UNBOUNDED, "time": 0, "watermark": past}[expiry]
    identity = {"by": described(df, keys), "time": time, "expiry": expiry, "within": span if span < UNBOUNDED else None}
    operator = Distinct(
        columns=columns,
        ties=ties,
        within=span,
        described=identity,
        rule="watermark" if expiry == "watermark" else "apart",
        untimed=time is not None,
    )
    parts, wire = lay_out([(df, _travelling(df, keys, time, timed_only=False))])
    return make_plan(Stage(operator=operator, lateness=(late,)), [given], [time], parts, wire, df.schema.fields)


def stateful_stage(given: Given, by: Keys | None, time: str | None, operator: Any) -> StagePlan:
    df = given.df
    keys = hashable_columns(df) if by is None else listed(by, "by")
    if not keys:
        raise QueryError(
            "the input of stateful() has no column that can be hashed, so by=None has nothing to spread by"
        )
    check_names(df, "the input of stateful()")
    columns, ties = _whole_rows(df, time)
    schema = result_schema(operator)
    if isinstance(schema, str):
        schema = st.StructType.fromDDL(schema) if hasattr(st.StructType, "fromDDL") else _parse_ddl(df, schema)
    identity = {
        "by": None if by is None else described(df, keys),
        "time": time,
        "code": type(operator).__qualname__,
    }
    results = arrow_schema(schema.fields)
    stage = Stage(
        operator=runner(operator, columns=columns, ties=ties, results=results, described=identity),
        lateness=(lateness_of(df, time, None, "lateness", "the input of stateful()"),),
    )
    parts, wire = lay_out([(df, _travelling(df, keys, time, timed_only=False))])
    return make_plan(stage, [given], [time], parts, wire, schema.fields)


def _parse_ddl(df: DataFrame, ddl: str) -> st.StructType:
    return df.sparkSession.createDataFrame([], ddl).schema
