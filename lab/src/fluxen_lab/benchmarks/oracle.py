"""What the results must be: each benchmark's query as one SQL statement over all rows at once, for DuckDB.

The streaming forms of the same queries are in spark/native.py and spark/ours.py; compare.py compares.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fluxen_lab.benchmarks.compare import Column, Kind

__all__ = [
    "COLUMNS",
    "WINDOW_US",
    "join_sql",
    "last10_sql",
    "materialize",
    "our_columns",
    "running_sql",
    "tumbling_sql",
]

WINDOW_US = 10_000_000

_PAYLOAD: dict[str, Kind] = {"ts": "time", "value": "float", "text": "text"}
_JOINED = tuple(Column(name=f"{stream}_{column}", kind=kind) for stream in "abc" for column, kind in _PAYLOAD.items())
COLUMNS: dict[str, tuple[Column, ...]] = {
    "join": (Column(name="key", kind="int"), *_JOINED),
    "pair": (Column(name="key", kind="int"), *(column for column in _JOINED if column.name[0] in "ab")),
    "last10": (
        Column(name="key", kind="int"),
        Column(name="ts", kind="time"),
        Column(name="mean", kind="float"),
    ),
    "tumbling": (
        Column(name="key", kind="int"),
        Column(name="start", kind="time"),
        Column(name="n", kind="int"),
        Column(name="total", kind="float"),
        Column(name="mean", kind="float"),
    ),
    "running": (
        Column(name="key", kind="int"),
        Column(name="n", kind="int"),
        Column(name="total", kind="float"),
        Column(name="mean", kind="float"),
    ),
}
# where fluxen's results name a column differently
_OURS: dict[str, dict[str, str]] = {"tumbling": {"start": '"window".start'}}


def our_columns(query: str) -> tuple[Column, ...]:
    """The canonical columns of a query, read from the results as fluxen writes them."""
    sources = _OURS.get(query, {})
    return tuple(replace(column, source=sources.get(column.name, "")) for column in COLUMNS[query])


def _files(data: Path, stream: str) -> str:
    return f"read_parquet('{data / stream}/*.parquet')"


def join_sql(data: Path, bound_us: int | None, others: str = "bc") -> str:
    """Rows of a and each of the others with equal keys, the others each within the bound of a.

    With a bound, rows meet by key and time bucket first. Left to the key alone, a hot key's rows are all paired
    before the bound is looked at, twenty times slower on the skewed workload.
    """
    joined = f"SELECT key, {_side('a')} FROM {_files(data, 'a')}"
    for stream in others:
        side = f"SELECT key, {_side(stream)} FROM {_files(data, stream)}"
        on = f"l.key = r.key{_near(stream, bound_us)}"
        if bound_us is not None:
            bucket = f"{stream}_ts // {bound_us}"
            side = f"SELECT *, unnest([{bucket} - 1, {bucket}, {bucket} + 1]) AS bucket FROM ({side})"
        joined = f"SELECT l.*, r.* EXCLUDE ({_helpers(bound_us)}) FROM ({joined}) l JOIN ({side}) r ON {on}"
    return joined


def _side(stream: str) -> str:
    # times as integers: arithmetic on zoned timestamps needs an extension that may not be there
    return f"epoch_us(ts) AS {stream}_ts, value AS {stream}_value, text AS {stream}_text"


def _near(stream: str, bound_us: int | None) -> str:
    if bound_us is None:
        return ""
    distance = f"r.{stream}_ts BETWEEN l.a_ts - {bound_us} AND l.a_ts + {bound_us}"
    return f" AND r.bucket = l.a_ts // {bound_us} AND {distance}"


def _helpers(bound_us: int | None) -> str:
    return "key" if bound_us is None else "key, bucket"


def last10_sql(data: Path) -> str:
    """For every row, the average of its key's last ten values, itself included."""
    return (
        "SELECT key, epoch_us(ts) AS ts, avg(value) OVER (PARTITION BY key ORDER BY ts ROWS 9 PRECEDING) AS mean "
        f"FROM {_files(data, 'rows')}"
    )


def tumbling_sql(data: Path) -> str:
    """Count, sum and average per key and window; the windows the watermark never passes stay open and are left out."""
    files = _files(data, "rows")
    return (
        f"SELECT key, epoch_us(ts) - epoch_us(ts) % {WINDOW_US} AS start, "
        f"count(*) AS n, sum(value) AS total, avg(value) AS mean FROM {files} GROUP BY key, start "
        f"HAVING start + {WINDOW_US} <= (SELECT max(epoch_us(ts)) FROM {files})"
    )


def running_sql(data: Path) -> str:
    """For every micro-batch, the values so far of each key that occurred in it."""
    return (
        "WITH changed AS (SELECT key, filename, count(*) AS added, sum(value) AS gained "
        f"FROM read_parquet('{data / 'rows'}/*.parquet', filename=true) GROUP BY ALL), "
        "sofar AS (SELECT key, sum(added) OVER w AS n, sum(gained) OVER w AS total FROM changed "
        "WINDOW w AS (PARTITION BY key ORDER BY filename)) "
        "SELECT key, CAST(n AS BIGINT) AS n, total, total / n AS mean FROM sofar"
    )


def materialize(connection: Any, table: str, sql: str) -> float:
    """Compute `sql` into an in-memory table; the seconds it took, reading the files included."""
    connection.execute(f"DROP TABLE IF EXISTS {table}")
    started = time.perf_counter()
    connection.execute(f"CREATE TEMP TABLE {table} AS {sql}")
    return time.perf_counter() - started
