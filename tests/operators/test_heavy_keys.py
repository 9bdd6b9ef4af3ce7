"""What sites report of keys and groups: rows of the source for frequencies, rows as they came for loads."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pyarrow as pa

import fluxen as fx
import fluxen.testing as ft
from fluxen.control import collect
from fluxen.operators.base import Input
from fluxen.site.context import SiteContext, SkewBuffer
from fluxen.site.task import run_site
from fluxen.state.record import SiteRecord, read_records

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def report(bench: ft.LocalEngine, stage: ft.LocalStage, rows: Input, **options: Any) -> SiteRecord:
    job = SiteContext(
        store=bench.store,
        epoch=bench.epoch.number + 1,
        stage=0,
        operator=stage.stage.operator,
        before=bench.epoch.stages[0],
        track_heavy=True,
        **options,
    )
    list(run_site(job, lambda: (0, [rows]), "a"))
    return read_records(bench.store, job.epoch)[0, 0]


def test_a_key_combined_before_it_travels_is_reported_with_its_true_rows():
    stage = ft.aggregate(SCHEMA, "k", n=fx.count())
    with tempfile.TemporaryDirectory() as directory:
        bench = ft.LocalEngine([stage], directory, sites=1, partitions=4)
        # four tasks of 62,500 rows of key 0 each, and a thousand other keys with 750 rows each in one task
        table = pa.table({"k": [0] * 4 + list(range(1, 1001)), "v": [1] * 1004})
        weight = np.array([62_500] * 4 + [750] * 1000, dtype=np.int64)
        encoded = stage.encode(0, table)
        record = report(bench, stage, Input(encoded.h, encoded.h2, encoded.t, encoded.table, weight))
    hottest = int(np.argmax(record.heavy.rows))
    assert record.heavy.key[hottest] == int(encoded.h[0])
    assert record.heavy.rows[hottest] == 250_000
    assert record.heavy.arrived[hottest] == 4
    assert sum(record.groups.rows_in) == 1_000_000
    assert sum(record.groups.worked) == sum(record.groups.arrived) == 1004
    stats = collect(bench.epoch.stages[0], [record], seconds=1.0)
    assert stats.rows_in.sum() == stats.site_rows_in.sum() == 1004


def test_arrivals_are_compared_with_arrivals_whatever_waits():
    stage = ft.aggregate(SCHEMA, "k", last=2, n=fx.count())
    times = iter(np.arange(1000) * 10.0)
    with tempfile.TemporaryDirectory() as directory:
        buffer = SkewBuffer(seconds=1.0, bytes=1 << 20, piece_rows=1)
        bench = ft.LocalEngine([stage], directory, sites=1, partitions=4)
        rows = stage.encode(0, pa.table({"k": [7] * 50 + list(range(50)), "v": [1] * 100}))
        record = report(bench, stage, rows, buffer=buffer, clock=lambda: float(next(times)))
    assert sum(record.groups.worked) < 100  # most of it waits
    assert sum(record.groups.arrived) == 100
    assert sum(side.rows_in for side in record.sides) == 100
    assert max(record.heavy.rows) == 51


def test_bytes_of_a_key_are_its_part_of_its_groups_state():
    stage = ft.aggregate(SCHEMA, "k", last=5, n=fx.count())
    with tempfile.TemporaryDirectory() as directory:
        bench = ft.LocalEngine([stage], directory, sites=1, partitions=1)
        record = report(bench, stage, stage.encode(0, pa.table({"k": [7] * 50 + [1, 2, 3], "v": [1] * 53})))
    [held] = record.groups.bytes
    assert len(record.heavy.key) == 1
    assert 0 < record.heavy.bytes[0] < held
