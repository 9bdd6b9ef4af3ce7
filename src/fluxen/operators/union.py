"""The rows of several inputs as one stream: no state, and no row is late here.

What a union is for is its watermark: how far the input has come that is behind all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from fluxen.arrays import MIN_TIME, Json
from fluxen.operators.base import EMIT_ROWS, Input, Operator, Progress, Results, SiteInput, SiteOutput
from fluxen.operators.kernels import concat_sorted
from fluxen.partitioning import Resources

__all__ = ["Union"]


@dataclass(frozen=True, kw_only=True)
class Union(Operator):
    """All rows of all inputs, which have the same columns."""

    columns: tuple[tuple[str, pa.DataType | None], ...]
    """in order; the event-time column comes with its type"""
    count: int
    """of inputs"""
    described: Json
    updating: bool = False
    """whether rows of some input take the place of earlier ones"""
    resources = Resources.of("CLL")

    def identity(self) -> Json:
        return {"operator": "union", **self.described}

    def keeps(self, clock: str) -> list[str]:
        return []

    @property
    def inputs(self) -> int:
        return self.count

    @property
    def sides(self) -> int:
        return self.count

    @property
    def emits(self) -> Literal["append", "update"]:
        return "update" if self.updating else "append"

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        return {name: min(progress.watermarks) for name, kind in self.columns if kind is not None}

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        return concat_sorted(list(tables), "_h")

    def process(self, given: SiteInput) -> Results:
        rows_out = given.per_group()
        for rows in given.inputs:
            rows_out += given.per_group(given.routing.groups(rows.h))
            for start in range(0, len(rows.h), EMIT_ROWS):
                yield self._results(rows.take(np.arange(start, min(start + EMIT_ROWS, len(rows.h)))))
        return SiteOutput(rows_out=rows_out)

    def _results(self, rows: Input) -> pa.Table:
        times = pa.array(rows.t, mask=rows.t == MIN_TIME)
        return pa.table(
            {name: rows.table.column(name) if kind is None else times.view(kind) for name, kind in self.columns}
        )
