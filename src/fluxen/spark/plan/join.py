"""Joins: the user's words checked and turned into an operator, a layout and a schema."""

from __future__ import annotations

import functools
import operator as symbols
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.arrays import UNBOUNDED, Json
from fluxen.control.stage import Stage
from fluxen.durations import microseconds
from fluxen.errors import QueryError
from fluxen.operators.base import Operator
from fluxen.operators.join.carried import Carried
from fluxen.operators.join.matching import Matching
from fluxen.operators.join.mway import Join, OutputColumn, pair_bounds
from fluxen.operators.join.outer import HOWS, OuterJoin, OuterShape, closing_bounds, preserved
from fluxen.operators.join.probe import Bounds
from fluxen.operators.join.tree import TreeJoin
from fluxen.spark.catalyst import DELAY
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
from fluxen.spark.plan.layout import Travelling, event_time, field, hashable_columns, key_hashes, lay_out, quoted
from fluxen.spark.plan.sources import lateness_of, origin
from fluxen.spark.plan.types import collated
from fluxen.state.segment import H

Between = Mapping[tuple[str, str], tuple[Length | None, Length | None]]
MAX_INPUTS = 8


@dataclass(frozen=True, kw_only=True)
class JoinWords:
    """What `fx.join` was told beside its inputs."""

    on: Keys | Mapping[str, Keys]
    time: str | Mapping[str, str] | None
    within: Length | None
    between: Between | None
    lateness: Length | Mapping[str, Length] | None
    idle: Length | Mapping[str, Length] | None
    plan: str
    ttl: Length | None
    how: str = "inner"
    matching: Matching | None = None
    """beside key and time, what makes two rows partners; for every kind but the inner one, whose results can be
    filtered afterwards"""
    compiled: bool = False
    """the words come from a plan that Spark has analysed: a watermark that nothing goes by is nobody's slip"""


@dataclass(frozen=True, kw_only=True)
class _Side:
    """One input: its rows, its key columns and its event time."""

    name: str
    df: DataFrame
    key: list[str]
    time: str | None
    given: Given

    @property
    def fed(self) -> bool:
        """Whether its rows are another stage's results."""
        return self.given.plan is not None


def join_stage(inputs: Mapping[str, Given], words: JoinWords) -> StagePlan:
    _check_words(list(inputs), words)
    _check_kind(list(inputs), words)
    sides = [
        _Side(
            name=name,
            df=given.df,
            key=listed(_each(words.on, name, "on"), "on"),
            time=None if words.time is None else str(_each(words.time, name, "time")),
            given=given,
        )
        for name, given in inputs.items()
    ]
    _check_key_types(sides)
    low = pair_bounds(list(inputs), words.within, words.between, words.ttl)
    if words.time is None and (words.within is not None or words.between):
        raise QueryError("within and between need the event time: pass time='column'")
    output, fields = _output(sides, words.how)
    identity = {
        "inputs": list(inputs),
        "on": [described(side.df, side.key) for side in sides],
        "time": [side.time for side in sides],
        "bounds": [list(row) for row in low],
        "columns": [described(side.df, side.df.columns) for side in sides],
        **lifetime(words.ttl),
    }
    stage = Stage(
        operator=_operator(sides, words, low, output, identity),
        lateness=tuple(_lateness(side, words) for side in sides),
        idle=_idle(words.idle, list(inputs), words.time),
        on_arrival=words.ttl is not None and words.time is None,
    )
    parts, wire = lay_out([(side.df, _travelling(number, side, words)) for number, side in enumerate(sides)])
    return make_plan(stage, list(inputs.values()), [side.time for side in sides], parts, wire, fields)


