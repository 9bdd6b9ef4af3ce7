"""Segments: immutable columnar runs of operator state, sorted by key hash, one Arrow IPC file each.

A segment holds rows of one side of an operator (one input of a join, say). Its first columns are the key hash `_h`,
for keys that a 64-bit hash does not determine a second hash `_h2`, and the time `_t` in microseconds; then come the
operator's own columns. The file carries its format version, the row offsets of every partition group and its time
range; its checksum stands in the epoch that refers to it (`fluxen.state.epoch`).

Files are memory-mapped, so all Python workers of a host share one copy and a probe touches only the pages it needs.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fluxen.arrays import MAX_TIME, MIN_TIME, Ints, Json
from fluxen.errors import CheckpointError, DamagedError
from fluxen.state.routing import base_group
from fluxen.state.store import Store, checksum, damaged, missing

VERSION = 1
H, H2, T = "_h", "_h2", "_t"
BY_TIME = "_by_time"
"""Column of some operators' state: the segment's row numbers in the order of their times."""
_METADATA = b"fluxen"
_OFFSETS = b"fluxen.offsets"
_BLOCK = 1 << 20

SegmentKind = Literal["state", "buffer", "generation"]
"""State the operator sees, rows that wait to be processed, or a generation of state on disk, out of its sight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRef:
    """What an epoch says about one segment."""

    name: str
    side: int
    """of the operator; of buffered rows, the number of their input"""
    rows: int
    bytes: int
    crc: int
    t_min: int
    t_max: int
    first_epoch: int
    last_epoch: int
    """the epochs whose rows it holds: later runs shadow or follow earlier ones"""
    live: tuple[tuple[int, int], ...]
    """ranges of partition groups whose rows still count here; the others were merged into another segment"""
    kind: SegmentKind = "state"
    generation: int = 0
    """which of its groups' generations (`fluxen.state.generations`), for this kind; 0 for the others"""
    packed: bool = False
    """compressed, to be read piece by piece (`fluxen.state.packed`), not mapped"""
    written: tuple[tuple[int, int], ...] | None = None
    """ranges of groups the file may hold rows of, whether or not they still count; as `live` unless something else is
    said. A group that is not among them has no row here, so making it live brings nothing back"""
    read_as: tuple[int, int] | None = None
    """only the rows of the first key hash, to be read as the second's; a file may be listed once for each of these"""

    def __post_init__(self) -> None:
        if (self.kind == "generation") != (self.generation > 0):
            raise DamagedError(f"segment {self.name} is listed as {self.kind}, with generation {self.generation}")
        if self.written is None:
            object.__setattr__(self, "written", self.live)

    @property
    def id(self) -> str:
        """What tells the entries of one file apart, but for those of several generations."""
        return self.name if self.read_as is None else f"{self.name}@{self.read_as[0]}:{self.read_as[1]}"

    def to_json(self) -> Json:
        data = {name: getattr(self, name) for name in self.__slots__}
        if self.read_as is None:
            del data["read_as"]
        return {**data, "written": None if self.written == self.live else self.written}

    @staticmethod
    def from_json(data: Json) -> SegmentRef:
        written, read_as = data["written"], data.get("read_as")
        spans = {"live": _spans(data["live"]), "written": written and _spans(written)}
        return SegmentRef(**{**data, **spans, "read_as": read_as and (read_as[0], read_as[1])})


