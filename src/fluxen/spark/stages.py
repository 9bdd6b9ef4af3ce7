"""Stage plans: the user's words checked and turned into operators, layouts and schemas."""

from __future__ import annotations

import functools
import operator as symbols
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.control.coordinator import Stage
from fluxen.durations import microseconds
from fluxen.errors import QueryError
from fluxen.operators.aggregate import Running, Tumbling
from fluxen.operators.base import Operator
from fluxen.operators.distinct import Distinct
from fluxen.operators.functions import Aggregate, Measure
from fluxen.operators.join import Join, OutputColumn, pair_bounds
from fluxen.operators.last import LastRows
from fluxen.operators.stateful import GroupOperator, Stateful
from fluxen.operators.tree import TreeJoin
from fluxen.operators.wire import IN, WEIGHT, Wire
from fluxen.spark.partials import Partials, measures, partials, result_spark_type
from fluxen.spark.sources import DELAY, lateness_of
from fluxen.spark.split import event_time, field, hashable_columns, key_hashes, lay_out, quoted
from fluxen.spark.types import arrow_schema, arrow_type
from fluxen.state.segment import H2, H, T
from fluxen.typing import MIN_TIME, UNBOUNDED

Length = str | timedelta
Keys = str | Sequence[str]
MAX_INPUTS = 8
_RESERVED = {H, H2, T, IN, WEIGHT, "_w", "_site", "_task"}


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One stateful stage: how its input is laid out, what runs at the sites, what comes out."""

    stage: Stage
    project: Callable[[Sequence[DataFrame]], DataFrame]
    """rows of all inputs in one DataFrame; works on streams"""
    prepare: Callable[[DataFrame, bool], DataFrame]
    """a batch of those rows in wire layout; may combine rows of one key first, if told that it pays"""
    wire: Wire
    wire_schema: st.StructType
    schema: st.StructType
    times: tuple[str | None, ...] = ()
    """per input: its event-time column"""


def _plan(
    operator: Operator,
    lateness: tuple[int, ...],
    inputs: Sequence[DataFrame],
    times: Sequence[str | None],
    project: Callable[[Sequence[DataFrame]], tuple[DataFrame, Wire]],
    fields: Sequence[st.StructField],
    combining: Callable[[DataFrame], Partials] | None = None,
    *,
    idle: tuple[int | None, ...] = (),
    on_arrival: bool = False,
) -> StagePlan:
    """Run the layout functions once on templates to learn the wire layout."""
    names = [found.name for found in fields]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise QueryError(f"result column {doubled[0]!r} would appear twice; rename an input, a column or an aggregate")
    arrow_schema(fields)  # raises for what cannot travel
    spark = inputs[0].sparkSession
    laid_out, wire = project([spark.createDataFrame([], df.schema) for df in inputs])
    prepare: Callable[[DataFrame, bool], DataFrame] = lambda rows, _: rows  # noqa: E731
    if combining is not None:
        partial = combining(laid_out)
        prepare, wire = partial.of, partial.wire
        laid_out = prepare(laid_out, True)
    return StagePlan(
        stage=Stage(operator=operator, lateness=lateness, time=times[0], idle=idle, on_arrival=on_arrival),
        project=lambda streams: project(streams)[0],
        prepare=prepare,
        wire=wire,
        wire_schema=laid_out.schema,
        schema=st.StructType([_unmarked(found) for found in fields]),
        times=tuple(times),
    )


def _unmarked(found: st.StructField) -> st.StructField:
    """A result column without what withWatermark() noted: the results' watermark is the stage's."""
    kept = {name: value for name, value in found.metadata.items() if name != DELAY}
    return st.StructField(found.name, found.dataType, found.nullable, kept)


def _keys(by: Keys, what: str) -> list[str]:
    keys = [by] if isinstance(by, str) else list(by)
    if not keys:
        raise QueryError(f"{what} needs at least one column")
    return keys


def _check_names(df: DataFrame, what: str) -> None:
    clash = sorted(name for name in df.columns if name.lower() in _RESERVED)
    if clash:
        raise QueryError(f"{what} has a column named {clash[0]!r}, which fluxen uses itself; rename it")


def _time_type(df: DataFrame, time: str) -> pa.DataType:
    event_time(df, time)  # raises unless it is a timestamp
    return arrow_type(field(df, time, "event-time column").dataType, f"event-time column {time!r}")


def _described(df: DataFrame, names: Sequence[str]) -> list[str]:
    return [f"{name} {field(df, name, 'column').dataType.simpleString()}" for name in names]


# ---- join


def join_stage(
    inputs: Mapping[str, DataFrame],
    on: Keys | Mapping[str, Keys],
    time: str | Mapping[str, str] | None,
    within: Length | None,
    between: Mapping[tuple[str, str], tuple[Length | None, Length | None]] | None,
    lateness: Length | Mapping[str, Length] | None,
    plan: str = "mjoin",
    idle: Length | Mapping[str, Length] | None = None,
    ttl: Length | None = None,
) -> StagePlan:
    names = list(inputs)
    if plan not in ("mjoin", "tree"):
        raise QueryError(f"plan must be 'mjoin' or 'tree', got {plan!r}")
    if not 2 <= len(names) <= MAX_INPUTS:
        raise QueryError(f"join() takes 2 to {MAX_INPUTS} inputs, got {len(names)}")
    for what, given in (("on", on), ("time", time), ("lateness", lateness)):
        strangers = sorted(set(given) - set(names)) if isinstance(given, Mapping) else []
        if strangers:
            raise QueryError(f"{what} names input {strangers[0]!r}; there are: {', '.join(names)}")
    dfs = list(inputs.values())
    keys = [_keys(_each(on, name, "on"), "on") for name in names]
    times = [None if time is None else str(_each(time, name, "time")) for name in names]
    _check_key_types(names, dfs, keys)
    low = pair_bounds(names, within, between, ttl)
    if time is None and (within is not None or between):
        raise QueryError("within and between need the event time: pass time='column'")
    output, fields = _join_output(names, dfs, keys, times)
    described = {
        "inputs": names,
        "on": [_described(df, key) for df, key in zip(dfs, keys)],
        "time": times,
        "bounds": [list(row) for row in low],
        "columns": [_described(df, df.columns) for df in dfs],
        **_lifetime(ttl),
    }
    kind = TreeJoin if plan == "tree" else Join
    operator = kind(names=tuple(names), low=low, output=tuple(output), described=described)
    late = tuple(
        lateness_of(df, when, _stated(lateness, name, df), f"lateness of {name!r}", f"input {name!r}")
        for name, df, when in zip(names, dfs, times)
    )

    def project(streams: Sequence[DataFrame]) -> tuple[DataFrame, Wire]:
        parts, keyed = [], []
        for number, (df, key, when) in enumerate(zip(streams, keys, times)):
            _check_names(df, f"input {names[number]!r}")
            hashes, moment = key_hashes(df, key, nulls=False), event_time(df, when)
            stored = [(c, c) for c in df.columns if (c in key and number == 0) or (c not in key and c != when)]
            present = functools.reduce(symbols.and_, (F.col(quoted(name)).isNotNull() for name in key))
            if when is None:
                parts.append((df.where(present), [*hashes, moment], stored))
                continue
            # a row without a key goes to any site: there its time counts and nothing else
            spread = F.when(present, hashes[0]).otherwise(F.xxhash64(quoted(when))).alias(H)
            parts.append((df.where(F.col(quoted(when)).isNotNull()), [spread, *hashes[1:], moment], stored))
            keyed.append(present)
        return lay_out(parts, keyed=keyed)

    arriving = ttl is not None and time is None
    return _plan(operator, late, dfs, times, project, fields, idle=_idle(idle, names, time), on_arrival=arriving)


def _lifetime(ttl: Length | None) -> dict[str, Any]:
    """What the checkpoint's identity says of a time to live; nothing where there is none."""
    return {} if ttl is None else {"ttl": microseconds(ttl, "ttl", positive=True)}


