"""A running query holds its checkpoint: a second one is refused before its Spark query starts."""

from __future__ import annotations

import json

import pytest

import fluxen as fx
from fluxen.cli import main
from fluxen.cli.inspect import inspect
from fluxen.errors import CheckpointError
from fluxen.testing import feed
from tests.spark.rows import events

pytestmark = pytest.mark.spark


def test_two_runs_on_one_checkpoint(spark, tmp_path, collected):
    query = fx.distinct(feed(spark, [events([1], [0], [1])]), by="k").adapt(sites=2, partitions=8)
    writer = query.writeStream.foreachBatch(collected).option("checkpointLocation", str(tmp_path / "ck"))
    run = writer.start()
    with pytest.raises(CheckpointError, match=r"is in use by process .* stop\(\) that query first"):
        query.writeStream.foreachBatch(collected).option("checkpointLocation", str(tmp_path / "ck")).start()
    run.processAllAvailable()
    found = inspect(str(tmp_path / "ck"))
    assert found["ok"]
    assert found["claim"]["host"]
    run.stop()
    assert inspect(str(tmp_path / "ck"))["claim"] is None
    again = writer.start()
    again.processAllAvailable()
    again.stop()
    assert [row["k"] for row in collected.rows] == [1]


def test_a_query_that_cannot_start_leaves_its_checkpoint_free(spark, tmp_path, collected):
    query = fx.distinct(feed(spark, [events([1], [0], [1])]), by="k").adapt(sites=2, partitions=8)
    for _ in range(2):
        writer = query.adapt(partitions=16).writeStream.foreachBatch(collected).trigger(processingTime="soon")
        with pytest.raises(Exception, match=r"(?i)interval|soon"):
            writer.option("checkpointLocation", str(tmp_path / "ck")).start()
    assert inspect(str(tmp_path / "ck"))["claim"] is None


def test_the_command_line_refuses_before_spark_starts(tmp_path, capsys, monkeypatch):
    from fluxen.spark import cli_session as quiet
    from fluxen.state import claim
    from fluxen.state.store import Store

    claim.take(Store(str(tmp_path / "ck")))
    monkeypatch.setattr(quiet, "session", lambda *a, **k: pytest.fail("Spark was started"))
    file = tmp_path / "query.toml"
    text = (
        '[sources.a]\nformat="parquet"\npath="in"\n[distinct]\nby="k"\n[sink]\nformat="noop"\ncheckpoint='
        + json.dumps(str(tmp_path / "ck"))
    )
    file.write_text(text)
    assert main.main(["run", str(file)]) != 0
    assert "is in use by process" in capsys.readouterr().err
