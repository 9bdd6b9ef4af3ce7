"""The first rows of each key in some order; the operator is `fluxen.operators.top`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as st

from fluxen.arrays import UNBOUNDED
from fluxen.control.stage import Stage
from fluxen.durations import microseconds
from fluxen.errors import QueryError
from fluxen.operators.top import CLOSES, Ordering, Top
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
from fluxen.spark.plan.closing import closing_field, closing_hashes, closing_time
from fluxen.spark.plan.layout import Travelling, field, key_hashes, lay_out
from fluxen.spark.plan.sources import lateness_of
from fluxen.spark.plan.types import collated

Order = str | Sequence[str | tuple[str, str]]
"""Columns, each by itself (ascending) or with its direction, as in [("price", "desc"), ("ts", "asc")]."""
_UNORDERED = (st.MapType, st.StructType, st.ArrayType, st.NullType)


@dataclass(frozen=True, kw_only=True)
class TopWords:
    """Which rows come first, as the user or a compiler says it; `fluxen.top` explains the words."""

    by: Keys
    n: int
    order: Order
    time: str | None = None
    closes: str | None = None
    """one of the columns in `by`, a timestamp or a struct with a timestamp `end`: when the watermark of `time` has
    passed that moment, which must not lie before the row's time, the group is closed and goes; of a null it never is"""
    lateness: Length | None = None
    ttl: Length | None = None
    rank: str = "rank"
    """not a user's word: the name of the column with the rank"""
    compiled: bool = False
    """the words come from a plan that Spark has analysed: a watermark that nothing goes by is nobody's slip"""


def top_stage(given: Given, words: TopWords) -> StagePlan:
    df, keys, time, closes = given.df, listed(words.by, "by"), words.time, words.closes
    check_names(df, "the input of top()")
    for key in keys:
        field(df, key, "key column")
    order = _order(df, words.order)
    _check(words, keys)
    if time is not None:
        time_type(df, time)
    identity = {
        "by": described(df, keys),
        "time": time,
        "n": words.n,
        "order": [str(one) for one in order],
        **({} if closes is None else {"closes": closes}),
        **lifetime(words.ttl),
    }
    decided = {*keys, *(one.column for one in order)}
    operator = Top(
        columns=tuple(df.columns),
        keys=tuple(keys),
        order=order,
        ties=tuple(f.name for f in df.schema.fields if f.name not in decided and not _unordered(f.dataType)),
        n=words.n,
        described=identity,
        rank=words.rank,
        closes=None if closes is None else closing_field(df, closes),
        clock=time,
        ttl=identity.get("ttl", UNBOUNDED),
    )
    late = microseconds(words.lateness or "0 seconds", "lateness")
    if not words.compiled or (time is not None and given.plan is None):
        late = lateness_of(df, time, words.lateness, "lateness", "the input of top()")
    stage = Stage(
        operator=operator,
        lateness=(late,),
        on_arrival=words.ttl is not None and time is None,
    )
    hashes = key_hashes(df, keys, nulls=True) if closes is None else closing_hashes(df, keys, closes)
    payload = [*df.columns, *([] if closes is None else [CLOSES])]
    rows = Travelling(hashes=hashes, time=time_or_first(df, time), payload=payload)

    def timed(frame: DataFrame) -> DataFrame:
        return frame if closes is None else frame.withColumn(CLOSES, closing_time(df, closes))

    (part,), wire = lay_out([(timed(df), rows)])
    fields = [*df.schema.fields, st.StructField(words.rank, st.IntegerType())]
    return make_plan(stage, [given], [time], [lambda frame: part(timed(frame))], wire, fields)


def _order(df: DataFrame, order: Order) -> tuple[Ordering, ...]:
    given = [order] if isinstance(order, str) else list(order)
    if not given:
        raise QueryError("order needs at least one column, as in order=[('price', 'desc')]")
    made = []
    for one in given:
        column, direction = (one, "asc") if isinstance(one, str) else one
        kind = field(df, column, "column of order").dataType
        if _unordered(kind) or collated(kind):
            raise QueryError(
                f"order: column {column!r} is {kind.simpleString()}, whose values have no order here; take others"
            )
        try:
            made.append(Ordering.of(column, direction))
        except ValueError as error:
            raise QueryError(f"order: the direction of {column!r} {error}; got {direction!r}") from error
    twice = [one.column for one in made if [other.column for other in made].count(one.column) > 1]
    if twice:
        raise QueryError(f"order names {twice[0]!r} twice; name it once")
    return tuple(made)


def _unordered(kind: st.DataType) -> bool:
    return isinstance(kind, _UNORDERED) or kind.typeName() == "variant"


def _check(words: TopWords, keys: Sequence[str]) -> None:
    n: Any = words.n
    if not isinstance(n, int) or isinstance(n, bool) or n <= 0:
        raise QueryError(f"n must be a whole number of rows above 0, got {n!r}")
    if words.closes is not None:
        if words.time is None or words.closes not in keys:
            raise QueryError(f"closes={words.closes!r} must be one of the columns in by, and needs time='column'")
        if words.ttl is not None:
            raise QueryError("closes says when groups go; leave ttl out")