def _stated(lateness: Any, name: str, df: DataFrame) -> Any:
    """The lateness given for one input; a mapping may leave out those with withWatermark()."""
    if isinstance(lateness, Mapping) and name not in lateness and any(DELAY in f.metadata for f in df.schema.fields):
        return None
    return _each(lateness, name, "lateness")


def _idle(given: Length | Mapping[str, Length] | None, names: list[str], time: Any) -> tuple[int | None, ...]:
    """Per input, how long it may be silent; a mapping need not name all of them."""
    if given is None:
        return ()
    if time is None:
        raise QueryError("idle needs the event time: without it there is no watermark to hold back; pass time='column'")
    lengths = dict(given) if isinstance(given, Mapping) else dict.fromkeys(names, given)
    unknown = [name for name in lengths if name not in names]
    if unknown:
        raise QueryError(f"idle names input {unknown[0]!r}; there are: {', '.join(names)}")
    return tuple(
        microseconds(lengths[name], f"idle of {name!r}", positive=True) if name in lengths else None for name in names
    )


def _each(given: Any, name: str, what: str) -> Any:
    """The value for one input, from a value for all or a mapping by name."""
    if not isinstance(given, Mapping):
        return given
    if name not in given:
        raise QueryError(f"{what} has no entry for input {name!r}; it has {', '.join(map(repr, given))}")
    return given[name]