def _check_words(names: list[str], words: JoinWords) -> None:
    if words.plan not in ("mjoin", "tree"):
        raise QueryError(f"plan must be 'mjoin' or 'tree', got {words.plan!r}")
    if not 2 <= len(names) <= MAX_INPUTS:
        raise QueryError(f"join() takes 2 to {MAX_INPUTS} inputs, got {len(names)}")
    for what, given in (("on", words.on), ("time", words.time), ("lateness", words.lateness)):
        strangers = sorted(set(given) - set(names)) if isinstance(given, Mapping) else []
        if strangers:
            raise QueryError(f"{what} names input {strangers[0]!r}; there are: {', '.join(names)}")


def _check_kind(names: list[str], words: JoinWords) -> None:
    """What only some kinds of joins can do."""
    how = words.how
    if how == "inner":
        if words.matching is not None:
            raise QueryError("matching is for other kinds than how='inner'; filter the results with where()")
        return
    if how not in HOWS:
        raise QueryError(f"how must be one of {', '.join(map(repr, ('inner', *HOWS)))}, got {how!r}")
    if len(names) != 2:
        raise QueryError(f"how={how!r} is for two inputs, got {len(names)}: {', '.join(names)}; join them in steps")
    if words.plan != "mjoin":
        raise QueryError(f"plan={words.plan!r} is for how='inner': two inputs have no order of joins to choose")
    if any(preserved(how)) and words.time is None:
        raise QueryError(
            f"how={how!r} gives rows without a partner once none can come, which event times tell: pass time='column' "
            "and within='1 hour', or between"
        )


def _operator(
    sides: Sequence[_Side], words: JoinWords, low: Bounds, output: Sequence[OutputColumn], identity: Json
) -> Operator:
    names = tuple(side.name for side in sides)
    if words.how == "inner":
        kind = TreeJoin if words.plan == "tree" else Join
        return kind(
            names=names, low=low, output=tuple(output), described=identity, carried=_carried(sides, words, output)
        )
    if words.matching is not None:
        _check_matching(sides, words.matching)
    first, second = sides
    equal = any((a, b) == (first.time, second.time) for a, b in zip(first.key, second.key))
    clocks = [None if side.time is None else (side.time, time_type(side.df, side.time)) for side in sides]
    how = next(known for known in HOWS if known == words.how)
    return OuterJoin(
        how=how,
        names=(first.name, second.name),
        low=closing_bounds(how, names, low, equal_times=equal),
        output=tuple(output),
        shape=OuterShape(keys=(tuple(first.key), tuple(second.key)), clocks=(clocks[0], clocks[1])),
        matching=words.matching,
        described=identity,
        carried=_carried(sides, words, output),
    )


def _carried(sides: Sequence[_Side], words: JoinWords, output: Sequence[OutputColumn]) -> tuple[Carried, ...]:
    """The results' further event times: those that a stage before says are near the one that this stage goes by."""
    found = []
    for out in output:
        side = sides[out.side]
        alone = words.how != "inner" and preserved(words.how)[out.side]
        if side.given.plan is None or side.time is None or out.column in (None, side.time) or alone:
            continue
        known = side.given.plan.stage.operator.distances()
        own, other = origin(side.df, side.time), origin(side.df, str(out.column)) if known else None
        if (own, other) in known:
            later, earlier = known[str(own), str(other)], known.get((str(other), str(own)), -UNBOUNDED)
            found.append(Carried(name=out.name, side=out.side, later=later, earlier=earlier))
    return tuple(found)


def _check_matching(sides: Sequence[_Side], matching: Matching) -> None:
    for of in matching.operands():
        kind = field(sides[of.side].df, of.column, f"matching: of input {sides[of.side].name!r},").dataType
        if isinstance(kind, (st.StructType, st.ArrayType, st.MapType)) or collated(kind):
            raise QueryError(
                f"matching: column {of.column!r} of input {sides[of.side].name!r} is {kind.simpleString()}, which "
                "cannot be compared at the sites; use its parts, of strings with a collation lower() or the like"
            )


