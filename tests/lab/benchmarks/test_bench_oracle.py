"""The oracle's SQL against the definition, written out in loops over a handful of rows."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip("duckdb")

from fluxen_lab.benchmarks import oracle
from fluxen_lab.benchmarks.compare import connect
from fluxen_lab.benchmarks.join import live_state_rows
from fluxen_lab.datagen.workloads import AGGREGATE, GROWTH_ROWS, W1, W2, Workload


def rows_of(data: Path, stream: str) -> list[tuple[int, int, float]]:
    found = []
    for path in sorted((data / stream).glob("*.parquet")):
        table = pq.read_table(path)
        found += zip(table["key"].to_pylist(), table["ts"].cast("int64").to_pylist(), table["value"].to_pylist())
    return found


@pytest.mark.parametrize("bound_us", [60_000_000, 300_000, None])
@pytest.mark.parametrize("workload", [W1, W2], ids=["w1", "w2"])
def test_join_is_every_combination_within_the_bound(tmp_path: Path, workload: Workload, bound_us: int | None) -> None:
    workload.scaled(1e-9).write(tmp_path)
    by_key: dict[int, dict[str, list[int]]] = {}
    for stream in "abc":
        for key, ts, _ in rows_of(tmp_path, stream):
            by_key.setdefault(key, {"a": [], "b": [], "c": []})[stream].append(ts)
    expected = sorted(
        (key, a, b, c)
        for key, times in by_key.items()
        for a, b, c in product(times["a"], times["b"], times["c"])
        if bound_us is None or (abs(b - a) <= bound_us and abs(c - a) <= bound_us)
    )
    query = f"SELECT key, a_ts, b_ts, c_ts FROM ({oracle.join_sql(tmp_path, bound_us)}) ORDER BY ALL"
    assert connect().execute(query).fetchall() == expected


def test_last10_and_tumbling_follow_their_definitions(tmp_path: Path) -> None:
    AGGREGATE.scaled(1e-4).write(tmp_path)
    rows = rows_of(tmp_path, "rows")
    history: dict[int, list[float]] = {}
    windows: dict[tuple[int, int], list[float]] = {}
    means = []
    for key, ts, value in rows:
        recent = history.setdefault(key, [])
        recent.append(value)
        means.append((key, ts, sum(recent[-10:]) / len(recent[-10:])))
        windows.setdefault((key, ts - ts % oracle.WINDOW_US), []).append(value)
    closed = sorted(
        (key, start, len(values), sum(values), sum(values) / len(values))
        for (key, start), values in windows.items()
        if start + oracle.WINDOW_US <= rows[-1][1]
    )
    connection = connect()
    assert connection.execute(f"{oracle.last10_sql(tmp_path)} ORDER BY ALL").fetchall() == sorted(means)
    assert sorted(connection.execute(oracle.tumbling_sql(tmp_path)).fetchall()) == closed


def test_running_has_one_row_per_key_and_batch_it_occurs_in(tmp_path: Path) -> None:
    GROWTH_ROWS.scaled(1e-9).write(tmp_path)
    totals: dict[int, list[float]] = {}
    expected = []
    for path in sorted((tmp_path / "rows").glob("*.parquet")):
        table = pq.read_table(path)
        for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist()):
            totals.setdefault(key, []).append(value)
        for key in set(table["key"].to_pylist()):
            expected.append((key, len(totals[key]), sum(totals[key]), sum(totals[key]) / len(totals[key])))
    assert sorted(connect().execute(oracle.running_sql(tmp_path)).fetchall()) == sorted(expected)


def test_live_state_is_one_bound_of_a_and_two_of_b_and_c() -> None:
    assert live_state_rows(W1) == pytest.approx(60_000 + 120_000 + 120_000)
