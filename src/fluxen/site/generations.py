"""A site's share in generations on disk: what they owe, packing what was spilled, bringing groups back.

Which rows belong to which generation is metadata of the epoch (`fluxen.state.generations`); here the rows are read and
written. Everything goes through the groups' hash intervals piece by piece, so memory is bounded by a piece, not by a
group. `fluxen.site.task` calls this around an ordinary batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from fluxen.arrays import Groups, Ints, Mask
from fluxen.operators.base import Operator
from fluxen.operators.kernels import concat_sorted, portion
from fluxen.site.context import SiteContext
from fluxen.state.epoch import segment_name
from fluxen.state.generations import chosen
from fluxen.state.packed import PackedSegment, write_packed
from fluxen.state.routing import Routing, base_group, group_start, mask_of, ranges
from fluxen.state.segment import H, Segment, SegmentRef, T, column, open_segment, write_segment

PIECE_ROWS = 1 << 16
"""Rows read at a time, over all sides and generations, about; fewer where memory is limited."""


@dataclass(frozen=True, slots=True)
class SegmentSlice:
    """Some groups' rows of one segment."""

    ref: SegmentRef
    groups: Mask
    opened: Segment | PackedSegment

    @property
    def counts(self) -> Ints:
        """Rows per ordinary partition group, of all groups."""
        return self.opened.counts if isinstance(self.opened, PackedSegment) else np.diff(self.opened.offsets)

    @property
    def row_bytes(self) -> float:
        """What a row takes in memory."""
        return self.opened.row_bytes if isinstance(self.opened, PackedSegment) else self.ref.bytes / self.ref.rows

    @property
    def schema(self) -> pa.Schema:
        return self.opened.schema if isinstance(self.opened, PackedSegment) else self.opened.table.schema

    def read(self, first: int, last: int, routing: Routing) -> pa.Table:
        """Rows of these groups whose hash is in [first, last]."""
        if isinstance(self.opened, PackedSegment):
            table = self.opened.read(first, last)
        else:
            h = self.opened.h
            low, high = np.searchsorted(h, first, side="left"), np.searchsorted(h, last, side="right")
            table = self.opened.table.slice(low, high - low)
        table = table.replace_schema_metadata(None)
        mask = self.groups[routing.groups(column(table, H))]
        return table if mask.all() else table.filter(pa.array(mask))


