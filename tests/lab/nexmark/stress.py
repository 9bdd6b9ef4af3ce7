"""Stretches of a Nexmark query's life: so many batches, on so many sites, adapting in one way, until the next restart.

The tests in this directory run them in their own session, and in processes of their own that are killed (driver.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq

import fluxen as fx
from fluxen.testing import oracle
from fluxen_lab.benchmarks.compare import Comparison, connect
from fluxen_lab.benchmarks.job import Job
from fluxen_lab.benchmarks.nexmark.check import checked, read_streams
from fluxen_lab.benchmarks.nexmark.queries import QUERIES
from fluxen_lab.benchmarks.spark.nexmark import on_fluxen
from fluxen_lab.benchmarks.spark.sources import sink
from fluxen_lab.datagen.nexmark import STREAMS, Nexmark

How = Literal["moves", "memory"]
HOUSE = Nexmark(
    name="stress", streams=(), batches=6, events=6_000, rate=100, disorder_us=3_500_000, disordered=0.02, hot=0.3
)
"""A minute of auctions: one is hot, 2 % of the rows come late, but none by as much as the watermark's delay."""
PARTITIONS = 16
MEMORY = 6_000
"""Bytes per site: less than any of the queries keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Until so many batches are through; the sink fails, once, in the epochs named."""

    upto: int
    sites: int
    how: How
    fails: tuple[int, ...] = ()


@dataclass(slots=True)
class Seen:
    """What a query's stretches did."""

    moves: int = 0
    spills: int = 0
    turns: int = 0
    """epochs that left rows waiting for their group to come back into memory"""
    late: int = 0
    failures: int = 0
    sites: set[int] = field(default_factory=set)

    def note(self, run: Any) -> None:
        events = [event["kind"] for event in run.events if event["outcome"] == "done"]
        self.moves, self.spills = events.count("move"), events.count("spill")  # the log is the checkpoint's
        self.turns += sum(epoch["waiting_rows"] > 0 for epoch in run.epochs)
        self.late += sum(epoch["late"] for epoch in run.epochs)
        self.sites |= {len(stage["sites"]) for epoch in run.epochs for stage in epoch["stages"]}


def adapted(query: Any, stretch: Stretch, seed: int) -> Any:
    query = query.adapt(sites=stretch.sites, partitions=PARTITIONS)
    if stretch.how == "memory":
        return query.adapt(memory_per_site=MEMORY)
    return query.adapt(policy=fx.Random(seed=seed, moves=3))


def arrive(data: Path, job: Job, upto: int) -> None:
    """The first files of each stream, as they were written, where the query looks for them."""
    for name in STREAMS:
        (job.data / name).mkdir(parents=True, exist_ok=True)
        for path in sorted((data / name).glob("*.parquet"))[:upto]:
            if not (job.data / name / path.name).exists():
                shutil.copy2(path, job.data / name)


def start(spark: Any, job: Job, stretch: Stretch, deliver: Callable[[Any, int], None], seed: int, last: bool) -> Any:
    query = adapted(on_fluxen(job.query)(spark, job), stretch, seed)
    writer = query.writeStream.foreachBatch(deliver).trigger(availableNow=True).option("endOfInput", last)
    return writer.option("checkpointLocation", str(job.work / "checkpoint")).start()


class Sink:
    """Writes a folder per epoch; what comes again must be what came before. Fails once in each of the epochs named."""

    def __init__(self, job: Job) -> None:
        self.job, self.write = job, sink(job)
        self.fails: set[int] = set()
        self.again = 0

    def __call__(self, results: Any, epoch: int) -> None:
        folder = self.job.out / f"batch-{epoch:05d}"
        before = rows(folder) if (folder / "_SUCCESS").exists() else None
        self.write(results, epoch)
        if before is not None:
            self.again += 1
            assert rows(folder) == before, f"epoch {epoch} was delivered again with other rows"
        if epoch in self.fails:
            self.fails.remove(epoch)
            raise RuntimeError("the sink falls over")


def rows(folder: Path) -> list[str]:
    found: list[dict[str, Any]] = []
    for path in folder.glob("*.parquet"):
        found += pq.ParquetFile(path).read().to_pylist()
    return oracle.canonical_rows(found, 17)


def live(spark: Any, data: Path, job: Job, stretches: list[Stretch], seed: int) -> Seen:
    """Run the stretches one after the other on one checkpoint; a sink that fails is a crash to come back from."""
    seen, deliver = Seen(), Sink(job)
    for stretch in stretches:
        arrive(data, job, stretch.upto)
        deliver.fails = set(stretch.fails)
        for run in attempts(spark, job, stretch, deliver, seed, last=stretch == stretches[-1]):
            seen.note(run)
    seen.failures = deliver.again
    return seen


def attempts(spark: Any, job: Job, stretch: Stretch, deliver: Sink, seed: int, *, last: bool) -> Iterator[Any]:
    while True:
        failing = len(deliver.fails)
        run = start(spark, job, stretch, deliver, seed, last)
        try:
            run.awaitTermination()
        except Exception:
            if len(deliver.fails) == failing:
                raise
            yield run
            continue
        yield run
        return


def compared(data: Path, job: Job) -> Comparison:
    """All results, those of windows that only the end of the input closed too, beside DuckDB's."""
    connection = connect()
    read_streams(connection, data)
    return checked(connection, replace(QUERIES[job.query], closed="true"), job.out)
