"""What users ask of a running query is not lost, and what they give it is shared out as they were told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fluxen as fx
import fluxen.testing as ft
from fluxen.engine.options import AdaptOptions
from fluxen.errors import ConfigError
from fluxen.testing import feed
from tests.conftest import Collected
from tests.spark.rows import events

pytestmark = pytest.mark.spark


def batches(count: int) -> list[Any]:
    return [events([1, 2, 3, 4], [number] * 4, [number] * 4) for number in range(count)]


def sites(run: Any) -> int:
    return len(run.epoch["stages"][0]["sites"])


def test_a_rescale_asked_for_while_an_epoch_is_under_way_counts_from_the_next_one(spark, tmp_path, collected):
    query = fx.aggregate(feed(spark, batches(4)), by="k", n=fx.count()).adapt(sites=1, partitions=8)
    found: list[Any] = []

    def sink(results: Any, epoch: int) -> None:
        collected(results, epoch)
        if epoch == 1:
            found[0].rescale(2)
            found[0].rescale(3)

    writer = query.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "ck"))
    found.append(writer.start())
    found[0].processAllAvailable()
    assert [len(entry["stages"][0]["sites"]) for entry in found[0].epochs] == [1, 1, 3, 3]
    found[0].stop()
    with pytest.raises(ConfigError, match=r"the query has ended; start it again with adapt\(sites=2\)"):
        found[0].rescale(2)
    assert [row["n"] for row in collected.rows] == [n for n in (1, 2, 3, 4) for _ in range(4)]


def test_a_rescale_that_no_epoch_has_seen_survives_a_restart(spark, tmp_path):
    def start(count: int) -> Any:
        stream = feed(spark, batches(count), tmp_path / "input")
        query = fx.aggregate(stream, by="k", n=fx.count()).adapt(sites=1, partitions=8)
        writer = query.writeStream.foreachBatch(Collected()).option("checkpointLocation", str(tmp_path / "ck"))
        run = writer.start()
        run.processAllAvailable()
        return run

    run = start(1)
    run.rescale(3)  # there are no more rows, so no epoch takes it
    run.stop()
    assert sites(run) == 1
    run = start(3)
    run.stop()
    assert sites(run) == 3
    assert not (tmp_path / "ck" / "rescale.json").exists()


def test_stages_share_a_sites_memory(spark, tmp_path):
    keeping = ft.distinct(pa.schema([("k", pa.int64())]), "k").stage.operator
    passing = ft.union(2, pa.schema([("k", pa.int64())])).stage.operator
    two = [keeping, passing, keeping]
    assert AdaptOptions(memory_per_site="8m").by_stage(two)[0].memory == 4 << 20
    assert AdaptOptions(memory_per_site=["8m", "4m"]).by_stage(two)[2].memory == (4 << 20, 2 << 20)
    assert AdaptOptions().by_stage(two)[0].memory is None
    alone = AdaptOptions(memory_per_site="8m", stages={1: {"memory_per_site": "1m"}}).by_stage(two)
    assert [one.memory for one in alone[::2]] == [1 << 20, 8 << 20]
    query = fx.distinct(feed(spark, batches(1)), by=["k", "v"]).aggregate(by="k", n=fx.count())
    query = query.adapt(sites=2, partitions=8, memory_per_site="8m")
    writer = query.writeStream.foreachBatch(Collected()).option("checkpointLocation", str(tmp_path / "ck"))
    run = writer.start()
    run.stop()
    assert [adaptation.memory for adaptation in run._loop.adaptations] == [4 << 20, 4 << 20]
