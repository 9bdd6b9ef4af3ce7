"""What an operator is: a frozen config, the logic on columns, and state made of segments.

Operators see one micro-batch at one site: the new rows of their inputs, the runs of their state, the watermarks. They
yield result tables and hand back new state rows. `fluxen.operators.site` drives them; they do no I/O themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from fluxen.state.generations import Spans
from fluxen.state.routing import Routing
from fluxen.state.runs import Run
from fluxen.state.segment import SegmentRef
from fluxen.state.trees import Track
from fluxen.typing import Groups, Ints, Json, Mask

EMIT_ROWS = 1 << 16
"""Results leave a site in tables of about this many rows, however many there are."""


def portion(rows: int, piece_bytes: int | None, row_bytes: float) -> int:
    """How many rows to hold at a time: `rows`, or as many as make `piece_bytes` where memory is limited.

    >>> portion(1 << 16, None, 200.0), portion(1 << 16, 1 << 20, 200.0)
    (65536, 5242)
    """
    if piece_bytes is None:
        return rows
    return max(1, min(rows, int(piece_bytes / max(row_bytes, 1.0))))


@dataclass(frozen=True, slots=True)
class Input:
    """New rows of one input at one site, in any order."""

    h: Ints
    h2: Ints | None
    t: Ints
    table: pa.Table
    """the operator's own columns, without hashes and time"""
    weight: Ints | None = None
    """how many rows of the source each row stands for, when Spark has pre-aggregated them"""
    hidden: int | None = None
    """the latest event time of rows that are not here because their key is null"""

    @property
    def rows(self) -> int:
        """Rows of the source."""
        return len(self.h) if self.weight is None else int(self.weight.sum())

    def take(self, rows: Ints | Mask) -> Input:
        if rows.dtype == np.bool_:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        h2 = None if self.h2 is None else self.h2[rows]
        weight = None if self.weight is None else self.weight[rows]
        return Input(self.h[rows], h2, self.t[rows], self.table.take(pa.array(rows)), weight, self.hidden)

    def with_keys(self) -> pa.Table:
        """Hashes and time as columns in front: the layout of a segment."""
        hashes = [pa.array(self.h)] if self.h2 is None else [pa.array(self.h), pa.array(self.h2)]
        names = ["_h", "_t"] if self.h2 is None else ["_h", "_h2", "_t"]
        columns = [*hashes, pa.array(self.t), *self.table.columns]
        return pa.table(columns, names=[*names, *self.table.column_names])


@dataclass(slots=True)
class SiteBatch:
    """One micro-batch as one site sees it; the operator leaves its findings in `state`, `late` and `rows_out`."""

    inputs: list[Input]
    runs: list[list[Run]]
    """state of each side, oldest first"""
    watermarks: tuple[int, ...]
    """per input: the time below which windows close and state expires"""
    emitted: tuple[int, ...]
    """per input: the watermark of the batch before; what it closed was emitted then"""
    routing: Routing
    late_before: tuple[int, ...] = ()
    """per input: older rows are late; with rows waiting in the skew buffer that is above the watermarks"""
    state: list[pa.Table | None] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    swapped: int = 0
    """bytes of state that came back from disk for this batch"""
    distinct: int = 0
    """rows left when those of one key were combined"""
    rows_out: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """results per partition group"""
    tree: str = ""
    """the join tree this site runs; empty for the operator's own choice"""
    unlike: tuple[tuple[str, Mask], ...] = ()
    """groups whose state was built for another tree: (that tree, which groups)"""
    since: Ints | None = None
    """per group: rows of later epochs are new; only for the sender's half of a move by parallel track"""
    discard: list[int] = field(default_factory=list)
    """sides whose stored rows are of no use any more"""
    piece_bytes: int | None = None
    """bytes of rows to hold at a time, about; None where memory is not limited"""
    observed: Json = field(default_factory=dict)
    """what the operator saw, for whoever plans"""

    def count_out(self, groups: Groups) -> None:
        self.rows_out += np.bincount(groups, minlength=len(self.rows_out))

    def drop_late(self) -> list[Input]:
        """The inputs without late rows, which are counted."""
        kept = []
        for number, (rows, limit) in enumerate(zip(self.inputs, self.late_before or self.watermarks)):
            fresh = rows.t >= limit
            kept.append(rows.take(fresh))
            self.late[number] += rows.rows - kept[-1].rows
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a stage has come after a batch: what its results to come follow from."""

    watermarks: tuple[int, ...]
    """per input: rows to come, and rows that wait, are not older, unless they are late"""
    emitted: tuple[int, ...]
    """per input: the watermark the batch worked under; what it closed is out"""
    owed: tuple[int, ...]
    """per side: the oldest time among the rows of groups that owe results; MAX_TIME if none do"""


@runtime_checkable
class Spillable(Protocol):
    """An operator whose groups may have generations of state that have not met."""

    def meets(self, one: SegmentRef, others: Spans) -> Mask:
        """Of which of these segments a row can be in one result with a row of the given one, as far as times tell."""

    def needed_since(self, others: Sequence[SegmentRef]) -> tuple[int, ...]:
        """Per side: earlier rows can meet none of these segments' rows."""

    def owed(
        self, sides: Sequence[Sequence[tuple[int, pa.Table]]], piece_bytes: int | None = None
    ) -> Iterator[pa.Table]:
        """Results of rows that are not all of one generation, given each side's (generation, rows)."""


@runtime_checkable
class Shadowing(Protocol):
    """An operator whose later state rows of a key take the place of earlier ones, which only cost room then."""

    @property
    def shadows(self) -> bool: ...


@runtime_checkable
class Divided(Protocol):
    """An operator that gives each row of a group that moves by parallel track to one of the two sites.

    Operators without this process every row at both and divide what comes of it.
    """

    def stays(self, rows: Input, track: Track, runs: Sequence[Run], groups: Groups, watermark: int) -> Mask:
        """Which rows are the sender's, whose state is `runs`; `groups` are the rows' groups in these."""


class Operator(Protocol):
    """A stateful operator."""

    @property
    def inputs(self) -> int: ...

    @property
    def sides(self) -> int:
        """Kinds of state rows, each with segments of its own."""

    def process(self, batch: SiteBatch) -> Iterator[pa.Table]:
        """Results of the new rows; leaves the new state rows, sorted by hash, in `batch.state`."""

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        """One sorted table equivalent to several, oldest first, without rows older than `horizon`."""

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        """Per side: state rows with an earlier time are dead after a batch that worked under the watermarks `used`."""

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """The result columns that carry event time, each with a time that no result to come lies below.

        MIN_TIME where there is no such time. Results that only late rows of a source have made may lie below: to the
        next stage they are late as well.
        """

    def identity(self) -> Json:
        """What must not change between two runs on one checkpoint."""
