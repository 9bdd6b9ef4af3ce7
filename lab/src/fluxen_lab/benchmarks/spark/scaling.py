"""`python -m fluxen_lab.benchmarks.spark.scaling [rounds]`: a load that goes from a tenth to full and back.

Rows come by the clock, a file a period: averages of the last ten values of each of 100,000 keys. The period is such
that two sites keep up with the full load and one does not, as batches of either number take it on this machine. One
site, two, and `sites=(1, 2)` take turns in one warm session. Compared are what a batch takes at full load, and how many
sites there are for how long at the low one, where one site is enough.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

import fluxen as fx
from fluxen_lab.benchmarks.job import Batch
from fluxen_lab.benchmarks.spark.sources import stream
from fluxen_lab.benchmarks.spark.worker import batches_of
from fluxen_lab.datagen.scenarios import Shaped
from fluxen_lab.datagen.streams import StreamSpec

__all__ = ["Measured", "measured"]

PHASE = 60
"""Files of each of the three phases: low, full, low."""
FILES = 3 * PHASE
LOAD = Shaped(
    name="scaling",
    streams=(
        StreamSpec(
            name="rows", rows=FILES * 300_000, keys=100_000, skew=0.0, span_us=FILES * 10**7, text=False, seed=161
        ),
    ),
    batches=FILES,
    low=((0, PHASE), (2 * PHASE, FILES)),
)
SETTLED = 20
"""Files of the full load before those that count."""
_SITES: dict[str, Any] = {"one": 1, "two": 2, "auto": (1, 2)}
_CALIBRATED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run: seconds of each batch and how many sites it had."""

    seconds: Sequence[float]
    sites: Sequence[int]
    period: float

    @property
    def full(self) -> float:
        """What a batch of the full load takes, once the number of sites is found."""
        return median(self.seconds[PHASE + SETTLED : 2 * PHASE])

    @property
    def low(self) -> float:
        """Seconds of sites in the two phases of low load."""
        return self.period * sum(self.sites[n] for n in range(FILES) if not PHASE <= n < 2 * PHASE)


def _feed(files: Sequence[Path], into: Path, period: float) -> None:
    started = time.monotonic()
    for number, file in enumerate(files):
        time.sleep(max(0.0, started + number * period - time.monotonic()))
        os.link(file, into / f".{file.name}")
        os.rename(into / f".{file.name}", into / file.name)


def _run(spark: SparkSession, files: Sequence[Path], sites: Any, period: float) -> tuple[list[Batch], dict[int, int]]:
    """The batches of one run and their numbers of sites; with period 0 all files are there from the beginning."""
    seen: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        (data / "rows").mkdir(parents=True)
        rows = stream(spark, data, "rows", text=False)
        query = fx.aggregate(rows, by=["key"], time="ts", mean=fx.avg("value"), last=10)
        writer = query.adapt(sites=sites, partitions=64).writeStream.foreachBatch(
            lambda df, _: df.write.format("noop").mode("overwrite").save()
        )
        feeder = threading.Thread(target=_feed, args=(files, data / "rows", period), daemon=True)
        feeder.start()
        run = writer.option("checkpointLocation", f"{directory}/checkpoint").start()
        while len(seen) < len(files):
            time.sleep(0.2)
            if (problem := run.exception()) is not None:
                raise problem
            for epoch in run.epochs:
                if epoch["batch"] is not None and epoch["rows_in"]:
                    seen[epoch["batch"]] = len(epoch["stages"][0]["sites"])
        run.processAllAvailable()
        found = batches_of(run)
        run.stop()
    return [batch for batch in found if batch.number in seen], seen


def _period(spark: SparkSession, files: Sequence[Path]) -> float:
    """Between what full batches of one site take and of two."""
    full = files[PHASE : PHASE + _CALIBRATED]
    takes = []
    for sites in (1, 2):
        batches, _ = _run(spark, full, sites, 0.0)
        takes.append(median(batch.seconds for batch in batches[_CALIBRATED // 2 :]))
    if takes[1] >= 0.95 * takes[0]:
        raise RuntimeError(f"a batch takes {takes[0]:.2f} s with one site and {takes[1]:.2f} s with two: no difference")
    return float((takes[0] * takes[1]) ** 0.5)


def _median(found: Sequence[float]) -> dict[str, Any]:
    return {"median": round(median(found), 3), "spread": [round(min(found), 3), round(max(found), 3)]}


def measured(rounds: int = 3, master: str = "local[2]") -> dict[str, Any]:
    """Medians over the rounds; `full` and `low` are `auto` over the best fixed number."""
    spark = fx.session(
        master=master, spark__sql__shuffle__partitions=2, spark__sql__streaming__numRecentProgressUpdates=1_000
    )
    runs: dict[str, list[Measured]] = {name: [] for name in _SITES}
    try:
        with tempfile.TemporaryDirectory() as directory:
            LOAD.write(Path(directory))
            files = sorted((Path(directory) / "rows").glob("*.parquet"))
            _run(spark, files[PHASE : PHASE + 2 * _CALIBRATED], 2, 0.0)  # the first compiles
            period = _period(spark, files)
            for number in range(rounds):
                for name in list(_SITES) if number % 2 == 0 else list(_SITES)[::-1]:
                    batches, sites = _run(spark, files, _SITES[name], period)
                    seconds = [batch.seconds for batch in batches]
                    runs[name].append(Measured(seconds=seconds, sites=[sites[n] for n in sorted(sites)], period=period))
                    print(f"{name}, {number + 1}: {runs[name][-1].full:.2f} s", file=sys.stderr, flush=True)
    finally:
        spark.stop()
    full = {name: _median([one.full for one in found]) for name, found in runs.items()}
    low = {name: _median([one.low for one in found]) for name, found in runs.items()}
    best = min(full["one"]["median"], full["two"]["median"])
    return {
        "period": round(period, 3),
        "full_batch_seconds": full,
        "low_site_seconds": low,
        "full": round(full["auto"]["median"] / best, 3),
        "low": round(low["auto"]["median"] / low["one"]["median"], 3),
        "changes": [sum(a != b for a, b in zip(one.sites, one.sites[1:])) for one in runs["auto"]],
        "sites": [list(one.sites) for one in runs["auto"]],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured(int(sys.argv[1]) if len(sys.argv) > 1 else 3), indent=2) + "\n")
