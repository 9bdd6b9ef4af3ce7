"""Multiset equality of a run's results and the oracle's, quickly enough for millions of rows.

Columns without rounding are compared by an order-insensitive digest (row count, sum and xor of two row hashes);
with `tolerance`, float columns are matched row by row after that. oracle.py says what the results should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["Column", "Comparison", "Kind", "compare", "connect", "parquet_relation"]

Kind = Literal["int", "time", "text", "float"]
_CASTS: dict[Kind, str] = {
    "int": "CAST({} AS BIGINT)",
    "time": "CAST(epoch_us({}) AS BIGINT)",
    "text": "CAST({} AS VARCHAR)",
    "float": "CAST({} AS DOUBLE)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A canonical result column; `source` is the expression that yields it where the names differ."""

    name: str
    kind: Kind
    source: str = ""

    @property
    def sql(self) -> str:
        return f"{_CASTS[self.kind].format(self.source or self.name)} AS {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Whether two multisets are equal, and if not, by how much they differ."""

    equal: bool
    expected_rows: int
    actual_rows: int
    detail: str


def connect(threads: int = 2) -> Any:
    """A DuckDB connection that keeps its tables in memory and uses as many threads as Spark has cores."""
    import duckdb

    return duckdb.connect(config={"threads": threads})


def parquet_relation(directory: Path, columns: Sequence[Column]) -> str:
    """A query over every parquet file below `directory`, in canonical columns; empty when there is none."""
    if not any(directory.rglob("*.parquet")):
        nulls = ", ".join(Column(name=column.name, kind=column.kind, source="NULL").sql for column in columns)
        return f"SELECT {nulls.replace('epoch_us(NULL)', 'NULL')} WHERE false"
    listed = ", ".join(column.sql for column in columns)
    return f"SELECT {listed} FROM read_parquet('{directory}/**/*.parquet')"


def compare(
    connection: Any, expected: str, actual: str, columns: Sequence[Column], *, tolerance: float | None = None
) -> Comparison:
    """Compare two queries that both yield the canonical `columns`."""
    exact = [c.name for c in columns if tolerance is None or c.kind != "float"]
    floats = [c.name for c in columns if tolerance is not None and c.kind == "float"]
    left, right = (_digest(connection, query, exact) for query in (expected, actual))
    if left != right:
        return Comparison(
            equal=False,
            expected_rows=left[0],
            actual_rows=right[0],
            detail=_difference(connection, expected, actual, exact),
        )
    if tolerance is None:
        return Comparison(equal=True, expected_rows=left[0], actual_rows=right[0], detail="")
    wrong = _beyond_tolerance(connection, expected, actual, exact, floats, tolerance)
    return Comparison(
        equal=wrong == 0,
        expected_rows=left[0],
        actual_rows=right[0],
        detail=f"{wrong} rows differ by more than {tolerance} in {', '.join(floats)}" if wrong else "",
    )


def _digest(connection: Any, query: str, names: Sequence[str]) -> tuple[int, int, int]:
    listed = ", ".join(names)
    count, total, mixed = connection.execute(
        f"SELECT count(*), sum(hash({listed})::HUGEINT), bit_xor(hash('second', {listed})) FROM ({query})"
    ).fetchone()
    return int(count), int(total or 0), int(mixed or 0)


def _difference(connection: Any, expected: str, actual: str, names: Sequence[str]) -> str:
    listed = ", ".join(names)
    counts = {}
    for word, first, second in (("missing", expected, actual), ("unexpected", actual, expected)):
        difference = f"SELECT {listed} FROM ({first}) EXCEPT ALL SELECT {listed} FROM ({second})"
        counts[word] = connection.execute(f"SELECT count(*) FROM ({difference})").fetchone()[0]
    return f"{counts['missing']} rows missing, {counts['unexpected']} unexpected"


def _beyond_tolerance(
    connection: Any, expected: str, actual: str, exact: Sequence[str], floats: Sequence[str], tolerance: float
) -> int:
    """Rows whose floats differ; rows equal in the other columns are paired in order of their floats."""
    keys, values = ", ".join(exact), ", ".join(floats)
    numbered = "SELECT *, row_number() OVER (PARTITION BY {} ORDER BY {}) AS pair FROM ({})"
    close = " AND ".join(
        f"(e.{name} IS NOT DISTINCT FROM a.{name}"
        f" OR coalesce(abs(e.{name} - a.{name}) <= {tolerance} * greatest(1.0, abs(e.{name})), false))"
        for name in floats
    )
    matched = " AND ".join(f"e.{name} IS NOT DISTINCT FROM a.{name}" for name in (*exact, "pair"))
    query = (
        f"SELECT count(*) FROM ({numbered.format(keys, values, expected)}) e "
        f"FULL JOIN ({numbered.format(keys, values, actual)}) a ON {matched} "
        f"WHERE e.pair IS NULL OR a.pair IS NULL OR NOT ({close})"
    )
    return int(connection.execute(query).fetchone()[0])
