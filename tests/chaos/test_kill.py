"""The driver is killed for real, again and again, and every result is on disk exactly once.

A chained query (join, then tumbling windows) writes to parquet. A kill takes the driver and its JVM; Python workers may
live on for a moment and write what nobody waits for any more. Half of the kills come at a random moment, half at a
file operation where it hurts. FLUXEN_CHAOS_KILLS sets how many there are.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluxen.testing import oracle
from fluxen.testing.streams import append

HERE = Path(__file__).parent
KILLS = int(os.environ.get("FLUXEN_CHAOS_KILLS", "3"))
SEED = int(os.environ.get("FLUXEN_CHAOS_SEED", "1"))
POINTS = ["write segments/", "before epochs/", "write records/", "after epochs/", "delete segments/", "delete epochs/"]
SECOND = 1_000_000


def prepare(directory: Path, rng: random.Random, batches: int) -> dict[str, list[pa.Table]]:
    """Rows whose event time advances by 10 seconds per batch, out of order within 12: none is late."""
    inputs: dict[str, list[pa.Table]] = {"a": [], "b": []}
    for number, name in itertools.product(range(batches), inputs):
        times = [number * 10 * SECOND + rng.randrange(12 * SECOND) for _ in range(60)]
        table = pa.table(
            {
                "k": pa.array([rng.randrange(25) for _ in times], pa.int64()),
                "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
                "v": pa.array([rng.randrange(1000) for _ in times], pa.int64()),
            }
        )
        append(directory / "input" / name, number, table)
        inputs[name].append(table)
    return inputs


def expected(inputs: dict[str, list[pa.Table]]) -> list[tuple[int, int, int, int]]:
    pairs = oracle.join(
        inputs,
        {"a": ["k"], "b": ["k"]},
        {"a": "ts", "b": "ts"},
        lambda t: abs(t["a"] - t["b"]) <= 5 * SECOND,
        10 * SECOND,
    )
    windows: dict[tuple[int, int], tuple[int, int]] = {}
    for pair in pairs:
        at = (pair["k"], int(pair["a_ts"].timestamp()) // 10 * 10)
        n, total = windows.get(at, (0, 0))
        windows[at] = (n + 1, total + pair["b_v"])
    return sorted((*at, *values) for at, values in windows.items())


def written(directory: Path) -> list[tuple[int, int, int, int]]:
    rows: list[dict[str, Any]] = []
    for path in (directory / "output").glob("part-*"):
        rows += pq.ParquetFile(path).read().to_pylist()
    return sorted((r["k"], int(r["window"]["start"].timestamp()), r["n"], r["total"]) for r in rows)


def rows(directory: Path) -> list[str]:
    return sorted(repr(row) for path in directory.glob("part-*") for row in pq.ParquetFile(path).read().to_pylist())


def start(
    directory: Path, attempt: int, point: str | None, sink: Any = None, what: str = "words"
) -> subprocess.Popen[bytes]:
    """The driver in a session of its own; `point` is where it shall die, `what` the query it runs."""
    path = os.pathsep.join([str(HERE / "hook"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    if point is not None:
        environment |= {
            "FLUXEN_CHAOS_POINT": point,
            "FLUXEN_CHAOS_COUNTER": str(directory / f"counter-{attempt}"),
        }
    with (directory / f"driver-{attempt}.log").open("wb") as log:
        return subprocess.Popen(
            [
                sys.executable,
                str(HERE / "driver.py"),
                str(directory),
                what,
                *([] if sink is None else [json.dumps(sink)]),
            ],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def newest(directory: Path) -> int:
    return max((int(p.stem) for p in (directory / "checkpoint" / "epochs").glob("*.json")), default=-1)


def kill_at_random(driver: subprocess.Popen[bytes], directory: Path, delay: float) -> None:
    """Wait until the driver has committed something, then a moment longer, then kill."""
    before, patience = newest(directory), time.monotonic() + 240
    while newest(directory) == before and driver.poll() is None and time.monotonic() < patience:
        time.sleep(0.02)
    time.sleep(delay)
    if driver.poll() is None:
        os.killpg(driver.pid, signal.SIGKILL)


def run_through_kills(
    directory: Path, rng: random.Random, kills: int, points: list[str], sink: Any = None, what: str = "words"
) -> None:
    """Start the driver, kill it, again and again, and let the last one end; every second one dies at a point."""
    killed = []
    for attempt in range(kills):
        point = None
        if attempt % 2:
            point = f"{points[attempt // 2 % len(points)]} {rng.randrange(3, 12)}"
        driver = start(directory, attempt, point, sink, what)
        if point is None:
            kill_at_random(driver, directory, rng.random() * 3)
        code = driver.wait()
        log = (directory / f"driver-{attempt}.log").read_text()
        assert code in (0, -signal.SIGKILL), log[-3000:]
        killed.append(code == -signal.SIGKILL)
    finished(directory, kills, what, sink)
    assert all(killed), f"only {sum(killed)} of {kills} kills hit a running query"


def finished(directory: Path, attempt: int, what: str, sink: Any = None) -> None:
    last = start(directory, attempt, None, sink, what)
    assert last.wait() == 0, (directory / f"driver-{attempt}.log").read_text()[-3000:]


@pytest.mark.chaos
@pytest.mark.spark
@pytest.mark.timeout(240 + 90 * KILLS)
def test_every_result_is_on_disk_once_however_often_the_driver_is_killed(tmp_path):
    rng = random.Random(SEED)
    inputs = prepare(tmp_path, rng, batches=8 + 4 * KILLS)
    run_through_kills(tmp_path, rng, KILLS, POINTS)
    assert written(tmp_path) == expected(inputs)


@pytest.mark.chaos
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300 + 90 * KILLS)
def test_a_dataframe_gives_what_it_gives_over_all_rows_however_often_the_driver_is_killed(tmp_path):
    rng = random.Random(SEED)
    prepare(tmp_path, rng, batches=8 + 4 * KILLS)
    run_through_kills(tmp_path, rng, KILLS, POINTS, what="sql")
    finished(tmp_path, KILLS + 1, "sql-at-once")
    found, wanted = rows(tmp_path / "output"), rows(tmp_path / "expected")
    assert wanted
    assert found == wanted