def _spans(data: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((low, high) for low, high in data)


@dataclass(frozen=True, slots=True)
class Segment:
    """An open segment: memory-mapped columns."""

    table: pa.Table
    h: Ints
    t: Ints
    offsets: NDArray[np.int64]
    """row at which each ordinary partition group starts; one entry more than there are groups"""


def time_range(t: Ints) -> tuple[int, int]:
    return (int(t.min()), int(t.max())) if len(t) else (MAX_TIME, MIN_TIME)


def write_segment(
    store: Store,
    name: str,
    table: pa.Table,
    *,
    side: int,
    partitions: int,
    epochs: tuple[int, int],
    live: tuple[tuple[int, int], ...],
    kind: SegmentKind = "state",
) -> SegmentRef:
    """Write rows that are already sorted by `_h` as a new segment."""
    t_min, t_max = time_range(column(table, T))
    offsets = _group_offsets(column(table, H), partitions)
    described = {"version": VERSION, "side": side, "rows": table.num_rows, "t_min": t_min, "t_max": t_max}
    size, crc = publish(store, name, _encode(table, described, offsets))
    return SegmentRef(
        name=name,
        side=side,
        rows=table.num_rows,
        bytes=size,
        crc=crc,
        t_min=t_min,
        t_max=t_max,
        first_epoch=epochs[0],
        last_epoch=epochs[1],
        live=live,
        kind=kind,
    )


class BufferSink:
    """What pyarrow writes, as it comes: the buffers themselves, not a copy of them."""

    closed = False

    def __init__(self) -> None:
        self._held: list[pa.Buffer] = []
        self._size = 0

    def write(self, data: pa.Buffer) -> int:
        self._held.append(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.closed = True

    def taken(self) -> list[pa.Buffer]:
        """What has come since the last call."""
        held, self._held = self._held, []
        return held


class _Counted:
    """Pieces of a file, with their size and checksum once they have passed."""

    def __init__(self, pieces: Iterable[pa.Buffer]) -> None:
        self._pieces = pieces
        self.size = self.crc = 0

    def __iter__(self) -> Iterator[memoryview]:
        for piece in self._pieces:
            view = memoryview(piece)
            self.size += len(view)
            self.crc = checksum(view, self.crc)
            yield view


def publish(store: Store, name: str, pieces: Iterable[pa.Buffer]) -> tuple[int, int]:
    """Write a segment's bytes, which this process then knows to be right; their number and checksum."""
    if not store.local:
        pieces = list(pieces)
    counted = _Counted(pieces)
    store.write(name, counted)
    if store.local:
        _remember(_version(store.path(name)))
    else:
        store.keep(name, pieces)
    return counted.size, counted.crc


def hold_segment(table: pa.Table, partitions: int) -> Segment:
    """Rows already sorted by `_h` as a segment in memory, for reading before they are written."""
    table = table.combine_chunks()
    h = column(table, H)
    return Segment(table=table, h=h, t=column(table, T), offsets=_group_offsets(h, partitions))


def _group_offsets(h: Ints, partitions: int) -> Ints:
    found: Ints = np.searchsorted(base_group(h, partitions), np.arange(partitions + 1)).astype(np.int64)
    return found


def _encode(table: pa.Table, described: Json, offsets: Ints) -> list[pa.Buffer]:
    metadata = {_METADATA: json.dumps(described).encode(), _OFFSETS: offsets.tobytes()}
    sink = BufferSink()
    with pa.ipc.new_file(sink, table.schema.with_metadata(metadata)) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=max(table.num_rows, 1))
    return sink.taken()


VERIFIED = 10_000
"""Files whose checksum a process remembers to be right, those it has opened last."""
_verified: OrderedDict[tuple[str, int, int], None] = OrderedDict()
"""Files whose checksum this process knows to be right; a worker pays for each segment once."""


def _version(path: str) -> tuple[str, int, int]:
    """A local file as it is now: another size or modification time is another file."""
    found = os.stat(path)
    return path, found.st_size, found.st_mtime_ns


def open_segment(store: Store, ref: SegmentRef) -> Segment:
    """Map a segment, checking its checksum the first time this process sees it."""
    source, path = open_file(store, ref, lambda path: pa.memory_map(path, "r"))
    found = _decode(source, path)
    return found if ref.read_as is None else _view(found, *ref.read_as)


def _view(whole: Segment, stored: int, h: int) -> Segment:
    """The rows of one key hash as those of another, which is all that is made anew of them."""
    low, high = (int(np.searchsorted(whole.h, stored, side=side)) for side in ("left", "right"))
    table = under(whole.table.slice(low, high - low), h)
    if BY_TIME in table.column_names:
        order = column(whole.table, BY_TIME)
        mine = order[(order >= low) & (order < high)] - low
        table = table.set_column(table.column_names.index(BY_TIME), BY_TIME, pa.array(mine.astype(order.dtype)))
    partitions = len(whole.offsets) - 1
    found = column(table, H)
    return Segment(table=table, h=found, t=column(table, T), offsets=_group_offsets(found, partitions))


def under(table: pa.Table, h: int) -> pa.Table:
    """The rows, in layout of a segment, with one key hash for all."""
    return table.set_column(table.column_names.index(H), H, pa.array(np.full(table.num_rows, h, dtype=np.int64)))


def open_file(store: Store, ref: SegmentRef, how: Callable[[str], pa.NativeFile]) -> tuple[pa.NativeFile, str]:
    """A segment's file, opened, and its path; of the size and with the checksum the epoch expects."""
    try:
        return _open_file(store, ref, how)
    except DamagedError:
        if not store.forget(ref.name):
            raise
        return _open_file(store, ref, how)  # only the copy was damaged, or it is said of the file itself now


def _open_file(store: Store, ref: SegmentRef, how: Callable[[str], pa.NativeFile]) -> tuple[pa.NativeFile, str]:
    path = store.mappable(ref.name, ref.bytes)
    try:
        source = how(path)
    except FileNotFoundError:
        raise DamagedError(missing(path)) from None
    except OSError as error:  # pyarrow refuses to map an empty file
        raise DamagedError(damaged(path, str(error))) from None
    size = source.size()
    if size != ref.bytes:
        raise DamagedError(damaged(path, f"expected {ref.bytes} bytes, found {size}"))
    _check(path, ref)
    return source, path


def _check(path: str, ref: SegmentRef) -> None:
    """Compare a local file's checksum, once per process; read, not mapped, so that its pages are not counted here."""
    key = _version(path)
    if key in _verified:
        _verified.move_to_end(key)
        return
    found = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            found = checksum(block, found)
    if found != ref.crc:
        raise DamagedError(damaged(path, "its checksum does not match"))
    _remember(key)


def _remember(key: tuple[str, int, int]) -> None:
    _verified[key] = None
    while len(_verified) > VERIFIED:  # a worker that lives for weeks sees segments without end
        _verified.popitem(last=False)


def _decode(source: pa.NativeFile, path: str) -> Segment:
    try:
        table = pa.ipc.open_file(source).read_all()
    except pa.ArrowInvalid as error:
        raise DamagedError(damaged(path, str(error))) from None
    metadata = table.schema.metadata or {}
    require_version(json.loads(metadata.get(_METADATA, b"{}")).get("version"), path)
    offsets = np.frombuffer(metadata[_OFFSETS], dtype=np.int64)
    return Segment(table=table, h=column(table, H), t=column(table, T), offsets=offsets)


def require_version(version: int | None, path: str) -> None:
    if version != VERSION:
        raise CheckpointError(
            f"{os.path.basename(path)} has state format version {version}, this fluxen reads version {VERSION}; "
            "use the fluxen that wrote it, or start with a new checkpoint location"
        )


def verify_segment(store: Store, ref: SegmentRef) -> None:
    """Read the durable copy of a segment in full and check it, whatever was checked before."""
    path = store.path(ref.name)
    try:
        data = store.read(ref.name)
    except FileNotFoundError:
        raise DamagedError(missing(path)) from None
    if len(data) != ref.bytes:
        raise DamagedError(damaged(path, f"expected {ref.bytes} bytes, found {len(data)}"))
    if checksum(data) != ref.crc:
        raise DamagedError(damaged(path, "its checksum does not match"))


def hashes(table: pa.Table) -> tuple[Ints, Ints | None]:
    """The key hashes of rows in layout of a segment; None for keys that one hash determines."""
    return column(table, H), column(table, H2) if H2 in table.column_names else None


def column(table: pa.Table, name: str) -> Ints:
    """An int64 column as numpy, without a copy when it is in one piece."""
    chunked = table.column(name)
    if chunked.num_chunks == 1:
        view: Ints = chunked.chunk(0).to_numpy(zero_copy_only=True)
        return view
    values: Ints = chunked.to_numpy()
    return values.astype(np.int64, copy=False)
