"""Queries that pass whole rows on, in plain Python: the first of each key, or the first n. A part of the oracle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from fluxen.testing.batches import EVER, Batches, canonical, on_time, ordering, stamped, watermarks
from fluxen.testing.functions import Row, micros, sortable


def distinct(batches: Batches, by: Sequence[str], time: str | None, within: int | None, lateness: int = 0) -> list[Row]:
    """Rows with no kept row of their key within reach, in order of batch, time and values."""
    kept: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    results = []
    fresh, _ = on_time(batches, time, lateness)
    for rows in fresh:
        names = [name for name in (rows[0] if rows else {}) if name != time]
        for row in sorted(rows, key=lambda r: ordering(r, time, names)):
            t = micros(row[time]) or 0 if time else 0
            times = kept[tuple(canonical(row[column]) for column in by)]
            if not any(within is None or abs(t - other) <= within for other in times):
                times.append(t)
                results.append(row)
    return results


def deduplicated(
    batches: Batches, by: Sequence[str], time: str | None, *, delay: int | None = None, lateness: int = 0
) -> list[Row]:
    """Rows whose key was not seen, in order of batch, time and values; rows without event time come last of a batch.

    With `delay`, a key is forgotten when the watermark has passed the row that was kept by so much.
    """
    kept: dict[tuple[Any, ...], int] = {}
    results = []
    for table, mark in zip(batches, watermarks(batches, time, lateness)):
        missing = -EVER if delay is None else 0
        kept = {key: t for key, t in kept.items() if delay is None or t + delay > mark}
        timed = [(missing if time and row[time] is None else stamped(row, time), row) for row in table.to_pylist()]
        fresh = [(t, row) for t, row in timed if time is None or row[time] is None or t >= mark]
        names = [name for name in table.column_names if name != time]
        for t, row in sorted(fresh, key=lambda pair: (pair[0], ordering(pair[1], None, names))):
            key = tuple(canonical(row[column]) for column in by)
            if key not in kept:
                kept[key] = t
                results.append(row)
    return results


def top(
    batches: Batches,
    by: Sequence[str],
    n: int,
    order: Sequence[tuple[str, str]],
    time: str | None = None,
    *,
    closes: str | None = None,
    ttl: int | None = None,
    lateness: int = 0,
) -> list[Row]:
    """After each batch, the first n rows of each key that had rows in it, from the first rank that has another row.

    Rows of closed groups are late, and with `ttl` a key is forgotten, as in `running`.
    """
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    updated: dict[tuple[Any, ...], int] = {}
    results = []
    for table, mark in zip(batches, watermarks(batches, time, lateness)):
        fresh: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in table.to_pylist():
            if closes is None or _closing(row[closes]) >= mark:
                fresh[tuple(repr(canonical(row[column])) for column in by)].append(row)
        for key, rows in fresh.items():
            now = max([mark, *(stamped(row, time) for row in rows)])
            if ttl is not None and updated.get(key, now) < now - ttl:
                groups[key] = []
            before, groups[key] = groups[key][:n], _ranked(groups[key] + rows, by, order)
            updated[key] = max(now, updated.get(key, now))
            for at, row in enumerate(groups[key][:n]):
                if at >= len(before) or before[at] is not row:
                    results.append({**row, "rank": at + 1})
    return results


def _ranked(rows: list[Row], by: Sequence[str], order: Sequence[tuple[str, str]]) -> list[Row]:
    """In the order asked for, ties by all other columns."""
    others = [name for name in rows[0] if name not in by and name not in dict(order)]
    for name, direction in reversed([*order, *((name, "asc") for name in others)]):
        down = direction.startswith("desc")
        first = direction.endswith("nulls_first") if "_" in direction else not down
        null = 2 if first == down else 0
        rows = sorted(rows, key=lambda row: (null,) if row[name] is None else (1, *sortable(row[name])), reverse=down)
    return rows


def _closing(value: Any) -> int:
    moment = micros(value["end"] if isinstance(value, dict) else value)
    return -EVER if moment is None else moment
