"""What a segment is, it says itself: state, rows that wait, a generation on disk."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

import fluxen.testing as ft
from fluxen.control.memory import spilling
from fluxen.site.context import SkewBuffer
from fluxen.testing import oracle

TIME = pa.timestamp("us")
SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])
GROUPS = list(range(8))


def rows(seed: int, second: int, count: int = 12, keys: int = 6) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = pa.array(second * 1_000_000 + rng.integers(0, 1_000_000, count)).view(TIME)
    return pa.table(
        [pa.array(rng.integers(0, keys, count)), times, pa.array(rng.integers(0, 99, count))], schema=SCHEMA
    )


def flushed(query: ft.LocalEngine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while query.flush_due():
        found += query.flush().to_pylist()
    return found


def kinds(query: ft.LocalEngine) -> tuple[set[str], set[tuple[str, int]]]:
    """Of the state, what it is; of what waits, also whose rows they are."""
    stage = query.epoch.stages[0]
    return {ref.kind for ref in stage.segments}, {(ref.kind, ref.side) for ref in stage.buffer}


def test_a_segment_says_what_it_is_through_spills_moves_and_restarts(tmp_path):
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts")
    buffer = SkewBuffer(seconds=1.0, bytes=1 << 20, piece_rows=1)
    waits = {("buffer", 0), ("buffer", 1)}

    def engine() -> ft.LocalEngine:
        ticks = itertools.count(0.0, 10.0)
        return ft.LocalEngine([stage], str(tmp_path), sites=2, partitions=8, buffer=buffer, clock=lambda: next(ticks))

    query = engine()
    inputs = [[rows(2 * number, number, 40, 30), rows(2 * number + 1, number, 40, 30)] for number in range(4)]
    found = query.step(0, inputs[0]).to_pylist()
    assert kinds(query) == ({"state"}, waits)
    found += query.step(1, inputs[1], change=lambda _, state, epoch: spilling.spill(state, GROUPS, epoch)).to_pylist()
    assert kinds(query) == ({"generation"}, waits)
    found += query.step(2, inputs[2], reroute=lambda _, routing: routing.moved(np.array(GROUPS), 1)).to_pylist()
    assert kinds(query) == ({"state", "generation"}, waits)
    query = engine()
    assert kinds(query) == ({"state", "generation"}, waits)
    back = query.step(3, inputs[3], change=lambda _, state, epoch: spilling.unspill(state, GROUPS))
    found += [*back.to_pylist(), *flushed(query)]
    assert kinds(query) == ({"state"}, set())
    expected = oracle.join(
        {"a": [a for a, _ in inputs], "b": [b for _, b in inputs]},
        {"a": ["k"], "b": ["k"]},
        {"a": "ts", "b": "ts"},
        lambda times: True,
    )
    assert Counter(oracle.canonical_rows(found)) == Counter(oracle.canonical_rows(expected))
