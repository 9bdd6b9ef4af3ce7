"""Queries whose stages form a graph against the oracle: results that feed several stages, or meet a source again."""

from __future__ import annotations

import tempfile
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fluxen.testing as ft
from fluxen.errors import CheckpointError
from fluxen.operators.aggregate import functions as fx
from fluxen.testing import oracle
from tests.cases import SECOND, TIME, Case
from tests.effort import examples
from tests.histories import Histories, replay

SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])
WINDOW = 3 * SECOND
WITHIN = 5 * SECOND


@st.composite
def ordered(draw: Any, batches: int) -> list[pa.Table]:
    """A batch a second, in any order within it, sometimes without a row."""
    tables = []
    for number in range(batches):
        times = draw(st.lists(st.integers(number * SECOND, (number + 1) * SECOND - 1), max_size=5))
        keys = draw(st.lists(st.integers(0, 3), min_size=len(times), max_size=len(times)))
        rows = {"k": keys, "ts": pa.array(times, pa.int64()).cast(TIME), "v": list(range(len(times)))}
        tables.append(pa.table(rows, schema=SCHEMA))
    return tables


def near(times: Any) -> bool:
    return max(times.values()) - min(times.values()) <= WITHIN


def whole(rows: list[dict[str, Any]], schema: pa.Schema) -> list[pa.Table]:
    return [pa.Table.from_pylist(rows, schema=schema)]


def joined_back(bids: list[pa.Table]) -> Case:
    """Each window's maximum, joined with the rows it was taken of."""
    best = ft.aggregate(SCHEMA, "k", "ts", window=f"{WINDOW} microseconds", ts=fx.max("ts"), top=fx.max("v"))
    back = ft.join({"bid": SCHEMA, "best": best.schema}, "k", "ts", within=f"{WITHIN} microseconds").fed(None, 0)

    def expected() -> list[dict[str, Any]]:
        measures = {"ts": fx.max("ts"), "top": fx.max("v")}
        tops = oracle.tumbling(bids, ["k"], "ts", WINDOW, 0, measures, everything=True)
        rows = {"bid": bids, "best": whole(tops, best.schema)}
        # the maxima are one batch here, in which none is late
        return oracle.join(rows, {"bid": ["k"], "best": ["k"]}, {"bid": "ts", "best": "ts"}, near)

    def query(streams: list[Any]) -> Any:
        raise NotImplementedError("these run in process only")

    return Case([best, back], [[table, table] for table in bids], expected, query, ends=True)


def diamond(left: list[pa.Table], right: list[pa.Table]) -> Case:
    """A join whose results are counted per window, and joined with the counts."""
    span = f"{WITHIN} microseconds"
    pairs = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", within=span)
    measures = {"a_ts": fx.max("a_ts"), "n": fx.count()}
    counts = ft.aggregate(pairs.schema, "k", "a_ts", window=f"{WINDOW} microseconds", **measures)
    again = ft.join({"pair": pairs.schema, "count": counts.schema}, "k", "a_ts", within=span).fed(0, 1)

    def expected() -> list[dict[str, Any]]:
        both = {"a": left, "b": right}
        found = oracle.join(both, {"a": ["k"], "b": ["k"]}, {"a": "ts", "b": "ts"}, near)
        made = whole(found, pairs.schema)
        counted = oracle.tumbling(made, ["k"], "a_ts", WINDOW, 0, measures, everything=True)
        sides = {"pair": made, "count": whole(counted, counts.schema)}
        return oracle.join(sides, {"pair": ["k"], "count": ["k"]}, {"pair": "a_ts", "count": "a_ts"}, near)

    def query(streams: list[Any]) -> Any:
        raise NotImplementedError("these run in process only")

    return Case([pairs, counts, again], [list(both) for both in zip(left, right)], expected, query, ends=True)


@examples(25)
@given(bids=ordered(6), history=st.data())
def test_a_windows_maximum_is_joined_back_to_its_bids(bids, history):
    case = joined_back(bids)
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory)
    assert results == case.expected()


@examples(25)
@given(left=ordered(5), right=ordered(5), spills=st.booleans(), history=st.data())
def test_results_may_feed_several_stages(left, right, spills, history):
    case = diamond(left, right)
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory, spills=spills)
    assert results == case.expected()


def test_a_graph_that_changed_is_another_query(tmp_path):
    first = diamond([], []).stages
    ft.LocalEngine(first, str(tmp_path))
    with pytest.raises(CheckpointError, match="feeds"):
        ft.LocalEngine([*first[:2], first[2].fed(1, 0)], str(tmp_path))
