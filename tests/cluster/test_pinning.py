"""Sites on a real cluster of several executors: they stay where they are, and survive the loss of one."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluxen.testing import oracle
from fluxen.testing.streams import append
from tests.cluster.driver import KILL_AFTER, REPLACED_BY

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(600)]
BATCHES = 28
SECOND = 1_000_000


def prepare(directory: Path) -> dict[str, list[pa.Table]]:
    rng = random.Random(2)
    inputs: dict[str, list[pa.Table]] = {"a": [], "b": []}
    for number, name in itertools.product(range(BATCHES), inputs):
        times = [(number * 10 + rng.random() * 12) * SECOND for _ in range(30)]
        table = pa.table(
            {
                "k": pa.array([rng.randrange(40) for _ in times], pa.int64()),
                "ts": pa.array([int(t) for t in times], pa.int64()).cast(pa.timestamp("us", "UTC")),
                "v": pa.array([rng.randrange(10**6) for _ in times], pa.int64()),
            }
        )
        append(directory / "input" / name, number, table)
        inputs[name].append(table)
    return inputs


@pytest.fixture(scope="module")
def seen(tmp_path_factory: Any) -> dict[str, Any]:
    """What one run on the cluster showed, with its input."""
    directory = tmp_path_factory.mktemp("cluster")
    inputs = prepare(directory)
    places = {"SPARK_LOCAL_DIRS": str(directory / "spark"), "SPARK_WORKER_DIR": str(directory / "work")}
    with (directory / "log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.driver", str(directory)],
            cwd=Path(__file__).parents[2],
            env={**os.environ, **places},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            code = driver.wait()
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
    assert code == 0, (directory / "log").read_text()[-4000:]
    return {**json.loads((directory / "seen.json").read_text()), "inputs": inputs}


def test_each_site_stays_on_an_executor_of_its_own(seen):
    before = seen["sites"][: KILL_AFTER + 1]
    assert len(before) == 20
    assert len(set(before[0])) == 3
    assert all(sites == before[0] for sites in before), before


def test_the_results_are_right_although_an_executor_was_killed(seen):
    inputs = seen["inputs"]
    pairs = oracle.join(
        inputs,
        {"a": ["k"], "b": ["k"]},
        {"a": "ts", "b": "ts"},
        lambda t: abs(t["a"] - t["b"]) <= 30 * SECOND,
        10 * SECOND,
    )
    assert sorted(map(tuple, seen["rows"])) == sorted((row["k"], row["a_v"], row["b_v"]) for row in pairs)


def test_sites_spread_again_once_the_lost_executor_is_replaced(seen):
    lost = seen["sites"][0][0]
    after = seen["sites"][REPLACED_BY + 1 :]
    assert all(len(set(sites)) == 3 for sites in after), after
    assert all(sites == after[0] for sites in after), after
    assert lost not in after[0]
