"""The skew buffer on Spark: a slow site does not stall the batch, and nothing is lost, doubled or reordered."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fluxen as fx
from fluxen.errors import ConfigError, QueryError
from fluxen.testing import feed, oracle
from fluxen_lab.emulate.paced import SlowSites, paced
from tests.spark.test_adaptation import expected, last_three, zipf_batches

pytestmark = pytest.mark.spark


def waiting(run: Any) -> list[int]:
    return [epoch["waiting_rows"] for epoch in run.epochs]


def test_rows_beyond_the_budget_wait_and_the_results_stay_the_oracles(spark, drain, collected):
    batches = zipf_batches(4, 600, keys=400)
    query = paced(last_three(spark, batches), 1e-3, SlowSites(sites=(0,), slowdown=3.0))
    run = drain(query.adapt(sites=2, partitions=32, time_budget="300 ms"), collected)
    assert collected.canonical() == expected(batches)
    assert max(waiting(run)) > 0
    assert waiting(run)[-1] == 0
    assert len(run.epochs) > len(batches)  # what was left was drained without batches
    assert run.epoch["stages"][0]["buffer"] == []


def test_a_buffer_without_a_time_budget_lets_a_site_stop_when_the_others_are_done(spark, drain, collected):
    batches = zipf_batches(5, 600, keys=400)
    query = paced(last_three(spark, batches), 1e-3, SlowSites(sites=(0,), slowdown=3.0))
    run = drain(query.adapt(sites=2, partitions=32, skew_buffer="64m"), collected)
    assert collected.canonical() == expected(batches)
    assert waiting(run)[0] == 0  # nothing is known about the others yet
    assert max(waiting(run)) > 0
    assert waiting(run)[-1] == 0
    assert all(site["waiting_rows"] == 0 for epoch in run.epochs for site in epoch["stages"][0]["sites"][1:])


def test_a_sink_that_evaluates_twice_sees_the_same_rows(spark, drain):
    batches = zipf_batches(3, 300, keys=100)
    found: list[dict[str, Any]] = []

    def sink(results: Any, epoch: int) -> None:
        once, again = ([row.asDict() for row in results.collect()] for _ in range(2))
        assert oracle.canonical_rows(once) == oracle.canonical_rows(again)
        found.extend(once)

    query = paced(last_three(spark, batches), 2e-3)
    run = drain(query.adapt(sites=2, partitions=32, time_budget="100 ms"), sink)
    assert oracle.canonical_rows(found) == expected(batches)
    assert max(waiting(run)) > 0


def test_windows_close_only_when_their_waiting_rows_are_in(spark, drain, collected):
    batches = zipf_batches(4, 300, keys=100)
    query = fx.aggregate(feed(spark, batches), by="k", time="ts", window="1 second", n=fx.count())
    query = paced(query, 2e-3, SlowSites(sites=(0,), slowdown=3.0))
    drain(query.adapt(sites=2, partitions=32, time_budget="100 ms"), collected, endOfInput=True)
    exact = oracle.tumbling(batches, ["k"], "ts", 1_000_000, 0, {"n": fx.count()}, everything=True)
    assert collected.canonical() == oracle.canonical_rows(exact)


def test_bad_settings_are_named(spark):
    query = last_three(spark, [pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us", "UTC")), "v": [1]})])
    with pytest.raises(QueryError, match="time_budget"):
        query.adapt(time_budget="soon")
    with pytest.raises(ConfigError, match="skew_buffer"):
        query.adapt(time_budget="1 second", skew_buffer="much")
