"""The driver is killed for real, again and again, and every sink holds the oracle's rows, each once.

Half of the kills come at a random moment; the others at a file operation, or beside the commit of a transaction, where
it hurts. FLUXEN_CHAOS_KILLS sets how many there are (20).
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from fluxen_lab.connectors.jars import KAFKA
from tests.chaos.test_kill import POINTS, SEED, expected, prepare, run_through_kills
from tests.connectors.conftest import jars, lakehouse_settings
from tests.connectors.topics import Record

pytestmark = [pytest.mark.connectors, pytest.mark.slow, pytest.mark.chaos]

KILLS = int(os.environ.get("FLUXEN_CHAOS_KILLS", "20"))
COLUMNS = ["k", "unix_seconds(window.start) as start", "n", "total"]
SENDING = ["sending kafka", "sent kafka", "before epochs/", "write records/"]

Rows = list[tuple[int, int, int, int]]


def row_of(record: Record) -> tuple[int, int, int, int]:
    row = record.json
    return row["k"], row["start"], row["n"], row["total"]


def killed(directory: Path, points: list[str], sink: dict[str, Any]) -> Rows:
    rng = random.Random(SEED)
    inputs = prepare(directory, rng, batches=8 + 4 * KILLS)
    run_through_kills(directory, rng, KILLS, points, sink)
    return expected(inputs)


@pytest.mark.timeout(240 + 90 * KILLS)
def test_a_topic_holds_every_result_once_however_often_the_driver_is_killed(kafka: Any, tmp_path: Path) -> None:
    topic = kafka.make("out", 3)
    sink = {
        "session": {"spark.jars": jars(KAFKA)},
        "format": "kafka",
        "options": {"kafka.bootstrap.servers": kafka.servers, "topic": topic},
        "select": ["cast(k as string) as key", f"to_json(struct({', '.join(COLUMNS)})) as value"],
    }
    wanted = killed(tmp_path, SENDING, sink)
    assert sorted(map(row_of, kafka.read(topic))) == wanted
    # what was aborted and sent again says so: without transactions, a row and its epoch tell repeats
    told = {(row_of(record), record.headers["fluxen.epoch"]) for record in kafka.read(topic, "read_uncommitted")}
    assert sorted(row for row, _ in told) == wanted


@pytest.mark.timeout(240 + 90 * KILLS)
@pytest.mark.parametrize("source", ["delta", "iceberg"])
def test_a_table_holds_every_result_once_however_often_the_driver_is_killed(source, tables, tmp_path):
    settings = lakehouse_settings(tmp_path)
    table = "lake.results" if source == "iceberg" else None
    sink = {"session": settings, "format": source, "options": {}, "select": COLUMNS}
    if table is not None:
        sink["table"] = table
    wanted = killed(tmp_path, POINTS, sink)
    if table is None:
        read = tables.read.format("delta").load(str(tmp_path / "output"))
    else:
        read = tables.read.format("iceberg").load(str(tmp_path / "lake" / "results"))
    assert sorted(map(tuple, read.collect())) == wanted
