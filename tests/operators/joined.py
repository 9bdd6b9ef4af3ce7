"""A join of two inputs in process, and ways to send its groups to disk and back."""

from __future__ import annotations

import pyarrow as pa

import fluxen.testing as ft
from fluxen.control.memory import spilling

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])
GROUPS = list(range(8))
SIDE = 10_000_000


def rows(*triples: tuple[int, int, int]) -> pa.Table:
    """(key, second, value) of each row."""
    k, s, v = zip(*triples) if triples else ((), (), ())
    times = pa.array([second * 1_000_000 for second in s], pa.int64()).cast(TIME)
    return pa.table([pa.array(k, pa.int64()), times, pa.array(v, pa.int64())], schema=SCHEMA)


def bench(directory, **options):
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", **options)
    return ft.LocalEngine([stage], str(directory), sites=2, partitions=8)


def pairs(results: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(results.column("a_v").to_pylist(), results.column("b_v").to_pylist()))


def to_disk(stage, state, epoch):
    return spilling.spill(state, GROUPS, epoch)


def bring_back(stage, state, epoch):
    return spilling.unspill(state, GROUPS)


def clean(stage, state, epoch):
    return spilling.cleanup(state, GROUPS)
