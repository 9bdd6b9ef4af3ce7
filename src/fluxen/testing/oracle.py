"""The same queries over all rows at once, in plain Python: slow, short, and sharing no code with the engine.

Rows are given batch by batch because lateness is a matter of batches: a row is dropped if it is older than the latest
event time of the batches before, less the lateness. What is left is then treated as one set of rows.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from fluxen.operators.functions import Aggregate

Row = dict[str, Any]
Batches = Sequence[pa.Table]
_EPOCH = datetime(1970, 1, 1)
_EVER = -(2**61)
"""Before every event time: that of a row without one."""


def micros(value: Any) -> int | None:
    """A timestamp as microseconds since 1970."""
    if value is None:
        return None
    since: timedelta = value.replace(tzinfo=None) - _EPOCH
    return since // timedelta(microseconds=1)


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


def join(
    inputs: Mapping[str, Batches],
    on: Mapping[str, Sequence[str]],
    time: Mapping[str, str] | None,
    fits: Callable[[Mapping[str, int]], bool] = lambda times: True,
    lateness: int = 0,
) -> list[Row]:
    """Every combination of one row per input with equal keys whose event times satisfy `fits`."""
    names = list(inputs)
    by_key: list[dict[tuple[Any, ...], list[Row]]] = []
    for name in names:
        table: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        batches, _ = on_time(inputs[name], time[name] if time else None, lateness, on[name])
        for row in itertools.chain.from_iterable(batches):
            key = tuple(_canonical(row[column]) for column in on[name])
            table[key].append(row)
        by_key.append(table)
    results = []
    for key in by_key[0]:
        for rows in itertools.product(*(table.get(key, []) for table in by_key)):
            times = {name: micros(row[time[name]]) or 0 for name, row in zip(names, rows)} if time else {}
            if fits(times):
                results.append(_joined(names, rows, on))
    return results


def _joined(names: Sequence[str], rows: Sequence[Row], on: Mapping[str, Sequence[str]]) -> Row:
    result = {column: rows[0][column] for column in on[names[0]]}
    for name, row in zip(names, rows):
        result.update({f"{name}_{column}": value for column, value in row.items() if column not in on[name]})
    return result


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _watermarks(batches: Batches, time: str | None, lateness: int) -> list[int]:
    """The watermark under which each batch is processed."""
    mark, marks = _EVER, []
    for table in batches:
        marks.append(mark)
        seen = [micros(row[time]) for row in table.to_pylist()] if time else []
        mark = max([mark, *(t - lateness for t in seen if t is not None)])
    return marks


def running(
    batches: Batches,
    by: Sequence[str],
    time: str | None,
    aggregates: Mapping[str, Aggregate],
    *,
    ttl: int | None = None,
    lateness: int = 0,
) -> list[Row]:
    """After each batch, one row per key that changed in it.

    With `ttl`, a key's rows of earlier batches count unless its last update is longer ago. A batch updates a key at the
    latest event time among its rows, or at the watermark if that is later.
    """
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    updated: dict[tuple[Any, ...], int] = {}
    results = []
    for table, mark in zip(batches, _watermarks(batches, time, lateness)):
        touched: dict[tuple[Any, ...], Row] = {}
        fresh: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in table.to_pylist():
            key = tuple(_canonical(row[column]) for column in by)
            fresh[key].append(row)
            touched.setdefault(key, row)
        for key, rows in fresh.items():
            now = max([mark, *(_stamped(row, time) for row in rows)])
            if ttl is not None and updated.get(key, now) < now - ttl:
                groups[key] = []
            groups[key] += rows
            updated[key] = max(now, updated.get(key, now))
        for key, row in touched.items():
            ordered = sorted(groups[key], key=lambda r: _order(r, time, []))
            results.append({**{c: row[c] for c in by}, **_aggregates(ordered, time, aggregates)})
    return results


def _stamped(row: Row, time: str | None) -> int:
    t = micros(row[time]) if time else None
    return _EVER if t is None else t


def last(
    batches: Batches,
    by: Sequence[str],
    time: str | None,
    n: int,
    aggregates: Mapping[str, Aggregate],
    *,
    ttl: int | None = None,
    lateness: int = 0,
) -> list[Row]:
    """For each row, the aggregates over its key's last n rows, itself included.

    With `ttl`, over those of them that its key's clock, which follows event times and the watermark but never goes
    back, says are not older.
    """
    values = list(dict.fromkeys(a.column for a in aggregates.values() if a.column))
    groups: dict[tuple[Any, ...], list[tuple[int, Row]]] = defaultdict(list)
    results = []
    for table, mark in zip(batches, _watermarks(batches, time, lateness)):
        for row in sorted(table.to_pylist(), key=lambda r: _order(r, time, values)):
            history = groups[tuple(_canonical(row[column]) for column in by)]
            clock = max([mark, _stamped(row, time), *(read for read, _ in history)])
            history.append((clock, row))
            counted = [old for read, old in history[-n:] if ttl is None or read >= clock - ttl]
            shown = {column: row[column] for column in by}
            if time and time not in by:
                shown[time] = row[time]
            results.append({**shown, **_aggregates(counted, None, aggregates)})
    return results


def tumbling(
    batches: Batches,
    by: Sequence[str],
    time: str,
    size: int,
    lateness: int,
    aggregates: Mapping[str, Aggregate],
    *,
    everything: bool = False,
) -> list[Row]:
    """Windows that the final watermark has closed (or all of them), each once."""
    watermark: int | None = None
    seen: int | None = None
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for table in batches:
        for row in table.to_pylist():
            t = micros(row[time])
            if t is None:
                continue
            end = (t // size + 1) * size
            if watermark is None or end > watermark:
                groups[(end, *(_canonical(row[column]) for column in by))].append(row)
            seen = t if seen is None else max(seen, t)
        watermark = None if seen is None else seen - lateness
    results = []
    for (end, *_), rows in groups.items():
        if everything or (watermark is not None and end <= watermark):
            ordered = sorted(rows, key=lambda r: _order(r, time, []))
            shown = {column: rows[0][column] for column in by}
            zone = rows[0][time].tzinfo
            window = {"start": _stamp(end - size, zone), "end": _stamp(end, zone)}
            results.append({**shown, "window": window, **_aggregates(ordered, time, aggregates)})
    return results


def _stamp(value: int, zone: Any) -> datetime:
    return (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=zone)


def distinct(batches: Batches, by: Sequence[str], time: str | None, within: int | None, lateness: int = 0) -> list[Row]:
    """Rows with no kept row of their key within reach, in order of batch, time and values."""
    kept: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    results = []
    fresh, _ = on_time(batches, time, lateness)
    for rows in fresh:
        names = [name for name in (rows[0] if rows else {}) if name != time]
        for row in sorted(rows, key=lambda r: _order(r, time, names)):
            t = micros(row[time]) or 0 if time else 0
            times = kept[tuple(_canonical(row[column]) for column in by)]
            if not any(within is None or abs(t - other) <= within for other in times):
                times.append(t)
                results.append(row)
    return results


def _order(row: Row, time: str | None, values: Iterable[str]) -> tuple[Any, ...]:
    t = micros(row[time]) if time else None
    ties = [(row[name] is None, *_sortable(row[name])) for name in values]
    return (-(2**61) if t is None else t, *ties)


def _sortable(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, float) and math.isnan(value):
        return (1, 0.0)
    return (0, value)


def _aggregates(rows: Sequence[Row], time: str | None, aggregates: Mapping[str, Aggregate]) -> Row:
    return {name: _aggregate(rows, time, aggregate) for name, aggregate in aggregates.items()}


def _aggregate(rows: Sequence[Row], time: str | None, aggregate: Aggregate) -> Any:
    if aggregate.column is None:
        return len(rows)
    column = aggregate.column
    if aggregate.kind in ("first", "last"):
        return _edge(rows, time, column, aggregate.kind == "last")
    values = [row[column] for row in rows if row[column] is not None]
    if aggregate.kind == "count":
        return len(values)
    if not values:
        return None
    if aggregate.kind == "min":
        return min(values, key=_sortable)
    if aggregate.kind == "max":
        return max(values, key=_sortable)
    if aggregate.kind == "sum":
        return math.fsum(values) if isinstance(values[0], float) else sum(values)
    numbers = [float(value) for value in values]
    if aggregate.kind == "avg":
        return math.fsum(numbers) / len(numbers)
    return statistics.stdev(numbers) if len(numbers) > 1 else None


def _edge(rows: Sequence[Row], time: str | None, column: str, latest: bool) -> Any:
    if time is None:  # the rows' own order decides
        return rows[-1 if latest else 0][column]
    pick = max if latest else min
    return pick(rows, key=lambda r: (micros(r[time]), r[column] is not None, *_sortable(r[column])))[column]


def canonical_rows(rows: Iterable[Row], digits: int = 9) -> list[str]:
    """Rows as sorted text, floats rounded: two multisets of rows are equal if these lists are."""
    return sorted(repr([(name, _rounded(value, digits)) for name, value in row.items()]) for row in rows)


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            return str(value)
        return float(f"%.{digits}g" % (value + 0.0)) + 0.0
    if isinstance(value, datetime):
        return micros(value)
    if isinstance(value, dict):
        return {key: _rounded(inner, digits) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inner, digits) for inner in value]
    return value
