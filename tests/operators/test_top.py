"""The first rows of each key against the oracle, and what of them is worth saying by example."""

from __future__ import annotations

import tempfile

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import fluxen.testing as ft
from tests.cases import SECOND, TIME
from tests.effort import examples
from tests.histories import Histories, replay
from tests.top_cases import top_cases

SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("x", pa.float64())])


@examples(60)
@given(case=top_cases(), history=st.data())
def test_results_equal_the_oracle_whatever_the_history(case, history):
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory)
    assert results == case.expected()


def rows(*given: tuple[int, float, float | None]) -> pa.Table:
    keys, seconds, values = zip(*given)
    stamps = pa.array([round(s * SECOND) for s in seconds], pa.int64()).cast(TIME)
    return pa.table({"k": keys, "ts": stamps, "x": values}, schema=SCHEMA)


def shown(table: pa.Table) -> list[tuple[int, float]]:
    return sorted((row["rank"], row["x"]) for row in table.to_pylist())


def test_only_ranks_from_the_first_that_changes_are_shown(tmp_path):
    bench = ft.LocalEngine([ft.top(SCHEMA, "k", 3, [("x", "desc")])], str(tmp_path))
    assert shown(bench.step(0, [rows((1, 0, 5.0), (1, 0, 9.0))])) == [(1, 9.0), (2, 5.0)]
    assert shown(bench.step(1, [rows((1, 0, 7.0))])) == [(2, 7.0), (3, 5.0)]
    assert shown(bench.step(2, [rows((1, 0, 4.0))])) == []
    assert sum(ref.rows for ref in bench.epoch.stages[0].segments) <= 5


def test_nulls_are_the_smallest_and_nan_the_largest_unless_said_otherwise(tmp_path):
    values = rows((1, 0, None), (1, 0, 1.0), (1, 0, float("nan")))
    found = {}
    for direction in ("asc", "desc", "asc_nulls_last", "desc_nulls_first"):
        bench = ft.LocalEngine([ft.top(SCHEMA, "k", 3, [("x", direction)])], str(tmp_path / direction))
        ranked = sorted(bench.step(0, [values]).to_pylist(), key=lambda row: row["rank"])
        found[direction] = [str(row["x"]) for row in ranked]
    assert found == {
        "asc": ["None", "1.0", "nan"],
        "desc": ["nan", "1.0", "None"],
        "asc_nulls_last": ["1.0", "nan", "None"],
        "desc_nulls_first": ["None", "nan", "1.0"],
    }


def test_the_state_holds_the_first_rows_and_goes_with_the_groups(tmp_path):
    bench = ft.LocalEngine([ft.top(SCHEMA, ["k", "ts"], 2, [("x", "asc")], "ts", closes="ts")], str(tmp_path))
    for number in range(60):
        bench.step(number, [rows(*((key, number, float(x)) for key in range(3) for x in range(20)))])
    assert sum(ref.rows for ref in bench.epoch.stages[0].segments) <= 3 * 2 * 4
