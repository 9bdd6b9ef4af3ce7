"""Packed segments: generations on disk, compressed, read an interval of key hashes at a time.

The rows are those of `fluxen.state.segment`, sorted by hash, in one Arrow IPC file, but cut into small compressed
record batches. An empty batch at the end carries the index of the others in its metadata, so that a file is written in
one pass and reading an interval decompresses little more than the interval.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from fluxen.arrays import Ints, Mask
from fluxen.errors import DamagedError
from fluxen.state.routing import Routing, base_group
from fluxen.state.segment import (
    VERSION,
    BufferSink,
    H,
    SegmentRef,
    T,
    column,
    open_file,
    publish,
    require_version,
    time_range,
    under,
)
from fluxen.state.store import Store, damaged

PACK_BYTES = 1 << 18
"""Bytes of rows per record batch, about: what reading the shortest interval decompresses."""
_INDEX = b"fluxen.index"


def write_packed(
    store: Store, ref: SegmentRef, schema: pa.Schema, tables: Iterable[pa.Table], partitions: int
) -> SegmentRef | None:
    """Write rows that come in order of their hashes, if any; `ref` says all about the segment but what they tell."""
    rows = (table for table in tables if table.num_rows)
    first = next(rows, None)
    if first is None:
        return None
    packing = _Packing(schema.remove_metadata(), np.zeros(partitions, dtype=np.int64))
    size, crc = publish(store, ref.name, packing.pieces(ref.side, chain([first], rows)))
    return replace(
        ref,
        rows=sum(rows for _, _, rows in packing.index),
        bytes=size,
        crc=crc,
        t_min=min(low for low, _ in packing.times),
        t_max=max(high for _, high in packing.times),
        packed=True,
    )


@dataclass(slots=True)
class _Packing:
    """A packed segment on its way to its file, a record batch at a time, and what is known of its rows so far."""

    schema: pa.Schema
    counts: Ints
    index: list[tuple[int, int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)

    def pieces(self, side: int, tables: Iterable[pa.Table]) -> Iterator[pa.Buffer]:
        sink = BufferSink()
        with pa.ipc.new_file(sink, self.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            for table in tables:
                for batch in self._batches(table):
                    writer.write_batch(batch)
                    yield from sink.taken()
            described = {"version": VERSION, "side": side, "batches": self.index, "groups": self.counts.tolist()}
            empty = pa.RecordBatch.from_pylist([], schema=self.schema)
            writer.write_batch(empty, custom_metadata={_INDEX: json.dumps(described).encode()})
        yield from sink.taken()

    def _batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        whole = table.replace_schema_metadata(None).combine_chunks()
        rows = max(1, PACK_BYTES * table.num_rows // max(table.nbytes, 1))
        for batch in whole.to_batches(max_chunksize=rows):
            part = pa.Table.from_batches([batch])
            h = column(part, H)
            self.index.append((int(h[0]), int(h[-1]), len(h)))
            self.times.append(time_range(column(part, T)))
            self.counts += np.bincount(base_group(h, len(self.counts)), minlength=len(self.counts))
            yield batch


class PackedSegment:
    """An open packed segment. Keeps the batch it decompressed last: neighbouring intervals share it."""

    def __init__(self, store: Store, ref: SegmentRef) -> None:
        # read, not mapped: pages of a mapped file would stay this process's until it is closed
        source, path = open_file(store, ref, pa.OSFile)
        try:
            self._reader = pa.ipc.open_file(source)
            last = self._reader.get_batch_with_custom_metadata(self._reader.num_record_batches - 1)
            described = json.loads(last.custom_metadata[_INDEX])
        except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
            raise DamagedError(damaged(path, str(error))) from None
        require_version(described.get("version"), path)
        self._index: Ints = np.array(described["batches"], dtype=np.int64).reshape(-1, 3)
        self._held: tuple[int, pa.Table] | None = None
        self._read_as = ref.read_as
        self.counts: Ints = np.array(described["groups"], dtype=np.int64)
        """rows per ordinary partition group"""
        if ref.read_as is not None:
            stored, h = ref.read_as
            self.counts = np.zeros(len(self.counts), dtype=np.int64)
            self.counts[base_group(np.array([h]), len(self.counts))] = self._stored(stored, stored).num_rows

    @property
    def row_bytes(self) -> float:
        """What a row takes in memory, told by the first ones."""
        first = self._batch(0)
        return float(first.nbytes / max(first.num_rows, 1))

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def rows_per_group(self, routing: Routing, groups: Mask) -> Ints:
        """Rows of these groups, heavy keys that have left their ordinary group counted apart."""
        counts = np.zeros(routing.size, dtype=np.int64)
        counts[: routing.partitions] = self.counts
        for h, group in zip(routing.explicit.tolist(), routing.explicit_groups.tolist()):
            counts[group] = self.read(h, h).num_rows
            counts[base_group(np.array([h]), routing.partitions)] -= counts[group]
        counts[~groups] = 0
        return counts

    def read(self, first: int, last: int) -> pa.Table:
        """The rows whose hash is in [first, last]."""
        if self._read_as is None:
            return self._stored(first, last)
        stored, h = self._read_as
        return under(self._stored(stored, stored), h) if first <= h <= last else self.schema.empty_table()

    def _stored(self, first: int, last: int) -> pa.Table:
        overlapping = np.flatnonzero((self._index[:, 0] <= last) & (self._index[:, 1] >= first))
        tables = [self._batch(int(number)) for number in overlapping]
        if not tables:
            return self.schema.empty_table()
        whole = pa.concat_tables(tables)
        h = column(whole, H)
        low, high = np.searchsorted(h, first, side="left"), np.searchsorted(h, last, side="right")
        return whole.slice(low, high - low)

    def _batch(self, number: int) -> pa.Table:
        if self._held is None or self._held[0] != number:
            self._held = (number, pa.Table.from_batches([self._reader.get_batch(number)]))
        return self._held[1]
