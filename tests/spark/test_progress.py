"""What people see of a run: progress per site and input, watermarks, late rows; rescaling at a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fluxen as fx
from fluxen.testing import feeds
from tests.spark.rows import SECOND, events

pytestmark = pytest.mark.spark

A = [events(range(40), range(40), range(40)), events(range(40, 60), range(40, 60), range(20))]
B = [events(range(0, 40, 2), range(0, 40, 2), range(20)), events([50, 51, 52], [59, 10, 59], [1, 2, 3])]


def query(spark: Any, directory: Path, batches: int = 2, sites: int = 2) -> Any:
    streams = feeds(spark, {"a": A[:batches], "b": B[:batches]}, directory / "input")
    joined = fx.join(streams, on="k", time="ts", within="1 hour", lateness="5 seconds")
    return joined.adapt(sites=sites, partitions=8)


def test_progress_shows_every_site_and_input(spark, drain, collected, tmp_path):
    run = drain(query(spark, tmp_path), collected)
    shown = run.lastProgress["fluxen"]
    (stage,) = shown["stages"]
    assert [site["site"] for site in stage["sites"]] == [0, 1]
    for site in stage["sites"]:
        assert site["state_rows"] > 0
        assert site["state_bytes"] > 0
        assert site["busy_seconds"] > 0
        assert site["idle_seconds"] >= 0
        assert site["host"]
        assert site["executor"]
    assert min(site["idle_seconds"] for site in stage["sites"]) == 0
    assert [side["rows_in"] for side in stage["sides"]] == [20, 3]
    assert [side["state_rows"] for side in stage["sides"]] == [60, 22]
    assert all(side["state_bytes"] > 0 for side in stage["sides"])
    assert stage["watermarks"] == [54 * SECOND, 54 * SECOND]
    assert (shown["rows_in"], shown["results"], shown["state_rows"]) == (23, 2, 82)
    assert shown["results"] == len(collected.epochs[1])


def test_late_rows_are_dropped_and_counted(spark, drain, collected, tmp_path):
    run = drain(query(spark, tmp_path), collected)
    assert run.lastProgress["fluxen"]["late"] == 1
    assert [side["late"] for side in run.lastProgress["fluxen"]["stages"][0]["sides"]] == [0, 1]
    assert 51 not in {row["k"] for row in collected.rows}


def test_progress_of_recent_batches_belongs_to_their_batch(spark, drain, collected, tmp_path):
    run = drain(query(spark, tmp_path), collected)
    shown = [(entry["batchId"], entry["fluxen"]["rows_in"]) for entry in run.recentProgress]
    assert shown == [(0, 60), (1, 23)]
    assert run.exception() is None
    assert not run.isActive


def test_the_epoch_tells_routing_sizes_and_watermarks(spark, drain, collected, tmp_path):
    epoch = drain(query(spark, tmp_path), collected).epoch
    (stage,) = epoch["stages"]
    assert (epoch["epoch"], epoch["batch"]) == (1, 1)
    assert sum(stage["groups"]["rows_in"]) == 23
    assert len(stage["groups"]["bytes"]) == 8


@pytest.mark.parametrize("sites", [1, 3, 8])
def test_a_restart_with_another_number_of_sites_keeps_all_state(spark, drain, collected, tmp_path, sites):
    drain(query(spark, tmp_path, 1), collected)
    streams = feeds(
        spark, {"a": [A[0], A[0].slice(0, 0)], "b": [B[0], events(range(40), [39] * 40, range(40))]}, tmp_path / "input"
    )
    again = fx.join(streams, on="k", time="ts", within="1 hour", lateness="5 seconds").adapt(sites=sites, partitions=8)
    run = drain(again, collected)
    assert len(run.lastProgress["fluxen"]["stages"][0]["sites"]) == sites
    assert sorted(row["k"] for row in collected.epochs[1]) == list(range(40))