class Generations:
    """The generations at one site in one epoch."""

    def __init__(self, context: SiteContext, site: int, attempt: str) -> None:
        self._context, self._site, self._attempt, self._written = context, site, attempt, 0
        before = self._before = context.before
        self._owned = before.routing.owned(site)
        self._cleaning = chosen(before.cleaning, before.routing.size) & self._owned
        self._unspilling = chosen(before.unspilling, before.routing.size) & self._owned
        self.added: list[SegmentRef] = []
        self.restored: list[SegmentRef] = []
        self.consumed: list[tuple[str, tuple[tuple[int, int], ...]]] = []

    @property
    def hidden(self) -> Mask | None:
        """Groups of which an ordinary batch must see no state: it becomes a generation on disk."""
        return self._cleaning if self._cleaning.any() else None

    def owed(self, operator: Operator) -> Iterator[pa.Table]:
        """What the generations of the groups being cleaned up have not produced yet."""
        groups = self._cleaning | self._unspilling
        if not groups.any():
            return
        parts = [self._parts(side, groups) for side in range(self._context.operator.sides)]
        for first, last in self._pieces([part for side in parts for part in side], groups):
            yield from operator.owed(
                [
                    [(part.ref.generation, part.read(first, last, self._before.routing)) for part in side]
                    for side in parts
                ],
                self._context.piece_bytes,
            )

    def unspill(self, side: int, horizon: int) -> list[SegmentRef]:
        """Write the groups that come back as active segments, less rows older than `horizon`, for the batch to see."""
        parts = [part for part in self._parts(side, self._unspilling) if part.ref.kind == "generation"]
        if not parts:
            return []
        self._consume(parts)
        pieces = (_since(self._sorted(parts, *piece), horizon) for piece in self._pieces(parts, self._unspilling))
        refs = [
            write_segment(
                self._context.store,
                self._name(side),
                table,
                side=side,
                partitions=self._before.routing.partitions,
                epochs=_span(parts),
                live=ranges(self._unspilling),
            )
            for table in _together(pieces, self._context.merge_limit)
        ]
        self.restored.extend(refs)
        return refs

    def pack(self) -> None:
        """Compress what was spilled and is still as it was when active."""
        settled = self._owned & ~self._cleaning & ~self._unspilling
        for side in range(self._context.operator.sides):
            parts = self._parts(side, settled, to_pack=True)
            for generation in sorted({part.ref.generation for part in parts}):
                self._pack(side, generation, [part for part in parts if part.ref.generation == generation])

    def _pack(self, side: int, generation: int, parts: list[SegmentSlice]) -> None:
        groups = np.logical_or.reduce([part.groups for part in parts])
        self._consume(parts)
        pieces = (self._sorted(parts, *piece) for piece in self._pieces(parts, groups))
        first, last = _span(parts)
        ref = SegmentRef(
            name=self._name(side),
            side=side,
            rows=0,
            bytes=0,
            crc=0,
            t_min=0,
            t_max=0,
            first_epoch=first,
            last_epoch=last,
            live=ranges(groups),
            kind="generation",
            generation=generation,
        )
        written = write_packed(self._context.store, ref, parts[0].schema, pieces, self._before.routing.partitions)
        if written is not None:
            self.added.append(written)

    def _parts(self, side: int, groups: Mask, *, to_pack: bool = False) -> list[SegmentSlice]:
        """Segments of one side with rows of these groups, active or of any generation; or only those to be packed."""
        found = []
        for ref in self._before.segments:
            if ref.side != side or (to_pack and (ref.kind != "generation" or ref.packed)):
                continue
            mine = mask_of(ref.live, len(groups)) & groups
            if mine.any():
                found.append(SegmentSlice(ref, mine, self._open(ref)))
        return found

    def _open(self, ref: SegmentRef) -> Segment | PackedSegment:
        if ref.packed:
            return PackedSegment(self._context.store, ref)
        return open_segment(self._context.store, ref)

    def _pieces(self, parts: Sequence[SegmentSlice], groups: Mask) -> Iterator[tuple[int, int]]:
        routing = self._before.routing
        counts = np.zeros(routing.partitions, dtype=np.int64)
        for part in parts:
            counts += part.counts
        wanted = groups[: routing.partitions].copy()
        if len(routing.explicit):
            heavy = groups[routing.explicit_groups]
            wanted[base_group(routing.explicit[heavy], routing.partitions)] = True
        rows = portion(PIECE_ROWS, self._context.piece_bytes, max((part.row_bytes for part in parts), default=1.0))
        return intervals(np.flatnonzero(wanted).astype(np.int32), counts, routing.partitions, rows)

    def _sorted(self, parts: Sequence[SegmentSlice], first: int, last: int) -> pa.Table:
        return concat_sorted([part.read(first, last, self._before.routing) for part in parts], "_h", "_t")

    def _consume(self, parts: Sequence[SegmentSlice]) -> None:
        self.consumed.extend((part.ref.id, ranges(part.groups)) for part in parts)

    def _name(self, side: int) -> str:
        self._written += 1
        return segment_name(
            epoch=self._context.epoch,
            stage=self._context.stage,
            site=self._site,
            side=side,
            attempt=f"{self._attempt}g{self._written}",
        )


def _span(parts: Sequence[SegmentSlice]) -> tuple[int, int]:
    return min(part.ref.first_epoch for part in parts), max(part.ref.last_epoch for part in parts)


def _since(table: pa.Table, horizon: int) -> pa.Table:
    old = column(table, T) < horizon
    return table.filter(pa.array(~old)) if old.any() else table


def _together(tables: Iterator[pa.Table], size: int) -> Iterator[pa.Table]:
    """Neighbouring tables as one, up to about `size` bytes."""
    held: list[pa.Table] = []
    for table in tables:
        held += [table] if table.num_rows else []
        if sum(part.nbytes for part in held) >= size:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def intervals(groups: Groups, counts: Ints, partitions: int, piece_rows: int) -> Iterator[tuple[int, int]]:
    """Hash intervals that cover the sorted `groups`, with about `piece_rows` of the rows `counts` tells in each.

    Neighbouring small groups share an interval; a large one is cut evenly, as hashes are spread evenly.

    >>> [first for first, _ in intervals(np.array([0, 1], dtype=np.int32), np.array([96, 5]), 2, 64)]
    [-9223372036854775808, -4611686018427387904, 0]
    """
    start, rows = 0, 0
    for at, group in enumerate(groups.tolist()):
        rows += int(counts[group])
        joined = at + 1 < len(groups) and groups[at + 1] == group + 1
        if joined and rows + int(counts[group + 1]) <= piece_rows:
            continue
        first, end = group_start(int(groups[start]), partitions), group_start(group + 1, partitions)
        cuts = max(1, -(-rows // piece_rows))
        edges = [first + (end - first) * cut // cuts for cut in range(cuts + 1)]
        yield from ((low, high - 1) for low, high in pairwise(edges))
        start, rows = at + 1, 0
