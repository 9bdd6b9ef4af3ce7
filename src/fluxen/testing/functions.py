"""Aggregate functions over rows in plain Python, as Spark defines them: a part of `fluxen.testing.oracle`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from fluxen.operators.aggregate.functions import Aggregate

Row = dict[str, Any]
_EPOCH = datetime(1970, 1, 1)
_EVER = -(2**61)


def micros(value: Any) -> int | None:
    """A timestamp as microseconds since 1970."""
    if value is None:
        return None
    since: timedelta = value.replace(tzinfo=None) - _EPOCH
    return since // timedelta(microseconds=1)


def sortable(value: Any) -> tuple[Any, ...]:
    """What orders values: NaN is the largest."""
    if value is None:
        return ()
    if isinstance(value, float) and math.isnan(value):
        return (1, 0.0)
    return (0, value)


def aggregated(rows: Sequence[Row], time: str | None, aggregates: Mapping[str, Aggregate]) -> Row:
    """All functions over the rows of one group, which are in order where there is no `time`."""
    return {name: _aggregate(rows, time, aggregate) for name, aggregate in aggregates.items()}


def _aggregate(rows: Sequence[Row], time: str | None, aggregate: Aggregate) -> Any:
    if aggregate.where is not None:
        rows = [row for row in rows if row[aggregate.where] is True]
    if aggregate.column is None:
        return len(rows)
    column, kind = aggregate.column, aggregate.kind
    if kind in ("first", "last"):
        return _edge(rows, time, column, kind == "last")
    if aggregate.by is not None:
        return _extreme_by(rows, column, aggregate.by, kind == "max_by")
    rows = [row for row in rows if row[column] is not None]
    values = [row[column] for row in rows]
    if kind == "collect_list":
        return [row[column] for row in sorted(rows, key=lambda r: (_moment(r, time), sortable(r[column])))]
    if aggregate.distinct or kind == "collect_set":
        values = [value for _, value in sorted({sortable(value): value for value in values}.items())]
    if kind == "collect_set":
        return values
    return len(values) if kind == "count" else _of_values(kind, values)


def _of_values(kind: str, values: Sequence[Any]) -> Any:
    if not values:
        return None
    if kind in ("min", "bool_and"):
        return min(values, key=sortable)
    if kind in ("max", "bool_or"):
        return max(values, key=sortable)
    if kind == "sum":
        return _sum(values)
    if kind == "avg" and isinstance(values[0], Decimal):
        with localcontext() as context:
            context.prec = 76
            place = Decimal(1).scaleb(int(values[0].as_tuple().exponent) - 4)
            return (sum(values) / Decimal(len(values))).quantize(place, ROUND_HALF_UP)
    numbers = [float(value) for value in values]
    if kind == "avg":
        return _sum(numbers) / len(numbers)
    if kind in ("stddev", "variance") and len(numbers) < 2:
        return None
    if any(math.isnan(number) for number in numbers):
        return math.nan
    variance = statistics.variance if kind in ("stddev", "variance") else statistics.pvariance
    return math.sqrt(variance(numbers)) if kind.startswith("stddev") else variance(numbers)


def _sum(values: Sequence[Any]) -> Any:
    return math.fsum(values) if isinstance(values[0], float) else sum(values)


def _moment(row: Row, time: str | None) -> int:
    t = micros(row[time]) if time else None
    return _EVER if t is None else t


def _edge(rows: Sequence[Row], time: str | None, column: str, latest: bool) -> Any:
    if not rows:
        return None
    if time is None:  # the rows' own order decides
        return rows[-1 if latest else 0][column]
    pick = max if latest else min
    return pick(rows, key=lambda r: (_moment(r, time), r[column] is not None, *sortable(r[column])))[column]


def _extreme_by(rows: Sequence[Row], column: str, by: str, largest: bool) -> Any:
    rows = [row for row in rows if row[by] is not None]
    if not rows:
        return None
    pick = max if largest else min
    return pick(rows, key=lambda r: (sortable(r[by]), r[column] is not None, *sortable(r[column])))[column]
