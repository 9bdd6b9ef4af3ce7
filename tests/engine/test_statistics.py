"""What a run notes of its epochs: all of them, also over a restart, and never at the price of the query."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fluxen.cli.main import main
from fluxen.dashboard.source import Source
from fluxen.engine import statistics as noting
from fluxen.engine.runtime import Evaluation
from fluxen.errors import StorageError
from fluxen.state.statistics import Statistics
from fluxen.state.store import Store
from tests.dashboard.queries import Spilling


def run(directory: Any, steps: int) -> Any:
    query = Spilling(directory)
    query.batch = query.engine.epoch.batch + 1
    for _ in range(steps):
        query.step()
    query.engine.close()
    return query.engine


def test_every_epoch_is_noted_also_over_a_restart(tmp_path):
    run(tmp_path, 3)
    engine = run(tmp_path, 4)
    statistics = Statistics(Store(str(tmp_path)))
    series = statistics.series()
    assert [(sample["first"], sample["rows_in"]) for sample in series] == [(epoch, 1_000) for epoch in range(7)]
    assert statistics.now()["totals"]["rows_in"] == 7_000
    assert statistics.now()["ended"]["error"] is None
    assert statistics.now()["stages"][0]["placement"] == engine.epoch.stages[0].routing.table.tolist()
    seen = engine.epoch.stats["stages"][0]["groups"]["rows_in"]
    assert [statistics.history(0, "group", group)["rows_in"][-1] for group in (0, 9, 63)] == [
        seen[group] for group in (0, 9, 63)
    ]


def test_a_disk_that_refuses_the_statistics_ends_no_query(tmp_path, monkeypatch, caplog):
    def full(*_: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(Statistics, "write", full)
    with caplog.at_level(logging.WARNING, logger="fluxen"):
        assert run(tmp_path, 2).epoch.number == 1
    assert "statistics of epochs up to 1 are lost: the disk is full" in caplog.text


def test_a_checkpoint_without_statistics_goes_on(tmp_path):
    run(tmp_path, 2)
    for file in (tmp_path / "stats").rglob("*.*"):
        file.write_bytes(b"damaged") if file.suffix == ".json" else file.unlink()
    run(tmp_path, 2)
    assert [sample["first"] for sample in Statistics(Store(str(tmp_path))).series()] == [2, 3]


def test_an_epoch_that_waits_is_written_although_none_follows(tmp_path, monkeypatch):
    monkeypatch.setattr(noting, "EVERY", 3_600.0)
    query, shown = Spilling(tmp_path), Statistics(Store(str(tmp_path)))
    query.step()
    query.engine.loop.statistics.flush()
    query.step()
    query.engine.loop.statistics.keep_up()
    assert shown.now()["epoch"]["last"] == 0
    monkeypatch.setattr(noting, "EVERY", 0.0)
    query.engine.loop.statistics.keep_up()
    assert shown.now()["epoch"]["last"] == 1


def test_a_first_batch_of_which_no_row_came_to_a_site_is_passed_over(tmp_path, monkeypatch):
    """As where Spark sees that a filter lets none through: no site has run, so there is nothing to tell of sites."""
    query = Spilling(tmp_path)
    nothing = Evaluation(finish=lambda stage: None)
    with monkeypatch.context() as only:
        only.setattr(query.engine.loop.runtime, "evaluate", lambda task: nothing)
        query.engine.loop.batch([], query.batch)
    query.batch += 1
    query.step()
    query.engine.close()
    shown = Source(Store(str(tmp_path)))
    assert [entry["stages"] == [] for entry in query.engine.loop.progress.entries] == [True, False]
    assert shown.series(-1)["last"] == [1]
    assert shown.now()["totals"]["rows_in"] == 1_000


def test_the_command_refuses_what_is_no_checkpoint(tmp_path, capsys):
    assert main(["dashboard", str(tmp_path)]) == 1
    assert "is not the checkpoint of a fluxen query" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_the_command_refuses_what_is_no_port(tmp_path, port):
    assert main(["dashboard", str(tmp_path), f"--port={port}"]) == 2
