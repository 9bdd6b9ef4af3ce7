"""What sites leave behind over many batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fluxen.testing as ft
from fluxen.operators.aggregate import functions as fx

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
TIMED = SCHEMA.append(pa.field("ts", pa.timestamp("us", "UTC")))


@pytest.mark.long
@pytest.mark.parametrize("form", [{}, {"last": 5}], ids=["running", "last"])
def test_versions_that_no_longer_count_go_though_runs_are_too_large_to_merge(tmp_path, form):
    rng = np.random.default_rng(1)
    stage = ft.aggregate(SCHEMA, "k", s=fx.sum("v"), **form)
    bench = ft.LocalEngine([stage], str(tmp_path), merge_limit=1 << 16)
    held, seen = [], dict[int, int]()
    for number in range(120):
        keys = rng.integers(0, 1500 if form else 6000, 1000)
        found = bench.step(number, [pa.table({"k": keys, "v": keys})])
        if not form:
            for key in keys.tolist():
                seen[key] = seen.get(key, 0) + key
            assert all(seen[key] == total for key, total in zip(*(found.column(c).to_pylist() for c in ("k", "s"))))
        held.append(bench.epoch.stats["stages"][0]["sides"][0]["state_rows"])
    assert held[-1] <= 1.2 * max(held[30:60])


@pytest.mark.parametrize(
    "stage",
    [
        ft.aggregate(TIMED, "k", "ts", n=fx.count()),
        ft.aggregate(TIMED, "k", "ts", last=3, n=fx.count()),
        ft.top(TIMED, "k", 2, [("v", "desc")], "ts"),
    ],
    ids=["running", "last", "top"],
)
def test_batches_without_an_event_time_are_merged_as_others_are(tmp_path, stage):
    """A source that sends no times for a while, of an operator that keeps rows for ever."""
    bench = ft.LocalEngine([stage], str(tmp_path), sites=1, partitions=2)
    files = []
    for number in range(40):
        second = None if 10 <= number < 30 else number * 1_000_000
        times = pa.array([second], pa.int64()).cast(TIMED.field("ts").type)
        bench.step(number, [pa.table([pa.array([number]), pa.array([1]), times], schema=TIMED)])
        files.append(len(bench.epoch.stages[0].segments))
    assert max(files[10:]) <= max(files[:10])
