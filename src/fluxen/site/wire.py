"""How rows of several inputs travel to their sites in one shuffle.

All inputs share one set of columns: `_in` tells which input a row is from, `_h` (and `_h2`) carry the key hash, `_t`
the event time, and payload columns of one type share slots, so three inputs of one schema cost no more than one.
A row of a join whose key is null joins nothing and travels only for its event time: its `_in` is that of its input plus
the number of inputs. Every site also gets marker rows, whose `_in` is -1 less the site's index: a site without rows
still runs and knows which one it is. Spark builds this layout in `fluxen.spark.plan.layout`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.arrays import Ints
from fluxen.errors import FluxenError
from fluxen.operators.base import EMIT_ROWS, Input
from fluxen.state.segment import H2, H, T

IN, WEIGHT = "_in", "_n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hops:
    """Overlapping windows. A row travels once, with the last of its windows, and is in those before that, too."""

    count: int
    slide: int
    """how far apart windows start, in microseconds"""
    end: str
    """the column that holds the window's end, in microseconds"""
    window: str | None = None
    """the column that holds the window itself, a struct of start and end"""

    def spread(self, rows: Input) -> Input:
        """Each row once for every window it is in."""
        every = rows.take(np.repeat(np.arange(len(rows.h)), self.count))
        back = pa.array(np.tile(np.arange(self.count) * self.slide, len(rows.h)))
        table = _set(every.table, self.end, pc.subtract(every.table.column(self.end), back))
        if self.window is not None:
            table = _set(table, self.window, _earlier(table.column(self.window).combine_chunks(), back))
        return replace(every, table=table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The layout of one stage's input."""

    inputs: tuple[tuple[tuple[str, str], ...], ...]
    """per input: (column, slot) pairs"""
    exact: bool
    """one 64-bit hash determines the key, so there is no second one"""
    weighted: bool = False
    hops: Hops | None = None


def assign_slots(types: list[list[tuple[str, str]]]) -> tuple[list[list[tuple[str, str]]], dict[str, str]]:
    """Give each input's (column, type) pairs slots by type; returns (column, slot) pairs and each slot's type.

    >>> assign_slots([[("x", "double"), ("s", "string")], [("y", "double")]])
    ([[('x', '_0'), ('s', '_1')], [('y', '_0')]], {'_0': 'double', '_1': 'string'})
    """
    slots: dict[str, str] = {}
    by_type: dict[str, list[str]] = {}
    placed = []
    for columns in types:
        used: dict[str, int] = {}
        pairs = []
        for name, kind in columns:
            at = used.get(kind, 0)
            used[kind] = at + 1
            owned = by_type.setdefault(kind, [])
            if at == len(owned):
                owned.append(f"_{len(slots)}")
                slots[owned[at]] = kind
            pairs.append((name, owned[at]))
        placed.append(pairs)
    return placed, slots


def decode(wire: Wire, batches: Iterable[pa.RecordBatch]) -> tuple[int | None, list[Input]]:
    """The site's index and the new rows of each input; no index if there is no row at all."""
    received = [batch for batch in batches if batch.num_rows]
    if not received:
        return None, []
    whole = pa.Table.from_batches(received).combine_chunks()
    # state is told apart by its schema, in which a column is not one that Spark knows never to be null, nor one of the
    # session's time zone
    columns = [_stored(column) for column in whole.columns]
    table = pa.Table.from_arrays(columns, names=whole.column_names)
    source = table.column(IN).to_numpy()
    h = table.column(H).to_numpy()
    hidden = _hidden(table, source, len(wire.inputs))
    inputs = []
    for number, pairs in enumerate(wire.inputs):
        rows = np.flatnonzero(source == number)
        part = table.select([slot for _, slot in pairs]).rename_columns([name for name, _ in pairs])
        inputs.append(
            Input(
                h[rows],
                None if wire.exact else _ints(table, H2)[rows],
                _ints(table, T)[rows],
                _rows(part, rows),
                _ints(table, WEIGHT)[rows] if wire.weighted else None,
                hidden.get(number),
            )
        )
    if wire.hops is not None:
        inputs = [wire.hops.spread(rows) for rows in inputs]
    return _marked(source[source < 0]), inputs


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type that state has of a column, whatever the session's settings are: timestamps in UTC, texts not large.

    >>> str(stored_type(pa.list_(pa.timestamp("us", "Europe/Berlin"))))
    'list<item: timestamp[us, tz=UTC]>'
    >>> stored_type(pa.struct([("s", pa.large_string())]))
    StructType(struct<s: string>)
    """
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, "UTC")
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([_stored_field(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_stored_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_stored_field(kind.key_field), _stored_field(kind.item_field))
    return kind


def _stored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = stored_type(column.type)
    return column if kind == column.type else column.cast(kind)


def _stored_field(part: pa.Field) -> pa.Field:
    return part.with_type(stored_type(part.type))


def _set(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def _earlier(windows: pa.StructArray, back: pa.Array) -> pa.StructArray:
    fields = [windows.type.field(at) for at in range(windows.type.num_fields)]
    moved = [pc.subtract(windows.field(at).cast(pa.int64()), back).cast(one.type) for at, one in enumerate(fields)]
    return pa.StructArray.from_arrays(moved, fields=fields, mask=pc.is_null(windows))


def rechunk(table: pa.Table) -> list[pa.RecordBatch]:
    """A result table as record batches of bounded size."""
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches(max_chunksize=EMIT_ROWS)
    return batches


def _hidden(table: pa.Table, source: Ints, inputs: int) -> dict[int, int]:
    """The latest event time of each input's rows without a key."""
    keyless = np.flatnonzero(source >= inputs)
    if len(keyless) == 0:
        return {}
    times, of = _ints(table, T)[keyless], source[keyless] - inputs
    return {int(number): int(times[of == number].max()) for number in np.unique(of)}


def _rows(table: pa.Table, rows: Ints) -> pa.Table:
    """The rows of one input; those of one file lie together and need no copy."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return table.slice(rows[0], len(rows))
    return table.take(pa.array(rows))


def _marked(markers: Ints) -> int:
    if len(markers) == 0 or (markers != markers[0]).any():
        raise FluxenError(
            f"a site's input holds the marker rows of {len(np.unique(markers))} sites instead of one; the query's "
            "shuffle was changed on the way (is adaptive query execution on?)"
        )
    return -1 - int(markers[0])


def _ints(table: pa.Table, name: str) -> Ints:
    column = table.column(name)
    values: Ints = column.to_numpy() if column.null_count == 0 else column.fill_null(0).to_numpy()
    return values
