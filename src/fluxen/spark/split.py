"""Rows to sites, in the JVM: key hash, partition group and site as Spark SQL expressions.

The Python half of the same functions is `fluxen.state.routing`; the layout rows travel in is `fluxen.operators.wire`.
The routing table enters a query as a literal array, which Spark passes to generated code by reference: a new table is
new data, not new code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.errors import QueryError
from fluxen.operators.wire import IN, WEIGHT, Wire, assign_slots
from fluxen.state.epoch import StageState
from fluxen.state.lookup import TAG, CollisionFree
from fluxen.state.routing import Routing
from fluxen.state.segment import H2, H, T
from fluxen.typing import NO_TIME, Groups, Ints

SITE = "_site"
_SECOND = -7046029254386353131
"""Prefix of the second hash: any constant serves, changing it invalidates checkpoints."""
_WITHIN_PARTITION = 2**33 - 1
"""Bits of `monotonically_increasing_id` that count the rows of a partition."""
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


def _hashable(column: Column, kind: st.DataType) -> list[Column]:
    """What to hash of a column so that different values have different hashes.

    Spark's hash skips nulls and runs through nested values without marking where they end, so parts of nested values
    come with whether they are null, and arrays with their length.
    """
    if isinstance(kind, (st.FloatType, st.DoubleType)):
        return [column + F.lit(0.0)]  # -0.0 and 0.0 are one key
    if isinstance(kind, st.StructType):
        inner = [(column.getField(part.name), part.dataType) for part in kind.fields]
        return [hashed for value, part in inner for hashed in (F.isnull(value), *_hashable(value, part))]
    if isinstance(kind, st.ArrayType):
        element = kind.elementType
        return [F.size(column), F.transform(column, lambda x: F.struct(F.isnull(x), *_hashable(x, element)))]
    return [column]


def _unequal(kind: st.DataType) -> bool:
    """Whether values of this type, or parts of them, cannot be compared for equality."""
    if isinstance(kind, st.ArrayType):
        return _unequal(kind.elementType)
    if isinstance(kind, st.StructType):
        return any(_unequal(inner.dataType) for inner in kind.fields)
    return kind.typeName() in ("map", "variant")  # PySpark 3.5 has no VariantType to name


def key_hashes(df: DataFrame, keys: Sequence[str], *, nulls: bool) -> list[Column]:
    """`_h`, and `_h2` unless one hash determines the key.

    Spark's hash skips nulls, so with `nulls` each column is preceded by whether it is null.
    """
    parts: list[Column] = []
    types = []
    for name in keys:
        kind = field(df, name, "key column").dataType
        if _unequal(kind):
            raise QueryError(
                f"key column {name!r} is {kind.simpleString()}: maps and variants have no equality; use their parts"
            )
        types.append(kind)
        column = F.col(quoted(name))
        if nulls:
            parts.append(F.isnull(column))
        parts += _hashable(column, kind)
    hashes = [F.xxhash64(*parts).alias(H)]
    if not exact(types):
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
    if isinstance(kind, st.TimestampType):
        return F.expr(f"unix_micros({quoted(time)})").alias(T)
    if isinstance(kind, st.TimestampNTZType):
        return F.expr(f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {quoted(time)})").alias(T)
    raise QueryError(
        f"event-time column {time!r} must be a timestamp, it is {kind.simpleString()}; convert it with to_timestamp()"
    )


def lay_out(
    inputs: Sequence[tuple[DataFrame, Sequence[Column], Sequence[tuple[str, str]]]],
    *,
    weighted: bool = False,
    keyed: Sequence[Column] = (),
) -> tuple[DataFrame, Wire]:
    """One DataFrame of all inputs in wire layout, from (df, key columns and time, payload (column, source) pairs).

    `keyed` tells, per input, which rows have a key, where others come along for their event time.
    """
    kinds: dict[str, st.DataType] = {}
    typed = []
    for df, _, payload in inputs:
        types = [field(df, source, "column").dataType for _, source in payload]
        kinds.update({kind.simpleString(): kind for kind in types})
        typed.append([(name, kind.simpleString()) for (name, _), kind in zip(payload, types)])
    placed, slots = assign_slots(typed)
    union: DataFrame | None = None
    second = False
    for number, ((df, keys, payload), pairs) in enumerate(zip(inputs, placed)):
        sources = dict(payload)
        filled = {slot: F.col(quoted(sources[name])) for name, slot in pairs}
        columns = [filled.get(slot, F.lit(None)).cast(kinds[slots[slot]]).alias(slot) for slot in slots]
        extra = [F.col(WEIGHT)] if weighted else []
        mark = F.lit(number).cast("int")
        if keyed:
            mark = F.when(keyed[number], mark).otherwise(F.lit(number + len(inputs)).cast("int"))
        part = df.select(mark.alias(IN), *keys, *extra, *columns)
        second = H2 in part.columns
        union = part if union is None else union.unionAll(part)
    assert union is not None
    wire = Wire(inputs=tuple(tuple(pairs) for pairs in placed), exact=not second, weighted=weighted)
    return union, wire


def group_expression(routing: Routing) -> str:
    """SQL of `Routing.groups`."""
    return _isolated(routing, routing.explicit_groups, _base(routing))


def site_expression(routing: Routing) -> str:
    """SQL of `Routing.sites_of(groups)`, as the value that Spark's hash partitioning sends to that site's partition."""
    values = np.array(site_values(routing.sites), dtype=np.int64)[routing.table]
    ordinary = f"{_literal(values[: routing.partitions].tolist())}[{_base(routing)}]"
    return _isolated(routing, values[routing.explicit_groups], ordinary)


def _base(routing: Routing) -> str:
    return f"cast(shiftright((shiftright({H}, 32) + 2147483648L) * {routing.partitions}L, 32) as int)"


def _isolated(routing: Routing, values: Groups | Ints, otherwise: str) -> str:
    """SQL of the value of a key that has a group of its own, and of `otherwise` for all other keys.

    A few array elements per row however many such keys there are (`fluxen.state.lookup`).
    """
    if len(routing.explicit) == 0:
        return otherwise
    table = CollisionFree.of(routing.explicit)
    bucket = f"{H} & {len(table.shifts) - 1}L"
    bits = f"shiftrightunsigned({H}, {_literal(table.shifts.tolist())}[{bucket}])"
    slot = f"({bits} ^ {_literal(table.flips.tolist())}[{bucket}]) & {len(table.keys) - 1}L"
    of_slot = values[np.searchsorted(routing.explicit, table.keys)]
    likely = f"{_literal(table.tags.tolist())}[{slot}] = cast(shiftrightunsigned({H}, {TAG}) as int)"
    found = f"{_literal(table.keys.tolist(), 'bigint')}[{slot}] = {H}"
    return f"if({likely} and {found}, {_literal(of_slot.tolist())}[{slot}], {otherwise})"


def marked_site_expression(routing: Routing) -> str:
    """The same where there are marker rows among the others: those name their site themselves."""
    named = f"element_at({_literal(site_values(routing.sites))}, -{IN})"
    return f"if({IN} < 0, {named}, {site_expression(routing)})"


def _literal(numbers: Iterable[int], kind: str = "int") -> str:
    """An array that generated code refers to as data."""
    return f"cast(split('{','.join(map(str, numbers))}', ',') as array<{kind}>)"


def sites_expression(state: StageState) -> str:
    """As `site_expression`, giving a row once for each site it goes to while groups move by parallel track.

    A copy's partition says where else its rows go; a site that gets a row of a key no copy covers leaves it alone.
    """
    routing = state.routing
    owner = marked_site_expression(routing)
    base = _base(routing)
    layers: list[list[int]] = []
    for track in state.tracks:
        layer = next((layer for layer in layers if layer[track.partition] < 0), None)
        if layer is None:
            layer = [-1] * routing.partitions
            layers.append(layer)
        layer[track.partition] = site_values(routing.sites)[int(routing.table[track.group])]
    others = [f"element_at({_literal(layer)}, {base} + 1)" for layer in layers]
    everywhere = f"filter(array_distinct(array({', '.join([owner, *others])})), s -> s >= 0)"
    return f"explode(if({IN} < 0, array({owner}), {everywhere}))"


def markers(spark: SparkSession, sites: int, schema: st.StructType) -> DataFrame:
    """One row per site that names it; `schema` is the wire layout's."""
    filled = {IN: F.col("id"), H: F.lit(0)}
    columns = [filled.get(column.name, F.lit(None)).cast(column.dataType).alias(column.name) for column in schema]
    return spark.range(-sites, 0, 1, 1).select(*columns)


def marking(sites: int) -> Column:
    """`_in` of rows with marker rows among them: in front of each partition that has rows, one per site.

    Much cheaper to plan and run than a union with `markers`, but a batch without a single row gets none.
    """
    first = f"(monotonically_increasing_id() & {_WITHIN_PARTITION}L) = 0L"
    return F.expr(f"explode(if({first}, concat(array({IN}), sequence(-{sites}, -1)), array({IN})))")


@lru_cache(maxsize=16)
def site_values(sites: int) -> list[int]:
    """Integers v such that Spark puts v into partition i of `sites`: pmod(hash(v), sites) = i."""
    found: dict[int, int] = {}
    value = 0
    while len(found) < sites:
        found.setdefault(_murmur3(value) % sites, value)
        value += 1
    return [found[site] for site in range(sites)]


def _murmur3(value: int) -> int:
    """Spark's hash() of an int: 32-bit Murmur3 with seed 42, as a signed number."""

    def rotate(x: int, by: int) -> int:
        return ((x << by) | (x >> (32 - by))) & 0xFFFFFFFF

    k = rotate(value * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    h = (rotate(42 ^ k, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    h = (h ^ (h >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - 2**32 if h >= 2**31 else h
