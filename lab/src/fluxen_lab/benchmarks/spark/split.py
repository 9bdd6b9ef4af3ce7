"""`python -m fluxen_lab.benchmarks.spark.split [pairs]`: a key that makes most of a join's results, at two executors.

Isolated, the key has one site to itself and everything else the other; split, its rows are dealt over both, as a
partitioner decides by itself. The two take turns, each in a query of its own, and are compared in the batches after
`SETTLED`: the processor seconds of the join at the busiest site, and the wall clock of a batch.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

import fluxen as fx
from fluxen.operators.base import Results, SiteInput, SiteOutput
from fluxen.operators.wrapped import Wrapped
from fluxen.policies import Policy, Stats
from fluxen.policies.base import Repartition
from fluxen.state.routing import base_group
from fluxen.testing import feeds
from fluxen_lab.datagen.hashing import xxhash64
from fluxen_lab.emulate.wrapped import wrapped

__all__ = ["SETTLED", "measured"]

BATCHES, SETTLED = 18, 10
"""Batches of a query, and how many of them do not count: the key has to be seen, and its window to fill."""
ROWS, SHARE, HOT = (12_000, 1_200), 0.3, 7
"""rows of each input in a batch, of which this share has the hot key; the others have one of 5,000"""
WITHIN = "4 seconds"
_SITES, _PARTITIONS = 2, 64


@dataclass(frozen=True, kw_only=True)
class Clocked(Wrapped):
    """An operator that says how many processor seconds it took."""

    def process(self, given: SiteInput) -> Results:
        results, spent = self.operator.process(given), 0.0
        while True:
            began = time.process_time()
            try:
                table = next(results)
            except StopIteration as end:
                spent += time.process_time() - began
                output: SiteOutput = end.value
                return replace(output, observed={**output.observed, "work": {"processor_seconds": spent}})
            spent += time.process_time() - began
            yield table


class Alone(Policy):
    """Gives a key a site to itself, and everything else the other sites, after the first batch."""

    def __init__(self, key: int) -> None:
        self.key, self.done = key, False

    def suggest(self, stats: Stats, now: float) -> Sequence[Repartition]:
        if self.done:
            return ()
        self.done = True
        base = int(base_group(np.array([self.key]), _PARTITIONS)[0])
        here = int(stats.placement[base])
        others = tuple((int(pg), 1 - here) for pg in stats.pg[stats.placement == here])
        return (Repartition(explicit=((self.key, stats.groups),), placement=others, why="the key is known"),)

    def snapshot(self) -> dict[str, Any]:
        return {"done": self.done}

    def restore(self, state: Any) -> None:
        self.done = bool(state["done"])


def batches(seed: int = 1) -> dict[str, list[pa.Table]]:
    rng = np.random.default_rng(seed)

    def table(number: int, count: int) -> pa.Table:
        key = np.where(rng.random(count) < SHARE, HOT, rng.integers(100, 5_100, count))
        ts = number * 1_000_000 + rng.integers(0, 1_000_000, count)
        times = pa.array(ts).cast(pa.timestamp("us", "UTC"))
        return pa.table({"k": key, "ts": times, "v": rng.integers(0, 1_000, count)})

    return {name: [table(number, count) for number in range(BATCHES)] for name, count in zip("ab", ROWS)}


def _run(spark: SparkSession, data: dict[str, list[pa.Table]], *, split: bool) -> dict[str, float]:
    """One query over all batches: medians of those that count."""
    h = int(xxhash64(np.array([HOT], dtype=np.int64))[0])
    options: dict[str, Any] = {"partitioner": fx.Slotted()} if split else {"policy": Alone(h)}
    with tempfile.TemporaryDirectory() as directory:
        streams = feeds(spark, data, Path(directory) / "input")
        query = fx.join(streams, on="k", time="ts", within=WITHIN)
        query = wrapped(query, lambda inner: Clocked(operator=inner)).adapt(
            sites=_SITES, partitions=_PARTITIONS, **options
        )
        writer = query.writeStream.foreachBatch(lambda df, _: df.write.format("noop").mode("overwrite").save())
        run = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
        run.awaitTermination()
        done = [event["kind"] for event in run.events if event["outcome"] == "done"]
        assert split == ("split" in done), run.events
        counted = run.epochs[SETTLED:]
    sites = [[site["work"]["processor_seconds"] for site in epoch["stages"][0]["sites"]] for epoch in counted]
    out = [[site["rows_out"] for site in epoch["stages"][0]["sites"]] for epoch in counted]
    return {
        "busiest": median(max(each) for each in sites),
        "seconds": median(sum(epoch["seconds"].values()) for epoch in counted),
        "busiest_share_of_results": median(max(each) / max(sum(each), 1) for each in out),
        "results": median(sum(each) for each in out),
    }


def measured(pairs: int = 5, master: str = "local-cluster[2,1,768]") -> dict[str, Any]:
    """Split against isolated, as medians over pairs of runs: below 1 is less than isolated."""
    # where a cluster on this machine finds Spark and works
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    os.environ.setdefault("SPARK_WORKER_DIR", tempfile.mkdtemp(prefix="fluxen-split-"))
    spark = fx.session(master=master, spark__sql__shuffle__partitions=2, spark__executor__memory="768m")
    data = batches()
    try:
        _run(spark, data, split=True)  # the first compiles
        found = [
            {"isolated": _run(spark, data, split=False), "split": _run(spark, data, split=True)} for _ in range(pairs)
        ]
    finally:
        spark.stop()
    ratios = {name: [pair["split"][name] / pair["isolated"][name] for pair in found] for name in ("busiest", "seconds")}
    return {
        "pairs": found,
        "busiest_processor_seconds": round(median(ratios["busiest"]), 3),
        "wall_clock": round(median(1 / ratio for ratio in ratios["seconds"]), 3),
        "spread": {name: [round(min(each), 3), round(max(each), 3)] for name, each in ratios.items()},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured(int(sys.argv[1]) if len(sys.argv) > 1 else 5), indent=2) + "\n")
