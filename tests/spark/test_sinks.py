"""Sinks: whatever they do with an epoch's results, the state is complete and every result is delivered once."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fluxen as fx
from fluxen.state.epoch import EpochLog
from fluxen.testing import feed, feeds
from tests.conftest import Collected
from tests.spark.rows import events

pytestmark = pytest.mark.spark

A = [events([1, 2, 3, 4], [0, 1, 2, 3], [1, 2, 3, 4]), events([5], [4], [5])]
B = [events([9], [0], [0]), events([1, 2, 3, 4, 5], [4, 4, 4, 4, 4], [10, 20, 30, 40, 50])]
PAIRS = [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)]


def query(spark: Any, directory: Path, batches: int = 2) -> Any:
    streams = feeds(spark, {"a": A[:batches], "b": B[:batches]}, directory / "input")
    return fx.join(streams, on="k", time="ts", within="1 minute").adapt(sites=2, partitions=8)


def pairs(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["a_v"], row["b_v"]) for row in rows)


def twice(results: Any, epoch: int) -> None:
    assert sorted(results.collect()) == sorted(results.collect())


def kept(results: Any, epoch: int) -> None:
    results.persist()
    assert results.count() == len(results.collect())
    results.unpersist()


READERS = {
    "evaluates the results twice": twice,
    "reads one row": lambda results, epoch: results.limit(1).collect(),
    "asks whether there are any": lambda results, epoch: results.isEmpty(),
    "does not look at them": lambda results, epoch: None,
    "puts all sites into one task": lambda results, epoch: results.coalesce(1).collect(),
    "caches them": kept,
}


@pytest.mark.parametrize("reader", READERS)
def test_the_state_is_complete_after_a_sink_that(reader, spark, drain, collected, tmp_path):
    first = drain(query(spark, tmp_path, 1), READERS[reader])
    assert first.epoch["epoch"] == 0
    drain(query(spark, tmp_path), collected)
    assert pairs(collected.rows) == PAIRS
    assert collected.calls == [1]


@pytest.mark.parametrize("reads", [False, True], ids=["before reading", "after reading"])
def test_a_sink_that_raises_commits_nothing_and_gets_the_same_epoch_again(reads, spark, drain, collected, tmp_path):
    def failing(results: Any, epoch: int) -> None:
        if epoch == 0 or reads:
            collected(results, epoch)
        if epoch == 1:
            raise RuntimeError("the database is away")

    with pytest.raises(Exception, match="the database is away"):
        drain(query(spark, tmp_path), failing)
    done = drain(query(spark, tmp_path), collected)
    assert done.epoch["epoch"] == 1
    assert collected.calls == [0, 1, 1] if reads else [0, 1]
    assert pairs(collected.rows) == PAIRS


def written(place: Path, source: str) -> list[tuple[int, int]]:
    rows = []
    for path in place.rglob("part-*"):
        assert "_fluxen" not in path.parts, "staged files were left behind"
        if source == "parquet":
            rows += pq.ParquetFile(path).read().to_pylist()
        else:
            rows += [json.loads(line) for line in path.read_text().splitlines()]
    return pairs(rows)


@pytest.mark.parametrize(("source", "by"), [("parquet", []), ("json", []), ("json", ["k"])])
def test_files_hold_every_result_once_after_an_epoch_was_delivered_twice(spark, tmp_path, monkeypatch, source, by):
    out = tmp_path / "out"

    def start() -> Any:
        writer = query(spark, tmp_path).writeStream.format(source).partitionBy(*by).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(out))

    with monkeypatch.context() as patched:
        commit = EpochLog.commit

        def dies(log: EpochLog, epoch: Any) -> None:
            if epoch.number == 1:
                raise RuntimeError("killed between the sink and the commit")
            commit(log, epoch)

        patched.setattr(EpochLog, "commit", dies)
        with pytest.raises(Exception, match="killed between"):
            start().awaitTermination()
    assert written(out, source) == PAIRS
    own = next(path.name for path in out.rglob("part-e0000000001-*"))[5:26]
    orphan = out / "_fluxen" / f"{own}dead"
    orphan.mkdir(parents=True)
    (orphan / f"part-x.{source}").write_text("staged by an attempt that died")
    start().awaitTermination()
    assert written(out, source) == PAIRS


def counted(spark: Any, directory: Path, checkpoint: Path, batches: int) -> list[int]:
    """The counts in a directory of files, to which a run over so many batches has been added."""
    rows = feed(spark, [pa.table({"k": [7]})] * batches, directory / "input")
    writer = fx.aggregate(rows, by="k", n=fx.count()).adapt(sites=1, partitions=4).writeStream.format("json")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start(str(directory / "out")).awaitTermination()
    lines = [line for path in (directory / "out").rglob("part-*") for line in path.read_text().splitlines()]
    return sorted(json.loads(line)["n"] for line in lines)


def test_queries_that_write_files_into_one_directory_leave_each_others_alone(spark, tmp_path):
    assert counted(spark, tmp_path, tmp_path / "first", 3) == [1, 2, 3]
    assert counted(spark, tmp_path, tmp_path / "second", 3) == [1, 1, 2, 2, 3, 3]


def test_files_of_all_epochs_after_a_restored_copy_are_replaced(spark, tmp_path):
    counted(spark, tmp_path, tmp_path / "checkpoint", 1)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    assert counted(spark, tmp_path, tmp_path / "checkpoint", 3) == [1, 2, 3]
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "copy", tmp_path / "checkpoint")
    assert counted(spark, tmp_path, tmp_path / "checkpoint", 4) == [1, 2, 3, 4]


def test_a_memory_sink_is_a_table_of_the_users_session(spark, tmp_path):
    writer = query(spark, tmp_path).writeStream.format("memory").queryName("joined").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    rows = spark.sql("select a_v, b_v from joined").collect()
    assert sorted(map(tuple, rows)) == PAIRS


def test_a_console_sink_shows_rows(spark, tmp_path, capsys):
    writer = query(spark, tmp_path).writeStream.format("console").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    shown = capsys.readouterr().out
    assert "epoch 1" in shown
    assert "50" in shown


def test_epochs_count_up_by_one_over_restarts(spark, drain, tmp_path):
    sink = Collected()
    drain(query(spark, tmp_path, 1), sink)
    drain(query(spark, tmp_path, 1), sink)
    drain(query(spark, tmp_path), sink)
    assert sink.calls == [0, 1]


def test_delta_knows_writes_by_an_id_of_the_checkpoint_not_by_its_place(spark, tmp_path):
    """There is no Delta here: what counts is what the sink hands to it."""
    from fluxen.spark.run import Run
    from fluxen.spark.sinks.base import SinkWords
    from fluxen.spark.sinks.registry import builtin_sink
    from fluxen.spark.sinks.tables import DeltaSink

    joined = query(spark, tmp_path)
    seen = []
    for attempt in range(3):
        if attempt == 2:
            shutil.rmtree(tmp_path / "checkpoint")
        options = {"path": str(tmp_path / f"out{attempt}"), "mergeSchema": "true"}
        words = SinkWords(
            spark=spark, source="delta", options=options, partition_by=[], name=None, schema=joined.schema
        )
        sink = builtin_sink(words)
        assert isinstance(sink, DeltaSink)
        run = Run(joined, sink, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True}, name=None)
        sink.__class__ = type("Recording", (DeltaSink,), {"__call__": lambda self, results, epoch: results.count()})
        run.start().awaitTermination()
        given = sink.options_of(5)
        assert given["txnVersion"] == "5"
        assert {key: given[key] for key in options} == options
        seen.append(given["txnAppId"])
    assert uuid.UUID(seen[0])
    assert seen[0] == seen[1]
    assert seen[2] != seen[1]
    assert str(tmp_path) not in seen[2]
