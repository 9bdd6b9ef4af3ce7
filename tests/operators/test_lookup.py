"""Small runs are scanned and large ones searched; both must find the same rows. Rows of one file need no copy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from fluxen.operators.join import reduction
from fluxen.site.wire import Wire, decode
from fluxen.state.routing import Routing
from fluxen.state.sorted_run import SortedRun, memory_run
from tests.effort import examples

ROUTING = Routing.even(partitions=4, sites=2)
KEYS = np.sort(np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 12))


@examples(60)
@given(
    stored=some.lists(some.tuples(some.integers(0, 11), some.integers(0, 9)), min_size=1, max_size=40),
    asked=some.dictionaries(some.integers(0, 11), some.tuples(some.integers(0, 9), some.integers(0, 9)), min_size=1),
    whole=some.booleans(),
)
def test_scanning_a_run_finds_what_searching_it_finds(
    stored: list[tuple[int, int]], asked: dict[int, tuple[int, int]], whole: bool
) -> None:
    run = _run(stored, whole)
    keys = KEYS[sorted(asked)]
    first, last = (np.array([asked[key][end] for key in sorted(asked)]) for end in (0, 1))
    groups = ROUTING.groups(keys)
    scanned = reduction._scan(run, keys, groups, first, last)
    searched = reduction._search(run, keys, groups, np.arange(len(keys)), first, last)
    for one, other in zip(scanned, searched):
        np.testing.assert_array_equal(one, other)


def _run(stored: list[tuple[int, int]], whole: bool) -> SortedRun:
    rows = sorted(stored)
    h, t = KEYS[[key for key, _ in rows]], np.array([time for _, time in rows])
    run = memory_run(pa.table({"_h": h, "_t": t}), ROUTING)
    return run if whole else SortedRun(run.ref, run.segment, ROUTING.owned(0), False)


@pytest.mark.parametrize("source", [[-1, 0, 0, -1, 1, 1, 1], [-1, 1, 0, 1, 0, 1, -1], [0, -1], [-1]])
def test_rows_are_told_apart_by_input_wherever_they_lie(source: list[int]) -> None:
    rows = len(source)
    columns = {"_in": source, "_h": range(rows), "_t": range(rows), "_0": [f"row {row}" for row in range(rows)]}
    wire = Wire(inputs=((("a", "_0"),), (("b", "_0"),)), exact=True)
    site, inputs = decode(wire, [pa.record_batch({name: pa.array(values) for name, values in columns.items()})])
    assert site == 0
    for number, (name, found) in enumerate(zip("ab", inputs)):
        expected = [row for row in range(rows) if source[row] == number]
        assert found.h.tolist() == found.t.tolist() == expected
        assert found.table.column(name).to_pylist() == [f"row {row}" for row in expected]
