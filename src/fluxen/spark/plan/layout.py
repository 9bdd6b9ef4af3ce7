"""The layout rows travel to sites in, made in the JVM: key hashes, event time and payload slots.

The Python half is `fluxen.site.wire`; which site a row goes to is decided in `fluxen.spark.route`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.arrays import NO_TIME
from fluxen.errors import QueryError
from fluxen.site.wire import IN, Wire, assign_slots
from fluxen.spark.plan.types import collated
from fluxen.state.segment import H2, H, T

_SECOND = -7046029254386353131
"""Prefix of the second hash: any constant serves, changing it invalidates checkpoints."""
_FIXED = (st.ByteType, st.ShortType, st.IntegerType, st.LongType, st.DateType, st.TimestampType, st.TimestampNTZType)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def field(df: DataFrame, name: str, what: str) -> st.StructField:
    """A column's field, or an error that lists what there is."""
    for found in df.schema.fields:
        if found.name == name:
            return found
    raise QueryError(f"{what} {name!r} is not a column; there are: {', '.join(df.columns)}")


def exact(types: Sequence[st.DataType]) -> bool:
    """Whether xxhash64 maps different keys to different hashes: it is a bijection on one value of at most 64 bits."""
    return len(types) == 1 and isinstance(types[0], (*_FIXED, st.BooleanType))


def hashable(column: Column, kind: st.DataType) -> list[Column]:
    """What to hash of a column so that different values have different hashes.

    Spark's hash skips nulls and runs through nested values without marking where they end, so parts of nested values
    come with whether they are null, and arrays with their length.
    """
    if isinstance(kind, (st.FloatType, st.DoubleType)):
        return [column + F.lit(0.0)]  # -0.0 and 0.0 are one key
    if isinstance(kind, st.StructType):
        inner = [(column.getField(part.name), part.dataType) for part in kind.fields]
        return [hashed for value, part in inner for hashed in (F.isnull(value), *hashable(value, part))]
    if isinstance(kind, st.ArrayType):
        element = kind.elementType
        return [F.size(column), F.transform(column, lambda x: F.struct(F.isnull(x), *hashable(x, element)))]
    return [column]


def one_zero(column: Column, kind: st.DataType) -> Column:
    """The column with 0.0 for -0.0, as Spark has the keys of groups: the two are one key."""
    if not _has_floats(kind):
        return column
    if isinstance(kind, st.ArrayType):
        element = kind.elementType
        return F.transform(column, lambda x: one_zero(x, element))
    if isinstance(kind, st.StructType):
        parts = [one_zero(column.getField(part.name), part.dataType).alias(part.name) for part in kind.fields]
        return F.when(column.isNotNull(), F.struct(*parts))
    return column + F.lit(0.0).cast(kind)


def _has_floats(kind: st.DataType) -> bool:
    if isinstance(kind, st.ArrayType):
        return _has_floats(kind.elementType)
    if isinstance(kind, st.StructType):
        return any(_has_floats(part.dataType) for part in kind.fields)
    return isinstance(kind, (st.FloatType, st.DoubleType))


def _unequal(kind: st.DataType) -> bool:
    """Whether values of this type, or parts of them, cannot be compared for equality by what they consist of."""
    if isinstance(kind, st.ArrayType):
        return _unequal(kind.elementType)
    if isinstance(kind, st.StructType):
        return any(_unequal(inner.dataType) for inner in kind.fields)
    return kind.typeName() in ("map", "variant") or collated(kind)  # PySpark 3.5 has no VariantType to name


def key_hashes(df: DataFrame, keys: Sequence[str], *, nulls: bool, more: Sequence[Column] = ()) -> list[Column]:
    """`_h`, and `_h2` unless one hash determines the key.

    Spark's hash skips nulls, so with `nulls` each column is preceded by whether it is null. `more` is hashed with them.
    """
    parts: list[Column] = []
    types = []
    for name in keys:
        kind = field(df, name, "key column").dataType
        if _unequal(kind):
            raise QueryError(
                f"key column {name!r} is {kind.simpleString()}: maps and variants have no equality, use their parts; "
                "of strings with a collation take lower() or the like"
            )
        types.append(kind)
        column = F.col(quoted(name))
        if nulls:
            parts.append(F.isnull(column))
        parts += hashable(column, kind)
    parts += more
    hashes = [F.xxhash64(*parts).alias(H)]
    if more or not exact(types):
        hashes.append(F.xxhash64(F.lit(_SECOND), *parts).alias(H2))
    return hashes


def hashable_columns(df: DataFrame) -> list[str]:
    """Columns that a hash may be made of."""
    return [found.name for found in df.schema.fields if not _unequal(found.dataType)]


def event_time(df: DataFrame, time: str | None) -> Column:
    """`_t`: microseconds since 1970, null where the column is null."""
    if time is None:
        return F.lit(NO_TIME).cast("long").alias(T)
    kind = field(df, time, "event-time column").dataType
    if isinstance(kind, (st.TimestampType, st.TimestampNTZType)):
        return micros(quoted(time), kind).alias(T)
    raise QueryError(
        f"event-time column {time!r} must be a timestamp, it is {kind.simpleString()}; convert it with to_timestamp()"
    )


def micros(sql: str, kind: st.DataType) -> Column:
    """A timestamp of either kind as microseconds since 1970."""
    if isinstance(kind, st.TimestampType):
        return F.expr(f"unix_micros({sql})")
    # functions of timestamps would take it for one in the session's time zone, whose clock may skip it
    seconds = f"cast(cast({sql} - TIMESTAMP_NTZ'1970-01-01 00:00:00' AS INTERVAL SECOND) AS decimal(20, 6))"
    return F.expr(f"cast({seconds} * 1000000 AS bigint)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Travelling:
    """What of one input's rows travels."""

    hashes: Sequence[Column]
    time: Column
    payload: Sequence[str]
    where: Column | None = None
    """which rows travel at all; None for every row"""
    keyed: Column | None = None
    """which of them have a key, where others come along for their event time"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One input's rows in wire layout. The columns are built once: each call into the JVM costs every batch."""

    columns: tuple[Column, ...]
    where: Column | None

    def __call__(self, rows: DataFrame) -> DataFrame:
        return (rows if self.where is None else rows.where(self.where)).select(*self.columns)


def lay_out(inputs: Sequence[tuple[DataFrame, Travelling]]) -> tuple[list[Part], Wire]:
    """The wire layout that all inputs share, and how each gets into it; of a DataFrame only the schema counts."""
    kinds: dict[str, st.DataType] = {}
    typed = []
    for df, rows in inputs:
        types = [field(df, name, "column").dataType for name in rows.payload]
        kinds.update({kind.simpleString(): kind for kind in types})
        typed.append([(name, kind.simpleString()) for name, kind in zip(rows.payload, types)])
    placed, slots = assign_slots(typed)
    parts = []
    for number, ((_, rows), pairs) in enumerate(zip(inputs, placed)):
        filled = {slot: F.col(quoted(name)) for name, slot in pairs}
        columns = [filled.get(slot, F.lit(None)).cast(kinds[slots[slot]]).alias(slot) for slot in slots]
        mark = F.lit(number).cast("int")
        if rows.keyed is not None:
            mark = F.when(rows.keyed, mark).otherwise(F.lit(number + len(inputs)).cast("int"))
        parts.append(Part(columns=(mark.alias(IN), *rows.hashes, rows.time, *columns), where=rows.where))
    exact = len(inputs[0][1].hashes) == 1
    return parts, Wire(inputs=tuple(tuple(pairs) for pairs in placed), exact=exact)