def _check_key_types(names: list[str], dfs: list[DataFrame], keys: list[list[str]]) -> None:
    first = [field(dfs[0], key, f"key of input {names[0]!r}:").dataType for key in keys[0]]
    for name, df, key in zip(names, dfs, keys):
        if len(key) != len(first):
            raise QueryError(
                f"input {name!r} joins on {len(key)} columns, {names[0]!r} on {len(first)}; give one for one"
            )
        for column, expected, reference in zip(key, first, keys[0]):
            kind = field(df, column, f"key of input {name!r}:").dataType
            if kind.simpleString() != expected.simpleString():
                raise QueryError(
                    f"key {column!r} of input {name!r} is {kind.simpleString()}, but {reference!r} of {names[0]!r} is "
                    f"{expected.simpleString()}; cast one of them"
                )


def _join_output(
    names: list[str], dfs: list[DataFrame], keys: list[list[str]], times: list[str | None]
) -> tuple[list[OutputColumn], list[st.StructField]]:
    output = [OutputColumn(name=key, side=0, column=key, key_time=key == times[0]) for key in keys[0]]
    fields = [st.StructField(key, field(dfs[0], key, "key").dataType) for key in keys[0]]
    for side, (name, df, key, time) in enumerate(zip(names, dfs, keys, times)):
        for column in df.schema.fields:
            if column.name in key:
                continue
            out = f"{name}_{column.name}"
            timed = column.name == time
            kind = _time_type(df, column.name) if timed else None
            output.append(OutputColumn(name=out, side=side, column=None if timed else column.name, time_type=kind))
            fields.append(st.StructField(out, column.dataType))
    return output, fields


# ---- aggregate


def aggregate_stage(
    df: DataFrame,
    by: Keys,
    time: str | None,
    last: int | None,
    window: Length | None,
    lateness: Length | None,
    aggregates: Mapping[str, Aggregate],
    ttl: Length | None = None,
) -> StagePlan:
    keys = _keys(by, "by")
    _check_names(df, "the input of aggregate()")
    measured = measures(df, aggregates)
    late = (lateness_of(df, time, lateness, "lateness", "the input of aggregate()"),)
    if last is not None and window is not None:
        raise QueryError("give either last or window, not both")
    if ttl is not None and window is not None:
        raise QueryError("ttl is for state without a window; windows go when they are closed, so leave it out")
    if time is None and (window is not None or any(m.kind in ("first", "last") for m in measured)):
        raise QueryError("windows and first/last need the event time: pass time='column'")
    if time is not None:
        _time_type(df, time)
    described = {
        "by": _described(df, keys),
        "time": time,
        "aggregates": [f"{name}={aggregate}" for name, aggregate in aggregates.items()],
        "last": last,
        "window": None if window is None else microseconds(window, "window", positive=True),
        **_lifetime(ttl),
    }
    if last is not None:
        return _last_stage(df, keys, time, last, late, measured, described)
    return _combining_stage(df, keys, time, window, late, measured, described)


