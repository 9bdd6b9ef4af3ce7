"""Aggregates: over the last rows, over groups that end, or running."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.arrays import UNBOUNDED
from fluxen.control.stage import Stage
from fluxen.durations import microseconds
from fluxen.errors import QueryError
from fluxen.operators.aggregate.functions import Aggregate
from fluxen.operators.aggregate.last import LastRows, check_last
from fluxen.operators.aggregate.measures import Measure
from fluxen.operators.aggregate.running import Running
from fluxen.operators.aggregate.sessions import NAME, Sessions
from fluxen.operators.aggregate.windowed import Emit, W, Windowed, Windows
from fluxen.operators.base import Operator
from fluxen.site.wire import Hops, Wire
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
from fluxen.spark.plan.closing import (
    closing_field,
    closing_hashes,
    closing_time,
    hops_of,
    with_ends,
    with_session_ends,
)
from fluxen.spark.plan.layout import Travelling, field, key_hashes, lay_out, quoted
from fluxen.spark.plan.partials import measures, partials, result_spark_type
from fluxen.spark.plan.sources import lateness_of


@dataclass(frozen=True, kw_only=True)
class AggregateWords:
    """How to aggregate, as the user or a compiler says it; `fluxen.aggregate` explains the words."""

    by: Keys
    time: str | None = None
    last: int | None = None
    window: Length | None = None
    slide: Length | None = None
    session: Length | None = None
    emit: Emit = "append"
    closes: str | None = None
    """not a user's word: one of the columns in `by`, a timestamp or a struct with a timestamp `end`. A group is closed
    when the watermark of `time` reaches that moment, which must not lie before the row's time; of a null, at the end of
    the input"""
    lateness: Length | None = None
    ttl: Length | None = None
    hops: tuple[int, int] | None = None
    """not a user's word: `closes` is the last of so many windows, which start so many microseconds apart"""
    compiled: bool = False
    """the words come from a plan that Spark has analysed: a watermark that nothing goes by is nobody's slip"""


@dataclass(frozen=True, kw_only=True)
class _Checked:
    """What every form needs to know, once it is checked."""

    given: Given
    words: AggregateWords
    keys: list[str]
    late: int
    windows: Windows | None
    gap: int | None
    """how long a session goes on without a row; None where there are no sessions"""
    measured: tuple[Measure, ...]
    identity: dict[str, Any]

    @property
    def df(self) -> DataFrame:
        return self.given.df

    @property
    def time(self) -> str | None:
        return self.words.time

    @property
    def ttl(self) -> int:
        life: int = self.identity.get("ttl", UNBOUNDED)
        return life

    def stage(self, operator: Operator) -> Stage:
        arriving = "ttl" in self.identity and self.time is None
        return Stage(operator=operator, lateness=(self.late,), on_arrival=arriving)

    @property
    def key_fields(self) -> list[st.StructField]:
        return [st.StructField(key, field(self.df, key, "key column").dataType) for key in self.keys]

    @property
    def value_fields(self) -> list[st.StructField]:
        return [st.StructField(measure.name, result_spark_type(self.df, measure)) for measure in self.measured]


def aggregate_stage(given: Given, words: AggregateWords, aggregates: Mapping[str, Aggregate]) -> StagePlan:
    df, keys, time = given.df, listed(words.by, "by"), words.time
    check_names(df, "the input of aggregate()")
    measured = measures(df, aggregates)
    late = microseconds(words.lateness or "0 seconds", "lateness")
    if not words.compiled or (time is not None and given.plan is None):
        late = lateness_of(df, time, words.lateness, "lateness", "the input of aggregate()")
    _check_form(words)
    windowed = words.window is not None or words.session is not None
    if time is None and (windowed or any(m.kind in ("first", "last") for m in measured)):
        raise QueryError("windows, sessions and first/last need the event time: pass time='column'")
    if time is not None:
        time_type(df, time)
    windows = _windows(df, words)
    gap = None if words.session is None else microseconds(words.session, "session", positive=True)
    identity = {
        "by": described(df, keys),
        "time": time,
        "aggregates": [f"{name}={aggregate}" for name, aggregate in aggregates.items()],
        "last": words.last,
        "window": None if windows is None else windows.size,
        **({} if windows is None or windows.slide == windows.size else {"slide": windows.slide}),
        **({} if gap is None else {"session": gap}),
        **({} if words.closes is None else {"closes": words.closes}),
        **({} if words.emit == "append" else {"emit": words.emit}),
        **lifetime(words.ttl),
    }
    checked = _Checked(
        given=given, words=words, keys=keys, late=late, windows=windows, gap=gap, measured=measured, identity=identity
    )
    if words.last is not None:
        return _last_stage(checked, words.last)
    built = _combining_stage(checked)
    if words.emit == "update" or built.stage.operator.emits == "update":
        return built
    return replace(built, updating=lambda: aggregate_stage(given, replace(words, emit="update"), aggregates))


def _check_form(words: AggregateWords) -> None:
    if words.last is not None and words.window is not None:
        raise QueryError("give either last or window, not both")
    if words.slide is not None and words.window is None:
        raise QueryError("slide says how far apart windows start; give window as well")
    if words.ttl is not None and words.window is not None:
        raise QueryError("ttl is for state without a window; windows go when they are closed, so leave it out")
    if words.session is not None:
        others = {"last": words.last, "window": words.window, "slide": words.slide, "ttl": words.ttl}
        for name, value in {**others, "closes": words.closes}.items():
            if value is not None:
                raise QueryError(f"session says when groups end, so it does not go with {name}={value!r}; give one")
        if words.emit == "update":
            raise QueryError(
                "sessions cannot be updated: one that grows takes in others that were shown before; leave emit out"
            )
    if words.emit not in ("append", "update"):
        raise QueryError(f"emit must be 'append' or 'update', got {words.emit!r}")
    if words.emit != "append" and words.window is None and words.closes is None:
        raise QueryError("emit is for windows: running values are always updates, the last rows never; leave it out")
    if words.closes is not None:
        if words.time is None or words.closes not in listed(words.by, "by"):
            raise QueryError(f"closes={words.closes!r} must be one of the columns in by, and needs time='column'")
        if words.last is not None or words.window is not None or words.ttl is not None:
            raise QueryError("closes says when groups end; leave last, window and ttl out")


