"""One soak run on Spark: `python -m fluxen_lab.benchmarks.spark.soak QUERY BATCHES WORK`; samples go to
WORK/samples."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import fluxen as fx
from fluxen_lab.benchmarks.memory import footprint, processor_seconds
from fluxen_lab.benchmarks.soak.pace import Pace
from fluxen_lab.benchmarks.soak.queries import LAST, QUERIES, WINDOW, WITHIN, Soaked
from fluxen_lab.benchmarks.soak.samples import Sample, Size, checkpoint_size, compress, fill, resident_mb
from fluxen_lab.benchmarks.spark.sources import stream
from fluxen_lab.datagen.drift import Drift
from fluxen_lab.datagen.streams import write_tables

EVERY = 5
DRIFTS = {
    1: Drift(keys=400, rows=2_000, cycle=50),
    2: Drift(keys=4_000, rows=2_000, cycle=50, skew=0.5),
    3: Drift(keys=20_000, rows=2_000, cycle=50, skew=0.3),
}
"""By the number of inputs: results must not drown what is to be seen."""
STATE_BYTES = {1: 11_000, 2: 1_700_000, 3: 2_800_000}
"""What a site of two holds without a limit, about, by the number of inputs."""


def main(name: str, batches: int, work: Path) -> None:
    query = QUERIES[name]
    drift = DRIFTS[query.inputs]
    for number in range(query.inputs):
        write_tables((drift.table(number, batch) for batch in range(batches)), work / "data" / "abc"[number])
    spark = fx.session(master="local[2]", spark__driver__memory="1g")
    sampler = _Sampler(spark, work)
    sampler.run = (
        _query(spark, query, work / "data")
        .writeStream.foreachBatch(sampler)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    sampler.run.awaitTermination()
    sampler.out.close()
    if query.memory is not None and sampler.on_disk < sampler.looks // 2:
        sys.exit(f"something was on disk at {sampler.on_disk} of {sampler.looks} looks only: memory was not tight")


class _Sampler:
    """The sink: drops the results and takes a look every few batches."""

    run: Any = None

    def __init__(self, spark: SparkSession, work: Path) -> None:
        self.spark, self.checkpoint = spark, work / "checkpoint"
        self.out = (work / "samples").open("w")
        self.looks = self.on_disk = 0
        self.spent = 0.0
        """processor seconds until after the last look, and in looks at the checkpoint since"""
        self.sizes: list[Size] = []
        self.pace = Pace(work)

    def __call__(self, results: Any, epoch: int) -> None:
        results.write.format("noop").mode("overwrite").save()
        looking = time.thread_time()
        if epoch == 0:
            fill(self.checkpoint)
        self.sizes.append(checkpoint_size(self.checkpoint))
        self.spent += time.thread_time() - looking
        if epoch % EVERY != EVERY - 1 or self.run is None:
            return
        # one machine runs other things besides, so a batch's time is what its processes have worked, the look excluded
        worked = processor_seconds(os.getsid(0)) - self.spent
        jvm = self.spark._jvm
        assert jvm is not None
        jvm.System.gc()
        heap = jvm.Runtime.getRuntime()
        # of the JVM what is in use, not what it has taken and keeps
        last = self.run.epochs[-1]
        swapped = any(site["swapped_bytes"] for stage in last["stages"] for site in stage["sites"])
        self.looks, self.on_disk = self.looks + 1, self.on_disk + bool(swapped or last["spilled_bytes"])
        sample = Sample.of(
            batch=epoch,
            size=Size.mean(self.sizes),
            driver_mb=resident_mb(os.getpid()) + (heap.totalMemory() - heap.freeMemory()) / 1e6,
            workers_mb=footprint(os.getsid(0)).workers_mb,
            batch_ms=1e3 * worked / EVERY / self.pace.slower(),
        )
        if self.looks > 1:  # before the first look the session started
            self.out.write(sample.line())
            self.out.flush()
        self.sizes.clear()
        self.spent = processor_seconds(os.getsid(0))


def _query(spark: SparkSession, query: Soaked, data: Path) -> Any:
    inputs = {"abc"[number]: stream(spark, data, "abc"[number], text=False) for number in range(query.inputs)}
    memory = None if query.memory is None else round(query.memory * STATE_BYTES[query.inputs])
    return _built(query, inputs).adapt(
        sites=2,
        partitions=64,
        policy=getattr(fx, query.policy)(),
        partitioner=None if query.partitioner is None else getattr(fx, query.partitioner)(),
        memory_per_site=memory,
    )


def _built(query: Soaked, inputs: dict[str, Any]) -> Any:
    if query.form in ("join", "tree"):
        return fx.join(
            inputs, on="key", time="ts", within=f"{WITHIN} seconds", plan="tree" if query.form == "tree" else "mjoin"
        )
    rows = inputs["a"]
    if query.form == "distinct":
        return fx.distinct(rows, by="key", time="ts", within=f"{WITHIN} seconds")
    if query.form == "last":
        return fx.aggregate(rows, by="key", time="ts", last=LAST, mean=fx.avg("value"))
    return fx.aggregate(rows, by="key", time="ts", window=f"{WINDOW} seconds", n=fx.count(), total=fx.sum("value"))


if __name__ == "__main__":
    compress()
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