def _key_fields(df: DataFrame, keys: list[str]) -> list[st.StructField]:
    return [st.StructField(key, field(df, key, "key column").dataType) for key in keys]


def _last_stage(
    df: DataFrame,
    keys: list[str],
    time: str | None,
    last: Any,
    late: tuple[int, ...],
    measured: tuple[Measure, ...],
    described: dict[str, Any],
) -> StagePlan:
    if not isinstance(last, int) or isinstance(last, bool) or last <= 0:
        raise QueryError(f"last must be a whole number of rows above 0, got {last!r}")
    for measure in measured:
        if measure.kind == "sum" and pa.types.is_decimal(measure.type) and measure.type.precision > 28:
            raise QueryError(f"sum({measure.column}) over the last rows takes decimals of up to 18 digits; cast it")
    operator = LastRows(
        keys=tuple(keys),
        measures=measured,
        n=last,
        time=time if time not in keys else None,
        time_type=None if time is None else _time_type(df, time),
        described=described,
        clock=time,
        ttl=described.get("ttl", UNBOUNDED),
    )
    timed = [field(df, operator.time, "event time")] if operator.time else []
    fields = [*_key_fields(df, keys), *timed, *(st.StructField(m.name, result_spark_type(df, m)) for m in measured)]
    stored = list(dict.fromkeys([*keys, *operator.values]))

    def project(streams: Sequence[DataFrame]) -> tuple[DataFrame, Wire]:
        (stream,) = streams
        hashed = [*key_hashes(stream, keys, nulls=True), _time_or_first(stream, time)]
        return lay_out([(stream, hashed, [(c, c) for c in stored])])

    arriving = "ttl" in described and time is None
    return _plan(operator, late, [df], [time], project, fields, on_arrival=arriving)


def _time_or_first(df: DataFrame, time: str | None) -> Column:
    return F.coalesce(event_time(df, time), F.lit(MIN_TIME).cast("long")).alias(T)


def _combining_stage(
    df: DataFrame,
    keys: list[str],
    time: str | None,
    window: Length | None,
    late: tuple[int, ...],
    measured: tuple[Measure, ...],
    described: dict[str, Any],
) -> StagePlan:
    """Running and tumbling forms: Spark combines each task's rows first."""
    operator: Running | Tumbling
    fields = _key_fields(df, keys)
    group, size = list(keys), 0
    if window is None:
        life = described.get("ttl", UNBOUNDED)
        operator = Running(keys=tuple(keys), measures=measured, described=described, clock=time, ttl=life)
    else:
        assert time is not None
        size = microseconds(window, "window", positive=True)
        kind = _time_type(df, time)
        operator = Tumbling(
            keys=tuple(keys), measures=measured, size=size, time_type=kind, described=described, clock=time
        )
        stamp = field(df, time, "event time").dataType
        fields.append(
            st.StructField("window", st.StructType([st.StructField("start", stamp), st.StructField("end", stamp)]))
        )
        group.append("_w")
    fields += [st.StructField(measure.name, result_spark_type(df, measure)) for measure in measured]
    values = list(dict.fromkeys([*keys, *(m.column for m in measured if m.column is not None)]))

    def project(streams: Sequence[DataFrame]) -> tuple[DataFrame, Wire]:
        (stream,) = streams
        hashed = [*key_hashes(stream, keys, nulls=True), _time_or_first(stream, time)]
        rows = stream.select(*hashed, *(F.col(quoted(name)) for name in values))
        if size:
            end = F.expr(f"({T} div {size}L + if({T} % {size}L < 0, 0L, 1L)) * {size}L")
            rows = rows.where(F.col(T) > MIN_TIME).withColumn("_w", end)
        return rows, Wire(inputs=(), exact=True)

    arriving = "ttl" in described and time is None
    combining = functools.partial(partials, group=group, measured=measured)
    return _plan(operator, late, [df], [time], project, fields, combining, on_arrival=arriving)


