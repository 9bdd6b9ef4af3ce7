"""Emulated service time: what waits, for how long, and that results stay what they were."""

from __future__ import annotations

import os

import pyarrow as pa

import fluxen as fx
import fluxen.testing as ft
from fluxen.operators.base import SiteInput
from fluxen.state.routing import Routing
from fluxen_lab.emulate import paced

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
ROWS = pa.table({"k": [1, 2, 1, 3], "ts": [0, 1, 2, 3], "v": [5, 6, 7, 8]}, SCHEMA)


def slow(stage: ft.LocalStage, load: paced.Load, seconds: float = 0.01) -> ft.LocalStage:
    from dataclasses import replace

    operator = paced.Paced(operator=stage.stage.operator, seconds=seconds, load=load)
    return replace(stage, stage=replace(stage.stage, operator=operator))


def waited(monkeypatch, tmp_path, load: paced.Load, sites: int = 1) -> tuple[list[float], pa.Table]:
    naps: list[float] = []
    now = [0.0]
    monkeypatch.setattr(paced.time, "sleep", naps.append)
    monkeypatch.setattr(paced.time, "perf_counter", lambda: now[0])
    stage = slow(ft.aggregate(SCHEMA, "k", "ts", last=2, total=fx.sum("v")), load)
    bench = ft.LocalEngine([stage], str(tmp_path), sites=sites, partitions=4)
    return naps, bench.step(0, [ROWS])


def test_every_row_takes_its_time_and_results_are_the_same(monkeypatch, tmp_path):
    naps, results = waited(monkeypatch, tmp_path, paced.SlowSites())
    assert naps == [0.04]
    expected = ft.oracle.last([ROWS], ["k"], "ts", 2, {"total": fx.sum("v")})
    assert ft.oracle.canonical_rows(results.to_pylist()) == ft.oracle.canonical_rows(expected)


def test_a_slow_site_waits_longer_and_only_from_its_time_on(monkeypatch, tmp_path):
    load = paced.SlowSites(sites=(0,), slowdown=3.0, since=3)
    assert waited(monkeypatch, tmp_path / "now", load)[0] == [0.12]
    later = paced.SlowSites(sites=(0,), slowdown=3.0, since=4)
    assert waited(monkeypatch, tmp_path / "later", later)[0] == [0.04]


def test_only_the_executor_that_claims_it_first_is_slow(monkeypatch, tmp_path):
    load = paced.SlowExecutor(claim=str(tmp_path / "claim"), slowdown=2.0)
    assert load.factor(0, 0) == 2.0
    assert load.factor(1, 0) == 2.0
    monkeypatch.setattr(os, "getppid", lambda: -1)
    assert load.factor(0, 0) == 1.0


def test_a_batch_without_rows_takes_no_time():
    stage = slow(ft.aggregate(SCHEMA, "k", "ts", last=2, total=fx.sum("v")), paced.SlowSites(), seconds=1e9)
    rows = stage.encode(0, SCHEMA.empty_table())
    routing = Routing.even(partitions=4, sites=1)
    given = SiteInput(inputs=[rows], runs=[[]], watermarks=(0,), emitted=(0,), late_before=(0,), routing=routing)
    assert list(stage.stage.operator.process(given)) == []
