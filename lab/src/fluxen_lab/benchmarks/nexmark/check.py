"""What a Nexmark query gave beside what DuckDB finds over all rows: all results, or the last one of each key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fluxen_lab.benchmarks.compare import Comparison, compare
from fluxen_lab.benchmarks.nexmark.queries import MACROS, NexmarkQuery

__all__ = ["checked", "read_streams"]

_TOLERANCE = 1e-9
_OPEN_US = 6_000_000
"""The watermark's delay, and two seconds in which engines may differ: how much of the end is owed by nobody."""


def read_streams(connection: Any, data: Path) -> None:
    """Make the queries' views, over all rows in `data`, on a DuckDB connection."""
    for macro in MACROS:
        connection.execute(macro)
    for name in ("person", "auction", "bid"):
        # times without a zone: arithmetic on zoned ones needs an extension that may not be there
        times = ["dateTime", "expires"] if name == "auction" else ["dateTime"]
        plain = ", ".join(f"make_timestamp(epoch_us({time})) AS {time}" for time in times)
        files = f"read_parquet('{data / name}/*.parquet')"
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * REPLACE ({plain}) FROM {files}")
    side = "SELECT range AS key, concat('value-', range) AS value FROM range(10000)"
    connection.execute(f"CREATE OR REPLACE VIEW side_input AS {side}")


def checked(connection: Any, query: NexmarkQuery, out: Path) -> Comparison:
    """Compare the parquet files below `out`, one folder per batch, with the oracle's answer."""
    if not any(out.rglob("*.parquet")):
        return Comparison(equal=False, expected_rows=0, actual_rows=0, detail="no results were written")
    if repeated := _repeated(connection, query, out):
        return Comparison(equal=False, expected_rows=0, actual_rows=0, detail=repeated)
    expected = _canonical(query, query.expected)
    actual = _canonical(query, _actual(query, out))
    ends = ", ".join(f"(SELECT max(epoch_us(dateTime)) FROM {name})" for name in query.streams)
    closed = query.closed.format(end=f"(least({ends}) - {_OPEN_US})")
    owed, given = (f"SELECT * FROM ({rows}) WHERE {closed}" for rows in (expected, actual))
    floats = any(column.kind == "float" for column in query.columns)
    return compare(connection, owed, given, query.columns, tolerance=_TOLERANCE if floats else None)


def _canonical(query: NexmarkQuery, rows: str) -> str:
    return f"SELECT {', '.join(column.sql for column in query.columns)} FROM ({rows})"


def _repeated(connection: Any, query: NexmarkQuery, out: Path) -> str:
    """A key that one batch has two results for, in words: nobody could say which of them counts."""
    if not query.key:
        return ""
    key = ", ".join(query.key)
    found = f"SELECT {key} FROM {_files(out)} GROUP BY {key}, parse_dirpath(filename) HAVING count(*) > 1 LIMIT 1"
    row = connection.execute(found).fetchone()
    return "" if row is None else f"one batch has two results for ({key}) = {row}"


def _files(out: Path) -> str:
    return f"read_parquet('{out}/**/*.parquet', filename=true)"


def _actual(query: NexmarkQuery, out: Path) -> str:
    if not query.key:
        return f"SELECT * FROM {_files(out)}"
    # folders are named by the batch, so the latest file of a key has its last value
    newest = f"row_number() OVER (PARTITION BY {', '.join(query.key)} ORDER BY filename DESC) AS newest"
    last = f"SELECT * FROM (SELECT *, {newest} FROM {_files(out)}) WHERE newest = 1"
    return f"WITH results AS ({last}) {query.summed or 'SELECT * FROM results'}"
