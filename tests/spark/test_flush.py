"""Epochs without a Spark batch: what the watermark has closed leaves when input pauses or ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fluxen as fx
from fluxen.testing import feed
from fluxen.testing.streams import append
from tests.conftest import Collected
from tests.spark.rows import events

pytestmark = pytest.mark.spark

ROWS = events([1, 1, 2, 1, 2], [0, 4, 5, 11, 21], [1, 2, 3, 4, 5])
CLOSED = [(1, 0, 2), (1, 10, 1), (2, 0, 1)]
OPEN = [(2, 20, 1)]


def windows(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return sorted((row["k"], int(row["window"]["start"].timestamp()), row["n"]) for row in rows)


def tumbling(stream: Any) -> Any:
    counted = fx.aggregate(stream, by="k", time="ts", window="10 seconds", n=fx.count())
    return counted.adapt(sites=2, partitions=8)


def until(condition: Callable[[], bool], run: Any) -> None:
    """Wait for a condition of a running query; a query that has failed raises."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "gave up waiting"
        if run.exception() is not None:
            raise run.exception()
        time.sleep(0.1)


def start(query: Any, sink: Any, directory: Path) -> Any:
    writer = query.writeStream.foreachBatch(sink).option("checkpointLocation", str(directory / "checkpoint"))
    return writer.start()


def test_windows_the_watermark_has_passed_come_out_at_the_end_of_a_finite_run(spark, drain, collected):
    drain(tumbling(feed(spark, [ROWS])), collected)
    assert windows(collected.rows) == CLOSED
    assert collected.calls == [0, 1]


def test_a_batch_without_a_row_is_an_epoch_in_which_nothing_happens(spark, drain, collected):
    """No site runs in it; what was due before it comes out after it."""
    run = drain(tumbling(feed(spark, [ROWS.slice(0, 4), ROWS.slice(0, 0), ROWS.slice(4)])), collected)
    assert windows(collected.rows) == CLOSED
    idle = run.recentProgress[1]["fluxen"]
    assert (idle["rows_in"], idle["results"], idle["state_rows"]) == (
        0,
        0,
        run.recentProgress[0]["fluxen"]["state_rows"],
    )
    assert [entry["fluxen"]["batch"] for entry in run.recentProgress] == [0, 1, 2]
    (stage,) = run.recentProgress[1]["fluxen"]["stages"]
    assert (stage["sides"][0]["rows_in"], sum(stage["groups"]["rows_in"])) == (0, 0)
    assert sum(stage["groups"]["bytes"]) > 0


def test_all_windows_come_out_at_the_end_of_input(spark, drain, collected):
    drain(tumbling(feed(spark, [ROWS])), collected, endOfInput=True)
    assert windows(collected.rows) == sorted(CLOSED + OPEN)


def test_a_second_start_after_the_end_of_input_adds_nothing(spark, drain, collected, tmp_path):
    stream = feed(spark, [ROWS], tmp_path / "input")
    drain(tumbling(stream), collected, endOfInput=True)
    drain(tumbling(stream), collected, endOfInput=True)
    assert windows(collected.rows) == sorted(CLOSED + OPEN)


def test_at_the_end_of_input_each_stage_hands_its_last_windows_to_the_next(spark, drain, collected):
    first = fx.aggregate(feed(spark, [ROWS]), by="k", time="ts", window="10 seconds", n=fx.count(), at=fx.max("ts"))
    second = first.aggregate(by="k", time="at", window="1 hour", windows=fx.count(), n=fx.sum("n"))
    drain(second, collected, endOfInput=True)
    assert sorted((r["k"], r["windows"], r["n"]) for r in collected.rows) == [(1, 2, 3), (2, 2, 2)]


def test_windows_come_out_when_the_input_of_a_running_query_pauses(spark, collected, tmp_path):
    stream = feed(spark, [ROWS], tmp_path / "input")
    run = start(tumbling(stream), collected, tmp_path)
    until(lambda: len(collected.rows) == len(CLOSED), run)
    append(tmp_path / "input", 1, events([3], [45], [9]))
    until(lambda: len(collected.rows) == len(CLOSED) + 1, run)
    run.stop()
    assert windows(collected.rows) == sorted(CLOSED + OPEN)
    assert collected.calls == list(range(len(collected.calls)))


def test_a_flush_that_was_interrupted_is_delivered_again_before_new_rows(spark, drain, collected, tmp_path):
    def failing(results: Any, epoch: int) -> None:
        collected(results, epoch)
        if epoch == 1:
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        drain(tumbling(feed(spark, [ROWS], tmp_path / "input")), failing)
    later = events([2, 3], [25, 45], [6, 7])
    drain(tumbling(feed(spark, [ROWS, later], tmp_path / "input")), collected)
    assert collected.calls == [0, 1, 1, 2, 3]
    assert windows(collected.epochs[1]) == CLOSED
    assert windows(collected.rows) == sorted([*CLOSED, (2, 20, 2)])


def test_a_batch_that_was_interrupted_is_delivered_again_before_anything_is_flushed(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("fluxen.spark.watch.IDLE_SECONDS", 3600.0)
    sink = Collected()
    later = events([2, 3], [25, 45], [6, 7])

    def failing(results: Any, epoch: int) -> None:
        sink(results, epoch)
        if epoch == 1:
            raise RuntimeError("interrupted")

    run = start(tumbling(feed(spark, [ROWS, later], tmp_path / "input")), failing, tmp_path)
    with pytest.raises(Exception, match="interrupted"):
        run.awaitTermination()
    monkeypatch.setattr("fluxen.spark.watch.IDLE_SECONDS", 0.0)
    again = start(tumbling(feed(spark, [ROWS, later], tmp_path / "input")), sink, tmp_path)
    until(lambda: len(sink.rows) == len(CLOSED) + 1, again)
    again.stop()
    assert windows(sink.rows) == sorted([*CLOSED, (2, 20, 2)])


def test_a_sink_that_fails_while_input_pauses_ends_the_query(spark, tmp_path):
    def failing(results: Any, epoch: int) -> None:
        if results.count():
            raise RuntimeError("the flush failed")

    run = start(tumbling(feed(spark, [ROWS], tmp_path / "input")), failing, tmp_path)
    with pytest.raises(RuntimeError, match="the flush failed"):
        run.awaitTermination()
    assert not run.isActive
    assert not any(query.isActive for query in spark.streams.active)