def _windows(df: DataFrame, words: AggregateWords) -> Windows | None:
    if words.window is None:
        return None
    assert words.time is not None
    size = microseconds(words.window, "window", positive=True)
    slide = size if words.slide is None else microseconds(words.slide, "slide", positive=True)
    if slide > size:
        raise QueryError(
            f"slide={words.slide!r} is longer than window={words.window!r}: rows in between would be in no window; "
            "give a slide of at most the window's length"
        )
    return Windows(size=size, slide=slide, time_type=time_type(df, words.time))


def _last_stage(words: _Checked, last: Any) -> StagePlan:
    if not isinstance(last, int) or isinstance(last, bool) or last <= 0:
        raise QueryError(f"last must be a whole number of rows above 0, got {last!r}")
    check_last(words.measured)
    df, keys, time = words.df, words.keys, words.time
    operator = LastRows(
        keys=tuple(keys),
        measures=words.measured,
        n=last,
        time=time if time not in keys else None,
        time_type=None if time is None else time_type(df, time),
        described=words.identity,
        clock=time,
        ttl=words.ttl,
    )
    timed = [field(df, operator.time, "event time")] if operator.time else []
    stored = list(dict.fromkeys([*keys, *operator.values]))
    rows = Travelling(hashes=key_hashes(df, keys, nulls=True), time=time_or_first(df, time), payload=stored)
    parts, wire = lay_out([(df, rows)])
    fields = [*words.key_fields, *timed, *words.value_fields]
    return make_plan(words.stage(operator), [words.given], [time], parts, wire, fields)


def _combining_stage(words: _Checked) -> StagePlan:
    """Running values and groups that end: Spark combines each task's rows first."""
    df, keys, time, measured, closes = words.df, words.keys, words.time, words.measured, words.words.closes
    ending = words.windows is not None or words.gap is not None or closes is not None
    fields = words.key_fields
    if words.windows is not None or words.gap is not None:
        stamp = field(df, time or "", "event time").dataType
        bounds = st.StructType([st.StructField("start", stamp), st.StructField("end", stamp)])
        fields.append(st.StructField("window" if words.gap is None else NAME, bounds))
    hashes = key_hashes(df, keys, nulls=True) if closes is None else closing_hashes(df, keys, closes)
    values = list(dict.fromkeys([*keys, *(column for m in measured for column in m.columns)]))
    columns = [*hashes, time_or_first(df, time), *(F.col(quoted(name)) for name in values)]
    if closes is not None:
        columns.append(closing_time(df, closes))
    windows, gap = words.windows, words.gap

    def part(stream: DataFrame) -> DataFrame:
        rows = stream.select(*columns)
        if gap is not None:
            return with_session_ends(rows, gap)
        return rows if windows is None else with_ends(rows, windows)

    hops = hops_of(windows)
    if words.words.hops is not None:
        count, slide = words.words.hops
        hops = Hops(count=count, slide=slide, end=W, window=closes)
    combining = functools.partial(partials, group=[*keys, W] if ending else keys, measured=measured, hops=hops)
    wire = Wire(inputs=(), exact=True)  # the partial aggregates have their own
    fields += words.value_fields
    operator = _operator(words)
    return make_plan(words.stage(operator), [words.given], [time], [part], wire, fields, combining)


def _operator(words: _Checked) -> Running | Windowed | Sessions:
    keys, measured, closes = tuple(words.keys), words.measured, words.words.closes
    if words.gap is not None:
        assert words.time is not None
        return Sessions(
            keys=keys,
            measures=measured,
            described=words.identity,
            gap=words.gap,
            time_type=time_type(words.df, words.time),
            clock=words.time,
        )
    if words.windows is None and closes is None:
        return Running(keys=keys, measures=measured, described=words.identity, clock=words.time, ttl=words.ttl)
    return Windowed(
        keys=keys,
        measures=measured,
        described=words.identity,
        windows=words.windows,
        closes=None if closes is None else closing_field(words.df, closes),
        emit=words.words.emit,
        clock=words.time,
    )


def named_results(
    given: Mapping[Any, Aggregate] | None, named: Mapping[str, Any], words: Mapping[str, Any]
) -> dict[str, Aggregate]:
    """The aggregates by the names of their results."""
    for name, value in {**words, "aggregates": given}.items():
        if isinstance(value, Aggregate):
            raise QueryError(
                f"{name}={value} would be a keyword of aggregate(); for a result of that name write "
                f"aggregates={{{name!r}: ...}}"
            )
    if given is not None and not isinstance(given, Mapping):
        raise QueryError(f"aggregates must be a dict such as {{'n': fx.count()}}, got {type(given).__name__}")
    strange = [name for name in given or {} if not isinstance(name, str)]
    if strange:
        raise QueryError(f"aggregates: a result's name must be a string, got {strange[0]!r}")
    if "idle" in named and not isinstance(named["idle"], Aggregate):
        raise QueryError("idle is for join(): a stage with one input has no other whose watermark it could follow")
    twice = sorted(set(given or {}) & set(named))
    if twice:
        raise QueryError(f"result {twice[0]!r} is given as a keyword and in aggregates; give it once")
    return {**(given or {}), **named}
