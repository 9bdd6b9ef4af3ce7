"""The comparison with the oracle sees every kind of wrong result, and only those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("duckdb")

from fluxen_lab.benchmarks.compare import Column, compare, connect, parquet_relation

COLUMNS = (
    Column(name="key", kind="int"),
    Column(name="ts", kind="time"),
    Column(name="text", kind="text"),
    Column(name="mean", kind="float"),
)
ROWS = [{"key": n % 7, "ts": n, "text": f"t{n}", "mean": n / 3} for n in range(100)] * 2


def relation(directory: Path, rows: list[dict[str, Any]]) -> str:
    directory.mkdir()
    schema = pa.schema(
        {"key": pa.int32(), "ts": pa.timestamp("us", tz="UTC"), "text": pa.string(), "mean": pa.float64()}
    )
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), directory / "part.parquet")
    return parquet_relation(directory, COLUMNS)


def verdict(tmp_path: Path, rows: list[dict[str, Any]], tolerance: float | None) -> bool:
    expected, actual = relation(tmp_path / "expected", ROWS), relation(tmp_path / "actual", rows)
    return compare(connect(), expected, actual, COLUMNS, tolerance=tolerance).equal


@pytest.mark.parametrize("tolerance", [None, 1e-9])
class TestEitherWay:
    def test_order_does_not_matter(self, tmp_path: Path, tolerance: float | None) -> None:
        assert verdict(tmp_path, ROWS[::-1], tolerance)

    def test_a_missing_row_is_seen(self, tmp_path: Path, tolerance: float | None) -> None:
        assert not verdict(tmp_path, ROWS[1:], tolerance)

    def test_a_duplicate_row_is_seen(self, tmp_path: Path, tolerance: float | None) -> None:
        assert not verdict(tmp_path, [*ROWS, ROWS[0]], tolerance)

    def test_a_duplicate_in_place_of_another_row_is_seen(self, tmp_path: Path, tolerance: float | None) -> None:
        assert not verdict(tmp_path, [ROWS[1], *ROWS[1:]], tolerance)

    @pytest.mark.parametrize("change", [{"key": 99}, {"ts": 10**6}, {"text": "x"}, {"mean": 1e3}, {"mean": None}])
    def test_a_changed_value_is_seen(self, tmp_path: Path, tolerance: float | None, change: dict[str, Any]) -> None:
        assert not verdict(tmp_path, [{**ROWS[0], **change}, *ROWS[1:]], tolerance)

    def test_values_swapped_between_two_rows_are_seen(self, tmp_path: Path, tolerance: float | None) -> None:
        first, second = {**ROWS[0], "mean": ROWS[1]["mean"]}, {**ROWS[1], "mean": ROWS[0]["mean"]}
        assert not verdict(tmp_path, [first, second, *ROWS[2:]], tolerance)


def test_rounding_passes_with_a_tolerance_only(tmp_path: Path) -> None:
    nearly = [{**row, "mean": row["mean"] * (1 + 1e-14)} for row in ROWS]
    assert verdict(tmp_path, nearly, 1e-9)
    (tmp_path / "again").mkdir()
    assert not verdict(tmp_path / "again", nearly, None)


def test_no_results_at_all_compare_as_empty(tmp_path: Path) -> None:
    expected = relation(tmp_path / "expected", ROWS)
    found = compare(connect(), expected, parquet_relation(tmp_path / "none", COLUMNS), COLUMNS)
    assert (found.equal, found.actual_rows, found.detail) == (False, 0, "200 rows missing, 0 unexpected")