def _travelling(number: int, side: _Side, words: JoinWords) -> Travelling:
    check_names(side.df, f"input {side.name!r}")
    hashes, moment = key_hashes(side.df, side.key, nulls=False), event_time(side.df, side.time)
    stored = [name for name in side.df.columns if _needed(name, number, side, words)]
    present = functools.reduce(symbols.and_, (F.col(quoted(name)).isNotNull() for name in side.key))
    if words.how != "inner" and preserved(words.how)[number]:
        # a row without a key meets nobody, at whatever site, but comes out
        anywhere = F.xxhash64(*map(quoted, hashable_columns(side.df)))
        spread = F.when(present, hashes[0]).otherwise(anywhere).alias(H)
        return Travelling(hashes=[spread, *hashes[1:]], time=time_or_first(side.df, side.time), payload=stored)
    if side.time is None:
        return Travelling(hashes=hashes, time=moment, payload=stored, where=present)
    # a row without a key goes to any site: there its time counts and nothing else
    spread = F.when(present, hashes[0]).otherwise(F.xxhash64(quoted(side.time))).alias(H)
    timed = F.col(quoted(side.time)).isNotNull()
    return Travelling(hashes=[spread, *hashes[1:]], time=moment, payload=stored, where=timed, keyed=present)


def _needed(column: str, number: int, side: _Side, words: JoinWords) -> bool:
    """Whether a column travels as such: the event time always does, by itself."""
    if column in side.key and (number == 0 or (words.how != "inner" and preserved(words.how)[number])):
        return True
    if column == side.time:
        return False
    if words.matching is not None and (number, column) in {(of.side, of.column) for of in words.matching.operands()}:
        return True
    return column not in side.key and (number == 0 or words.how not in ("semi", "anti"))


def _lateness(side: _Side, words: JoinWords) -> int:
    """An input's lateness; a mapping may leave out those with withWatermark()."""
    given = words.lateness
    if words.compiled and (side.time is None or side.fed):
        return 0
    if words.compiled and isinstance(given, Mapping) and side.name in given:
        return microseconds(given[side.name], f"lateness of {side.name!r}")
    marked = any(DELAY in found.metadata for found in side.df.schema.fields)
    left_out = isinstance(given, Mapping) and side.name not in given and marked
    stated = None if left_out else _each(given, side.name, "lateness")
    return lateness_of(side.df, side.time, stated, f"lateness of {side.name!r}", f"input {side.name!r}")


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


def _check_key_types(sides: Sequence[_Side]) -> None:
    reference = sides[0]
    first = [field(reference.df, key, f"key of input {reference.name!r}:").dataType for key in reference.key]
    for side in sides:
        if len(side.key) != len(first):
            raise QueryError(
                f"input {side.name!r} joins on {len(side.key)} columns, {reference.name!r} on {len(first)}; give one "
                "for one"
            )
        for column, expected, other in zip(side.key, first, reference.key):
            kind = field(side.df, column, f"key of input {side.name!r}:").dataType
            if kind.simpleString() != expected.simpleString():
                raise QueryError(
                    f"key {column!r} of input {side.name!r} is {kind.simpleString()}, but {other!r} of "
                    f"{reference.name!r} is {expected.simpleString()}; cast one of them"
                )


def _output(sides: Sequence[_Side], how: str) -> tuple[list[OutputColumn], list[st.StructField]]:
    first, second, *_ = sides
    either = how in ("right", "full")  # rows of either side may be there alone, and have a key
    output = [
        OutputColumn(
            name=key,
            side=0,
            column=key,
            key_time=key == first.time and (other == second.time or not either),
            instead=other if either else None,
        )
        for key, other in zip(first.key, second.key)
    ]
    fields = [st.StructField(key, field(first.df, key, "key").dataType) for key in first.key]
    for number, side in enumerate(sides[:1] if how in ("semi", "anti") else sides):
        for column in side.df.schema.fields:
            if column.name in side.key:
                continue
            out = f"{side.name}_{column.name}"
            timed = column.name == side.time
            kind = time_type(side.df, column.name) if timed else None
            output.append(OutputColumn(name=out, side=number, column=None if timed else column.name, time_type=kind))
            fields.append(st.StructField(out, column.dataType))
    return output, fields
