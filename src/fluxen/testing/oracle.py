"""The same queries over all rows at once, in plain Python: slow, short, and sharing no code with the engine.

Rows are given batch by batch because lateness is judged by batches: a row is dropped if it is older than the latest
event time of the batches before, less the lateness. What is left is then treated as one set of rows.

What they share is in `fluxen.testing.batches`, aggregate functions in `fluxen.testing.functions`, queries that
pass whole rows on in `fluxen.testing.kept`.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from fluxen.operators.aggregate.functions import Aggregate
from fluxen.testing.batches import EVER, Batches, canonical, on_time, ordering, stamped, watermarks
from fluxen.testing.functions import Row, aggregated, micros
from fluxen.testing.kept import deduplicated, distinct, top

__all__ = [
    "canonical_rows",
    "deduplicated",
    "distinct",
    "join",
    "last",
    "micros",
    "on_time",
    "outer",
    "running",
    "sessions",
    "top",
    "tumbling",
    "windowed",
]

_EPOCH = datetime(1970, 1, 1)


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
            key = tuple(canonical(row[column]) for column in on[name])
            table[key].append(row)
        by_key.append(table)
    results = []
    for key in by_key[0]:
        for rows in itertools.product(*(table.get(key, []) for table in by_key)):
            times = {name: micros(row[time[name]]) or 0 for name, row in zip(names, rows)} if time else {}
            if fits(times):
                results.append(_joined(names, rows, on))
    return results


def outer(
    how: str,
    inputs: Mapping[str, Batches],
    on: Mapping[str, Sequence[str]],
    time: Mapping[str, str] | None,
    bounds: tuple[int | None, int | None] = (None, None),
    *,
    matches: Callable[[Row, Row], bool] = lambda left, right: True,
    lateness: int = 0,
    everything: bool = False,
) -> list[Row]:
    """A left, right, full, semi or anti join of two inputs, with `bounds` on the second time less the first.

    Rows without a partner are there if the final watermark says that none can come, or `everything` is asked for.
    """
    (first, second), (low, high) = inputs, bounds
    clock = {name: time[name] if time else None for name in inputs}
    rows = {
        name: list(itertools.chain.from_iterable(on_time(inputs[name], clock[name], lateness, on[name])[0]))
        for name in inputs
    }

    def partners(left: Row, right: Row) -> bool:
        apart = (micros(right[time[second]]) or 0) - (micros(left[time[first]]) or 0) if time else 0
        near = (low is None or apart >= low) and (high is None or apart <= high)
        keys = zip(on[first], on[second])
        return near and all(canonical(left[a]) == canonical(right[b]) for a, b in keys) and matches(left, right)

    met = [
        (i, j) for i, left in enumerate(rows[first]) for j, right in enumerate(rows[second]) if partners(left, right)
    ]
    some = {first: {i for i, _ in met}, second: {j for _, j in met}}

    def alone(name: str, other: str, reach: int | None) -> list[Row]:
        """Rows without a partner; `reach` is how much later than they one may be."""
        mark = (watermarks([*inputs[other], inputs[other][-1].slice(0, 0)], clock[other], lateness))[-1]
        single = [row for i, row in enumerate(rows[name]) if i not in some[name]]
        closed = [
            row for row in single if everything or (reach is not None and stamped(row, clock[name]) + reach < mark)
        ]
        needed = [*on[name], *([clock[name]] if time else [])]
        whole = itertools.chain.from_iterable(table.to_pylist() for table in inputs[name])
        return closed + [row for row in whole if any(row[column] is None for column in needed)]

    left_alone = alone(first, second, high) if how in ("left", "full", "anti") else []
    right_alone = alone(second, first, None if low is None else -low) if how in ("right", "full") else []
    if how in ("semi", "anti"):
        kept = [rows[first][i] for i in sorted(some[first])] if how == "semi" else left_alone
        return [_joined([first], [row], on) for row in kept]
    pairs = [(rows[first][i], rows[second][j]) for i, j in met]
    nothing = [dict.fromkeys(inputs[name][0].column_names) for name in (first, second)]
    pairs += [(row, nothing[1]) for row in left_alone]
    pairs += [({**nothing[0], **{a: row[b] for a, b in zip(on[first], on[second])}}, row) for row in right_alone]
    return [_joined([first, second], pair, on) for pair in pairs]


def _joined(names: Sequence[str], rows: Sequence[Row], on: Mapping[str, Sequence[str]]) -> Row:
    result = {column: rows[0][column] for column in on[names[0]]}
    for name, row in zip(names, rows):
        result.update({f"{name}_{column}": value for column, value in row.items() if column not in on[name]})
    return result


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
    for table, mark in zip(batches, watermarks(batches, time, lateness)):
        touched: dict[tuple[Any, ...], Row] = {}
        fresh: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in table.to_pylist():
            key = tuple(canonical(row[column]) for column in by)
            fresh[key].append(row)
            touched.setdefault(key, row)
        for key, rows in fresh.items():
            now = max([mark, *(stamped(row, time) for row in rows)])
            if ttl is not None and updated.get(key, now) < now - ttl:
                groups[key] = []
            groups[key] += rows
            updated[key] = max(now, updated.get(key, now))
        for key, row in touched.items():
            ordered = sorted(groups[key], key=lambda r: ordering(r, time, []))
            results.append({**{c: row[c] for c in by}, **aggregated(ordered, time, aggregates)})
    return results


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
    for table, mark in zip(batches, watermarks(batches, time, lateness)):
        for row in sorted(table.to_pylist(), key=lambda r: ordering(r, time, values)):
            history = groups[tuple(canonical(row[column]) for column in by)]
            clock = max([mark, stamped(row, time), *(read for read, _ in history)])
            history.append((clock, row))
            counted = [old for read, old in history[-n:] if ttl is None or read >= clock - ttl]
            shown = {column: row[column] for column in by}
            if time and time not in by:
                shown[time] = row[time]
            results.append({**shown, **aggregated(counted, None, aggregates)})
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
    return windowed(batches, by, time, aggregates, ends=(size, size), lateness=lateness, everything=everything)


def windowed(
    batches: Batches,
    by: Sequence[str],
    time: str,
    aggregates: Mapping[str, Aggregate],
    *,
    ends: tuple[int, int] | str,
    update: bool = False,
    lateness: int = 0,
    everything: bool = False,
) -> list[Row]:
    """Groups that the final watermark has closed (or all of them), each once; or after each batch those it changed.

    `ends` says when: (size, slide) of windows, or the column of `by` whose value (or the `end` of it) is the time.
    """
    size = 0 if isinstance(ends, str) else ends[0]
    watermark, seen = EVER, EVER
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    results = []
    for table in batches:
        changed: dict[tuple[Any, ...], None] = {}
        for row in table.to_pylist():
            key = tuple(canonical(row[column]) for column in by)
            t = micros(row[time])
            for end in [_closing(row[ends])] if isinstance(ends, str) else _ends(t, *ends):
                if end > watermark:
                    groups[(end, *map(repr, key))].append(row)
                    changed[(end, *map(repr, key))] = None
            seen = seen if t is None else max(seen, t)
        if update:
            results += [_group(key[0], groups[key], by, time, aggregates, size) for key in changed]
        watermark = max(watermark, seen - lateness)
    if not update:
        closed = [key for key in groups if everything or key[0] <= watermark]
        results = [_group(key[0], groups[key], by, time, aggregates, size) for key in closed]
    return results


def _ends(t: int | None, size: int, slide: int) -> list[int]:
    """The ends of all windows that a time is in."""
    if t is None:
        return []
    newest = t // slide * slide
    return [start + size for start in range(newest, newest - size, -slide) if start <= t < start + size]


def _closing(value: Any) -> int:
    """When the group of this value closes; that of a null only at the end."""
    moment = micros(value["end"] if isinstance(value, dict) else value)
    return -EVER if moment is None else moment


def _group(
    end: int, rows: Sequence[Row], by: Sequence[str], time: str, aggregates: Mapping[str, Aggregate], size: int
) -> Row:
    ordered = sorted(rows, key=lambda r: ordering(r, time, []))
    shown = {column: rows[0][column] for column in by}
    if size:
        zone = rows[0][time].tzinfo
        shown["window"] = {"start": _stamp(end - size, zone), "end": _stamp(end, zone)}
    return {**shown, **aggregated(ordered, time, aggregates)}


def sessions(
    batches: Batches,
    by: Sequence[str],
    time: str,
    gap: int,
    aggregates: Mapping[str, Aggregate],
    *,
    lateness: int = 0,
    everything: bool = False,
) -> list[Row]:
    """Sessions that the final watermark has closed (or all of them), each once.

    A row is late if the watermark has passed its own end; a session that is closed takes in no further row.
    """
    held: dict[tuple[Any, ...], list[tuple[int, int, list[Row]]]] = defaultdict(list)
    results: list[Row] = []

    def close(mark: int) -> None:
        for found in held.values():
            results.extend(_session(*one, by, time, aggregates) for one in found if one[1] < mark)
            found[:] = [one for one in found if one[1] >= mark]

    *marks, final = watermarks([*batches, batches[0].slice(0, 0)], time, lateness)
    for table, mark in zip(batches, marks):
        close(mark)
        for row in table.to_pylist():
            t = micros(row[time])
            if t is not None and t + gap >= mark:
                held[tuple(repr(canonical(row[column])) for column in by)].append((t, t + gap, [row]))
        for found in held.values():
            found[:] = _merged(found)
    close(-EVER if everything else final)
    return results


def _merged(found: Sequence[tuple[int, int, list[Row]]]) -> list[tuple[int, int, list[Row]]]:
    merged: list[tuple[int, int, list[Row]]] = []
    for start, end, rows in sorted(found, key=lambda one: one[:2]):
        if merged and start <= merged[-1][1]:
            first, last, before = merged.pop()
            merged.append((first, max(last, end), before + rows))
        else:
            merged.append((start, end, rows))
    return merged


def _session(
    start: int, end: int, rows: Sequence[Row], by: Sequence[str], time: str, aggregates: Mapping[str, Aggregate]
) -> Row:
    shown = {column: rows[0][column] for column in by}
    zone = rows[0][time].tzinfo
    shown["session_window"] = {"start": _stamp(start, zone), "end": _stamp(end, zone)}
    return {**shown, **aggregated(sorted(rows, key=lambda r: ordering(r, time, [])), time, aggregates)}


def _stamp(value: int, zone: Any) -> datetime:
    return (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=zone)


def canonical_rows(rows: Iterable[Row], digits: int = 9) -> list[str]:
    """Rows as sorted text, floats rounded: two multisets of rows are equal if these lists are."""
    return sorted(repr([(name, _rounded(value, digits)) for name, value in row.items()]) for row in rows)


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            return str(value)
        # off the ties: short decimals lie on them, and which way they round depends on the last bit
        off = 1.0 if digits > 12 else 1.0 + 3e-13
        return float(f"%.{digits}g" % (value * off)) + 0.0
    if isinstance(value, datetime):
        return micros(value)
    if isinstance(value, dict):
        return {key: _rounded(inner, digits) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inner, digits) for inner in value]
    return value