# ---- distinct and user code


def _whole_rows(df: DataFrame, time: str | None) -> tuple[tuple[tuple[str, pa.DataType | None], ...], tuple[str, ...]]:
    """All columns (the event time with its type), and those that can break ties."""
    if time is not None:
        _time_type(df, time)
    columns = tuple((name, _time_type(df, name) if name == time else None) for name in df.columns)
    unordered = (st.MapType, st.StructType, st.ArrayType)
    ties = tuple(f.name for f in df.schema.fields if f.name != time and not isinstance(f.dataType, unordered))
    return columns, ties


def _row_project(
    keys: list[str], time: str | None, *, timed_only: bool
) -> Callable[[Sequence[DataFrame]], tuple[DataFrame, Wire]]:
    def project(streams: Sequence[DataFrame]) -> tuple[DataFrame, Wire]:
        (stream,) = streams
        if timed_only and time is not None:
            stream = stream.where(F.col(quoted(time)).isNotNull())
        hashed = [*key_hashes(stream, keys, nulls=True), _time_or_first(stream, time)]
        return lay_out([(stream, hashed, [(c, c) for c in stream.columns if c != time])])

    return project


def distinct_stage(
    df: DataFrame, by: Keys, time: str | None, within: Length | None, lateness: Length | None, ttl: Length | None = None
) -> StagePlan:
    keys = _keys(by, "by")
    _check_names(df, "the input of distinct()")
    for key in keys:
        field(df, key, "key column")
    if within is not None and time is None:
        raise QueryError("within needs the event time: pass time='column'")
    if within is not None and ttl is not None:
        raise QueryError("give either within or ttl, not both")
    columns, ties = _whole_rows(df, time)
    given = within if ttl is None else ttl
    span = UNBOUNDED if given is None else microseconds(given, "within" if ttl is None else "ttl", positive=True)
    described = {"by": _described(df, keys), "time": time, "within": None if within is None else span, **_lifetime(ttl)}
    operator = Distinct(columns=columns, ties=ties, within=span, described=described)
    late = (lateness_of(df, time, lateness, "lateness", "the input of distinct()"),)
    arriving = ttl is not None and time is None
    project = _row_project(keys, time, timed_only=True)
    return _plan(operator, late, [df], [time], project, df.schema.fields, on_arrival=arriving)


def stateful_stage(df: DataFrame, by: Keys | None, time: str | None, operator: Any) -> StagePlan:
    keys = hashable_columns(df) if by is None else _keys(by, "by")
    if not keys:
        raise QueryError(
            "the input of stateful() has no column that can be hashed, so by=None has nothing to spread by"
        )
    _check_names(df, "the input of stateful()")
    if not isinstance(operator, GroupOperator):
        raise QueryError(
            f"operator {type(operator).__name__} lacks one of schema, process, extract, install, info; "
            "see fluxen.operators.stateful.GroupOperator"
        )
    columns, ties = _whole_rows(df, time)
    schema = operator.schema
    if isinstance(schema, str):
        schema = st.StructType.fromDDL(schema) if hasattr(st.StructType, "fromDDL") else _parse_ddl(df, schema)
    named = None if by is None else _described(df, keys)
    described = {"by": named, "time": time, "code": type(operator).__qualname__}
    runner = Stateful(
        operator=operator, columns=columns, ties=ties, results=arrow_schema(schema.fields), described=described
    )
    late = (lateness_of(df, time, None, "lateness", "the input of stateful()"),)
    return _plan(runner, late, [df], [time], _row_project(keys, time, timed_only=False), schema.fields)


def _parse_ddl(df: DataFrame, ddl: str) -> st.StructType:
    return df.sparkSession.createDataFrame([], ddl).schema


def run_static(inputs: Sequence[DataFrame], plan: StagePlan) -> DataFrame:
    """The stage over all rows of static inputs at once, without a checkpoint."""
    from fluxen.spark.static import run_static as run

    return run(inputs, plan)
