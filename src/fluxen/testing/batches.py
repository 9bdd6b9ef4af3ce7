"""Rows batch by batch, in plain Python: what is late, under which watermark, in which order. A part of the oracle."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from fluxen.testing.functions import Row, micros, sortable

Batches = Sequence[pa.Table]
EVER = -(2**61)
"""Before every event time: that of a row without one."""


def on_time(
    batches: Batches, time: str | None, lateness: int = 0, keys: Sequence[str] = ()
) -> tuple[list[list[Row]], int]:
    """Each batch's rows that are not late, and how many were; of rows with a null in `keys` only the time counts."""
    seen: int | None = None
    kept, late = [], 0
    for table in batches:
        rows = table.to_pylist()
        latest = seen
        fresh = []
        for row in rows:
            t = micros(row[time]) if time else 0
            if any(row[key] is None for key in keys):
                seen = t if seen is None else max(seen, seen if t is None else t)
                continue
            if t is None or (time and latest is not None and t < latest - lateness):
                late += t is not None
                continue
            fresh.append(row)
            seen = t if seen is None else max(seen, t)
        kept.append(fresh)
    return kept, late


def watermarks(batches: Batches, time: str | None, lateness: int) -> list[int]:
    """The watermark under which each batch is processed."""
    mark, marks = EVER, []
    for table in batches:
        marks.append(mark)
        seen = [micros(row[time]) for row in table.to_pylist()] if time else []
        mark = max([mark, *(t - lateness for t in seen if t is not None)])
    return marks


def stamped(row: Row, time: str | None) -> int:
    t = micros(row[time]) if time else None
    return EVER if t is None else t


def ordering(row: Row, time: str | None, values: Iterable[str]) -> tuple[Any, ...]:
    t = micros(row[time]) if time else None
    ties = [(row[name] is None, *sortable(row[name])) for name in values]
    return (-(2**61) if t is None else t, *ties)


def canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value
