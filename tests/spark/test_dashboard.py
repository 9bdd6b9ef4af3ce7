"""A run on Spark shows itself: page, metrics, table and plot; listeners and the log hear of it."""

from __future__ import annotations

import json
import logging
import time
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import fluxen as fx
from fluxen.cli.progress import Tracker, view
from fluxen.dashboard.source import Source
from fluxen.engine import statistics
from fluxen.state.store import Store
from fluxen.testing import feed, feeds
from tests.spark.rows import events

pytestmark = pytest.mark.spark

A = [events(range(40), range(40), range(40)), events(range(40, 60), range(40, 60), range(20))]
B = [events(range(0, 40, 2), range(0, 40, 2), range(20)), events([50, 51, 52], [59, 10, 59], [1, 2, 3])]


class Heard(fx.Listener):
    def __init__(self) -> None:
        self.events: list[Any] = []

    def onQueryStarted(self, event: Any) -> None:
        self.events.append(event)

    onQueryProgress = onQueryTerminated = onQueryStarted


class Broken(fx.Listener):
    def onQueryProgress(self, event: Any) -> None:
        raise ValueError("a listener's own mistake")


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return str(answer.read().decode())


def test_a_run_shows_itself_and_tells_those_who_listen(spark, collected, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="fluxen")
    heard, broken = Heard(), Broken()
    fx.add_listener(broken)
    fx.add_listener(heard)
    streams = feeds(spark, {"a": A, "b": B}, tmp_path / "input")
    query = fx.join(streams, on="k", time="ts", within="1 hour", lateness="5 seconds").adapt(sites=2, partitions=8)
    try:
        writer = query.writeStream.foreachBatch(collected).queryName("offers").trigger(availableNow=True)
        run = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        run.awaitTermination()
    finally:
        fx.remove_listener(heard)
        fx.remove_listener(broken)
    kinds = [type(event).__name__ for event in heard.events]
    assert kinds == ["QueryStarted", "QueryProgress", "QueryProgress", "QueryTerminated"]
    assert {event.name for event in heard.events} == {"offers"}
    assert [event.progress["rows_in"] for event in heard.events[1:3]] == [60, 23]
    assert heard.events[-1].exception is None
    lines = [
        json.loads(fx.JsonFormatter().format(record)) for record in caplog.records if record.name == "fluxen.query"
    ]
    assert [line["rows_in"] for line in lines if line.get("event") == "epoch"] == [60, 23]
    assert any("a listener's own mistake" in line.get("traceback", "") for line in lines)
    shown = run.dashboard(port=0)
    try:
        now = json.loads(fetched(shown.page.url + "api/q/0/now"))
        assert (now["name"], now["state"], now["totals"]["rows_in"], now["totals"]["late"]) == (
            "offers",
            "ended",
            83,
            1,
        )
        assert [given["name"] for given in now["query"]["stages"][0]["inputs"]] == ["a", "b"]
        assert now["epoch"]["seconds"].keys() == {"plan", "run", "commit"}
        families = {
            family.name: family for family in text_string_to_metric_families(fetched(shown.page.url + "metrics"))
        }
        assert families["fluxen_rows"].samples[0].value == 83
    finally:
        shown.stop()
    assert "offers" in repr(run)
    assert "<table>" in run._repr_html_()
    pytest.importorskip("matplotlib")
    assert len(run.plot().axes) == 4


def test_the_last_epoch_is_shown_although_none_follows(spark, collected, tmp_path, monkeypatch):
    """Two batches at once and then nothing: the second one's numbers do not wait for a third."""
    monkeypatch.setattr(statistics, "EVERY", 3.0)
    query = fx.aggregate(feed(spark, A, tmp_path / "input"), by="k", n=fx.count()).adapt(sites=2, partitions=8)
    run = query.writeStream.foreachBatch(collected).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        run.processAllAvailable()
        source, end = Source(Store(str(tmp_path / "checkpoint"))), time.monotonic() + 30
        while source.now().get("epoch", {}).get("last") != 1:
            assert time.monotonic() < end, source.now().get("epoch")
            time.sleep(0.1)
        assert run.isActive
    finally:
        run.stop()


def test_a_first_batch_of_which_no_row_comes_to_a_site_is_shown_as_none(spark, collected, tmp_path):
    query = fx.aggregate(feed(spark, A, tmp_path / "input").where("k >= 40"), by="k", n=fx.count())
    writer = query.adapt(sites=2, partitions=8).writeStream.foreachBatch(collected).trigger(availableNow=True)
    run = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    run.awaitTermination()
    first, second = run.epochs
    assert first["stages"] == []
    assert second["rows_in"] == 20
    source = Source(Store(str(tmp_path / "checkpoint")))
    assert source.series(-1)["last"] == [second["epoch"]]
    assert source.now()["totals"]["rows_in"] == 20
    tracker = Tracker(0.0)
    for entry in run.epochs:
        tracker.update([entry], 1.0)
        assert view("title", tracker)
    assert tracker.total("rows") == 20
