"""An operator around another one: what puts a service time, a counter or a user's code around it builds on this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from fluxen.arrays import Groups, Json, Mask
from fluxen.operators.base import Division, Input, Operator, Plans, Progress, Results, SiteInput
from fluxen.partitioning import Resources
from fluxen.state.generations import Spans
from fluxen.state.segment import SegmentRef
from fluxen.state.sorted_run import SortedRun
from fluxen.state.trees import Track


@dataclass(frozen=True, kw_only=True)
class Wrapped(Operator):
    """An operator around another one that does what the inner one does and has its traits; override what differs."""

    operator: Operator

    def process(self, given: SiteInput) -> Results:
        return self.operator.process(given)

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        return self.operator.compact(side, tables, horizon)

    def identity(self) -> Json:
        return self.operator.identity()

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        return self.operator.horizons(used, following)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        return self.operator.output_watermarks(progress)

    def distances(self) -> Mapping[tuple[str, str], int]:
        return self.operator.distances()

    @property
    def inputs(self) -> int:
        return self.operator.inputs

    @property
    def sides(self) -> int:
        return self.operator.sides

    @property
    def emits(self) -> Literal["append", "update"]:
        return self.operator.emits

    @property
    def result_key(self) -> tuple[str, ...]:
        return self.operator.result_key

    @property
    def divisible(self) -> bool:
        return self.operator.divisible

    @property
    def deals(self) -> tuple[int, ...]:
        return self.operator.deals

    @property
    def whole(self) -> str:
        return self.operator.whole

    def dealt_sides(self, dealt: int) -> tuple[int, ...]:
        return self.operator.dealt_sides(dealt)

    @property
    def flushes(self) -> bool:
        return self.operator.flushes

    def due(self, one: SegmentRef, emitted: tuple[int, ...], watermarks: tuple[int, ...]) -> bool:
        return self.operator.due(one, emitted, watermarks)

    @property
    def by_arrival(self) -> bool:
        return self.operator.by_arrival

    @property
    def shadows(self) -> bool:
        return self.operator.shadows

    @property
    def plans(self) -> Plans | None:
        return self.operator.plans

    @property
    def resources(self) -> Resources:
        return self.operator.resources

    @property
    def schema(self) -> Any:
        return self.operator.schema

    def keeps(self, clock: str) -> list[str]:
        return self.operator.keeps(clock)

    @property
    def spills(self) -> bool:
        return self.operator.spills

    def meets(self, one: SegmentRef, others: Spans) -> Mask:
        return self.operator.meets(one, others)

    def needed_since(self, others: Sequence[SegmentRef]) -> tuple[int, ...]:
        return self.operator.needed_since(others)

    def owed(
        self, sides: Sequence[Sequence[tuple[int, pa.Table]]], piece_bytes: int | None = None
    ) -> Iterator[pa.Table]:
        return self.operator.owed(sides, piece_bytes)

    def lifetime(self) -> int | None:
        return self.operator.lifetime()

    @property
    def division(self) -> Division:
        return self.operator.division

    def stays(self, rows: Input, track: Track, runs: Sequence[SortedRun], groups: Groups, watermark: int) -> Mask:
        return self.operator.stays(rows, track, runs, groups, watermark)
