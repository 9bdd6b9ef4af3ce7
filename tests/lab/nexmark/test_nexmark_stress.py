"""Nexmark's stateful queries, with one hot auction and rows out of order, through moves, spills, rescales and crashes.

What a query has written in the end is compared with what DuckDB finds over all rows: all results, or the last row of
each key where results are updates.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

from tests.lab.nexmark.stress import HOUSE, Sink, Stretch, arrive, compared, live, start

from fluxen_lab.benchmarks.job import Job

pytestmark = pytest.mark.spark

QUERIES = ["q3", "q5", "q7", "q8", "q11", "q15", "q16", "q17", "q18", "q19", "q20"]
JOINS = {"q3", "q5", "q7", "q8", "q20"}
"""those with an inner join, whose state spills; groups of the others take turns in memory"""
ONE_GROUP = {"q15"}
"""one key: there is no other group to wait for"""
QUICK = ["q11", "q19", "q20"]
ROOT = Path(__file__).parents[3]
KILLS = 3
LIFE = [
    Stretch(upto=2, sites=2, how="moves", fails=(1,)),
    Stretch(upto=5, sites=3, how="memory", fails=(4,)),
    Stretch(upto=6, sites=2, how="moves"),
]


@pytest.fixture(scope="module")
def house(tmp_path_factory: Any) -> Path:
    data: Path = tmp_path_factory.mktemp("house")
    HOUSE.write(data)
    return data


@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in QUERIES])
def test_a_query_that_moves_spills_rescales_and_fails_gives_what_the_oracle_finds(
    spark: Any, house: Path, name: str, tmp_path: Path
) -> None:
    job = Job(query=name, data=tmp_path / "arrived", work=tmp_path)
    seen = live(spark, house, job, LIFE, seed=int(name[1:]))
    found = compared(house, job)
    assert found.expected_rows > 0
    assert found.equal, found.detail
    assert (seen.late, seen.failures, seen.sites) == (0, 2, {2, 3})
    assert seen.moves >= 3
    assert name in ONE_GROUP or (seen.spills if name in JOINS else seen.turns) > 0


# ---- drivers that are killed


def driver(name: str, directory: Path, attempt: int) -> subprocess.Popen[bytes]:
    """In a session of its own, alternating between moves and limited memory, on two sites and on three."""
    with (directory / f"driver-{attempt}.log").open("wb") as log:
        command = [sys.executable, "-m", "tests.lab.nexmark.driver", name, str(directory), str(attempt)]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def newest(directory: Path) -> int:
    return max((int(path.stem) for path in (directory / "checkpoint" / "epochs").glob("*.json")), default=-1)


def kill(running: subprocess.Popen[bytes], directory: Path, delay: float) -> int:
    """Kill the driver and its JVM a moment after it has committed something; gives how it ended."""
    before, patience = newest(directory), time.monotonic() + 120
    while newest(directory) == before and running.poll() is None and time.monotonic() < patience:
        time.sleep(0.02)
    time.sleep(delay)
    if running.poll() is None:
        os.killpg(running.pid, signal.SIGKILL)
    return running.wait()


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_whose_driver_is_killed_gives_what_the_oracle_finds(
    spark: Any, house: Path, name: str, tmp_path: Path
) -> None:
    rng = random.Random(name)
    job = Job(query=name, data=tmp_path / "arrived", work=tmp_path)
    for attempt in range(KILLS):
        # two more files per driver: one to commit, one to die in
        arrive(house, job, 2 * attempt + 2)
        code = kill(driver(name, tmp_path, attempt), tmp_path, rng.random())
        log = (tmp_path / f"driver-{attempt}.log").read_text()
        assert code == -signal.SIGKILL, log[-3000:]
    arrive(house, job, HOUSE.batches)
    run = start(spark, job, Stretch(upto=HOUSE.batches, sites=2, how="moves"), Sink(job), seed=1, last=True)
    run.awaitTermination()
    found = compared(house, job)
    assert found.expected_rows > 0
    assert found.equal, found.detail
    assert any(event["kind"] == "move" and event["outcome"] == "done" for event in run.events)
