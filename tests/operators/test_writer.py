"""What sites leave behind over many batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fluxen.testing as ft
from fluxen.operators.aggregate import functions as fx

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


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
