"""A query that adapts while it runs on Spark: groups move, heavy keys get groups of their own, sites come and go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluxen as fx
from fluxen.testing import feed, oracle

pytestmark = pytest.mark.spark

TIME = pa.timestamp("us", "UTC")


def zipf_batches(batches: int, rows: int, keys: int = 2000, seed: int = 3) -> list[pa.Table]:
    """Rows whose keys follow Zipf(1.0), one second of event time per batch."""
    rng = np.random.default_rng(seed)
    weight = 1.0 / np.arange(1, keys + 1)
    made = []
    for number in range(batches):
        key = rng.choice(keys, size=rows, p=weight / weight.sum())
        ts = number * 1_000_000 + np.sort(rng.integers(0, 1_000_000, rows))
        made.append(pa.table({"k": key, "ts": pa.array(ts).cast(TIME), "v": rng.integers(0, 100, rows)}))
    return made


def last_three(spark: Any, batches: list[pa.Table]) -> Any:
    return fx.aggregate(feed(spark, batches), by="k", time="ts", n=fx.count(), total=fx.sum("v"), last=3)


def expected(batches: list[pa.Table]) -> list[str]:
    return oracle.canonical_rows(oracle.last(batches, ["k"], "ts", 3, {"n": fx.count(), "total": fx.sum("v")}))


def imbalance(run: Any, epochs: slice) -> float:
    """Most over mean rows per site, less one, averaged over some epochs."""
    ratios = []
    for epoch in run.epochs[epochs]:
        rows = [site["rows_in"] for site in epoch["stages"][0]["sites"]]
        ratios.append(max(rows) / np.mean(rows) - 1)
    return float(np.mean(ratios))


def test_groups_that_move_at_random_lose_and_double_nothing(spark, drain, collected):
    batches = zipf_batches(8, 300)
    query = last_three(spark, batches).adapt(sites=3, partitions=16, policy=fx.Random(seed=5, period=0.0, moves=2))
    run = drain(query, collected)
    assert collected.canonical() == expected(batches)
    assert sum(event["kind"] == "move" and event["outcome"] == "done" for event in run.events) >= 5


def test_readj_halves_the_imbalance_of_consistent_hash_on_zipf_keys(spark, drain, collected):
    batches = zipf_batches(12, 2000)
    runs = {}
    for name, partitioner in {"ring": fx.ConsistentHash(), "readj": fx.Readj(sigma=0.01)}.items():
        query = last_three(spark, batches).adapt(sites=8, partitions=256, partitioner=partitioner)
        runs[name] = drain(query, collected, checkpoint=name)
    settled = slice(8, None)
    assert imbalance(runs["readj"], settled) <= imbalance(runs["ring"], settled) / 2
    assert any(event["kind"] == "repartition" for event in runs["readj"].events)
    assert len(runs["readj"].epoch["stages"][0]["sites"]) == 8


def test_rescaling_during_the_run_moves_little_and_keeps_results_right(spark, tmp_path, collected):
    batches = zipf_batches(14, 1000)
    asked = {4: 7, 9: 5}

    def sink(results: Any, epoch: int) -> None:
        collected(results, epoch)
        if epoch in asked:
            run.rescale(asked[epoch])

    query = last_three(spark, batches).adapt(sites=4, partitions=256, partitioner=fx.Slotted())
    writer = query.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    run = writer.trigger(availableNow=True).start()
    run.awaitTermination()
    assert collected.canonical() == expected(batches)
    assert [len(epoch["stages"][0]["sites"]) for epoch in run.epochs] == [4] * 5 + [7] * 5 + [5] * 4
    state = {epoch["epoch"]: epoch["state_bytes"] for epoch in run.epochs}
    rescales = [event for event in run.events if event["kind"] == "rescale"]
    ideal = [state[rescales[0]["epoch"]] * 3 / 7, state[rescales[1]["epoch"]] * 2 / 7]
    for event, least in zip(rescales, ideal):
        assert 0 < event["bytes"] <= 1.5 * least


def test_a_restart_with_another_number_of_sites_goes_on_with_the_adapted_routing(spark, drain, collected, tmp_path):
    batches = zipf_batches(10, 500)

    def query(upto: int, sites: int) -> Any:
        stream = feed(spark, batches[:upto], tmp_path / "input")
        aggregated = fx.aggregate(stream, by="k", time="ts", n=fx.count(), total=fx.sum("v"), last=3)
        return aggregated.adapt(sites=sites, partitions=64, partitioner=fx.Readj(sigma=0.01))

    heavy = drain(query(6, 4), collected).epoch["stages"][0]["routing"]["explicit"]
    run = drain(query(10, 5), collected)
    assert heavy
    assert set(heavy) <= set(run.epoch["stages"][0]["routing"]["explicit"])
    assert len(run.epoch["stages"][0]["sites"]) == 5
    assert imbalance(run, slice(-4, None)) < 0.25  # a fifth of the rows each, within what so few rows vary by
    assert collected.canonical() == expected(batches)
