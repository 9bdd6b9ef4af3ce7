"""What a stage plan is, and the checks that all words share. Each kind of stage has its file: join, aggregate, rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.arrays import MIN_TIME
from fluxen.control.stage import Stage
from fluxen.durations import microseconds
from fluxen.errors import QueryError
from fluxen.site.wire import IN, WEIGHT, Wire
from fluxen.spark.catalyst import DELAY
from fluxen.spark.plan.layout import event_time, field
from fluxen.spark.plan.partials import Partials
from fluxen.spark.plan.sources import origin
from fluxen.spark.plan.types import arrow_schema, arrow_type
from fluxen.state.segment import H2, H, T

Length = str | timedelta
Keys = str | Sequence[str]
Shape = Callable[[DataFrame], DataFrame]
"""rows to rows, one at a time: what select, where and withColumn do"""
RESERVED = {H, H2, T, IN, WEIGHT, "_w", "_session", "_site", "_task", "_by_time"}


def same(rows: DataFrame) -> DataFrame:
    return rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """One input of a stage: a source, or an earlier stage's results."""

    df: DataFrame
    """the source; otherwise an empty DataFrame with the columns that the stage sees"""
    plan: StagePlan | None = None
    """the stage whose results they are; None for a source"""
    shape: Shape = same
    """from that stage's results to what this stage sees"""
    note: str = ""
    """what Spark does with the rows before, for `explain`"""


@dataclass(frozen=True, kw_only=True, eq=False)
class StagePlan:
    """One stateful stage: where its rows come from, how they travel, what runs at the sites, what comes out.

    Two plans are the same stage only if they are the same object, which is how graphs are put together.
    """

    stage: Stage
    inputs: tuple[Given, ...]
    times: tuple[str | None, ...]
    """per input: its event-time column"""
    origins: tuple[str | None, ...]
    """per input: the feeding stage's own result column that this is; None for sources and computed times"""
    parts: tuple[Shape, ...]
    """per input: its rows in the layout that all inputs share"""
    prepare: Callable[[DataFrame, bool], DataFrame]
    """a batch of those rows in wire layout; may combine rows of one key first, if told that it pays"""
    wire: Wire
    wire_schema: st.StructType
    schema: st.StructType
    updating: Callable[[], StagePlan] | None = None
    """the same stage with its results emitted whenever they change, where that is a choice"""

    def project(self, frames: Sequence[DataFrame | None]) -> DataFrame:
        """The rows of the inputs in one DataFrame, streaming or not; None for an input that is not in this part."""
        given = zip(self.parts, self.inputs, frames)
        laid = [part(one.shape(frame)) for part, one, frame in given if frame is not None]
        return reduce(DataFrame.unionAll, laid)


def make_plan(
    stage: Stage,
    inputs: Sequence[Given],
    times: Sequence[str | None],
    parts: Sequence[Shape],
    wire: Wire,
    fields: Sequence[st.StructField],
    combining: Callable[[DataFrame], Partials] | None = None,
) -> StagePlan:
    """Run the layout functions once on templates to learn the wire layout."""
    names = [found.name for found in fields]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise QueryError(f"result column {doubled[0]!r} would appear twice; rename an input, a column or an aggregate")
    arrow_schema(fields)  # raises for what cannot travel
    templates = [one.df.sparkSession.createDataFrame([], one.df.schema) for one in inputs]
    laid_out = reduce(DataFrame.unionAll, [part(template) for part, template in zip(parts, templates)])
    prepare: Callable[[DataFrame, bool], DataFrame] = lambda rows, _: rows  # noqa: E731
    if combining is not None:
        partial = combining(laid_out)
        prepare, wire = partial.of, partial.wire
        laid_out = prepare(laid_out, True)
    return StagePlan(
        stage=stage,
        inputs=tuple(inputs),
        times=tuple(times),
        origins=tuple(_origin(one, time) for one, time in zip(inputs, times)),
        parts=tuple(parts),
        prepare=prepare,
        wire=wire,
        wire_schema=laid_out.schema,
        schema=st.StructType([_unmarked(found) for found in fields]),
    )


def _origin(given: Given, time: str | None) -> str | None:
    return None if given.plan is None or time is None else origin(given.df, time)


def _unmarked(found: st.StructField) -> st.StructField:
    """A result column without what withWatermark() noted: the results' watermark is the stage's."""
    kept = {name: value for name, value in found.metadata.items() if name != DELAY}
    return st.StructField(found.name, found.dataType, found.nullable, kept)


def listed(by: Keys, what: str) -> list[str]:
    """Key columns as a list."""
    keys = [by] if isinstance(by, str) else list(by)
    if not keys:
        raise QueryError(f"{what} needs at least one column")
    return keys


def check_names(df: DataFrame, what: str) -> None:
    doubled = sorted({name for name in df.columns if df.columns.count(name) > 1})
    if doubled:
        raise QueryError(f"{what} has two columns named {doubled[0]!r}; rename one of them")
    clash = sorted(name for name in df.columns if name.lower() in RESERVED)
    if clash:
        raise QueryError(f"{what} has a column named {clash[0]!r}, which fluxen uses itself; rename it")


def time_type(df: DataFrame, time: str) -> pa.DataType:
    event_time(df, time)  # raises unless it is a timestamp
    return arrow_type(field(df, time, "event-time column").dataType, f"event-time column {time!r}")


def time_or_first(df: DataFrame, time: str | None) -> Column:
    """`_t`, with rows that have no time before all others."""
    return F.coalesce(event_time(df, time), F.lit(MIN_TIME).cast("long")).alias(T)


def described(df: DataFrame, names: Sequence[str]) -> list[str]:
    """Columns with their types, for a checkpoint's identity."""
    return [f"{name} {field(df, name, 'column').dataType.simpleString()}" for name in names]


def lifetime(ttl: Length | None) -> dict[str, Any]:
    """What the checkpoint's identity says of a time to live; nothing where there is none."""
    return {} if ttl is None else {"ttl": microseconds(ttl, "ttl", positive=True)}
