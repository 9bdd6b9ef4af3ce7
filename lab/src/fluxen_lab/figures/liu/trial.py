"""One run of the papers' three-way join on Spark, and what the figures need to know about it."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fluxen.policies.base import Policy
from fluxen_lab.datagen.liu import Workload
from fluxen_lab.figures.figure import Row, RunOptions
from fluxen_lab.figures.liu import local

__all__ = ["HOUR", "KEY", "Trial", "compared", "memory_of", "sized", "told", "trial"]

HOUR = "the papers' hour by a few dozen micro-batches of event time, its megabytes by shares of the state"
"""What stands for something else in these figures."""
KEY = ("run", "minute")
"""Columns that tell the rows of one seed apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A finished run. `epochs` are its micro-batches; what came after them was cleanup."""

    epochs: list[dict[str, Any]]
    cleanup: list[dict[str, Any]]
    events: list[dict[str, Any]]
    seconds_per_batch: float

    @property
    def results(self) -> int:
        """Run-time results."""
        return sum(epoch["results"] for epoch in self.epochs)

    @property
    def owed(self) -> int:
        """Results the cleanup had to produce."""
        return sum(epoch["results"] for epoch in self.cleanup)

    @property
    def cleanup_seconds(self) -> float:
        """Of the slowest site: what a cluster of one site per machine would wait."""
        sites = [site for epoch in self.cleanup for site in epoch["stages"][0]["sites"]]
        return max((float(site["seconds"]["cleanup"]) for site in sites), default=0.0)

    @property
    def busy_seconds(self) -> float:
        """What the sites worked in a batch, all together; the median, as one stalled batch says nothing."""
        batches = [sum(site["busy_seconds"] for site in epoch["stages"][0]["sites"]) for epoch in self.epochs]
        return float(statistics.median(batches))

    @property
    def batch_seconds(self) -> list[float]:
        return [sum(epoch["seconds"].values()) for epoch in self.epochs]

    def done(self, kind: str) -> int:
        return sum(event["kind"] == kind and event["outcome"] == "done" for event in self.events)

    def memory(self) -> list[list[int]]:
        """Per batch, bytes of active state at each site."""
        return [[site["state_bytes"] for site in epoch["stages"][0]["sites"]] for epoch in self.epochs]

    def rows(self, label: str, **extra: Any) -> list[Row]:
        """One row per batch, for the CSV."""
        made: list[Row] = []
        total = 0
        for number, (epoch, memory) in enumerate(zip(self.epochs, self.memory()), start=1):
            total += epoch["results"]
            made.append(
                {
                    "run": label,
                    "minute": round(number * self.seconds_per_batch / 60, 3),
                    "results": total,
                    "memory": sum(memory),
                    "most_memory": max(memory),
                    "least_memory": min(memory),
                    "on_disk": epoch["spilled_bytes"],
                    "spills": self.done("spill"),
                    "relocations": self.done("relocation"),
                    "owed": self.owed,
                    "cleanup_seconds": round(self.cleanup_seconds, 4),
                    "busy_seconds": round(self.busy_seconds, 4),
                    **extra,
                }
            )
        return made


def sized(options: RunOptions, workload: Workload) -> Workload:
    """The workload with the seed of the run, with fewer batches if a test says so."""
    return replace(workload.scaled(float(options.params.get("scale", 1.0))), seed=options.seed)


def memory_of(options: RunOptions, workload: Workload, share: float | None) -> int | None:
    """A site's memory as a share of the whole state, which a mutation may change; None is no limit."""
    share = options.params.get("memory_share", share)
    return None if share is None else int(share * workload.state_bytes)


def trial(
    options: RunOptions,
    label: str,
    workload: Workload,
    *,
    sites: int = 1,
    memory: int | None = None,
    policy: Policy | None = None,
    placement: Sequence[float] | None = None,
) -> Trial:
    """Run the join over the workload's streams to their end, results to nowhere."""
    options.progress(f"running {label}")
    carry_out = local.run if options.params.get("runtime") == "local" else _on_spark
    epochs, events = carry_out(workload, sites=sites, memory=memory, policy=policy, placement=placement)
    return Trial(
        epochs=[epoch for epoch in epochs if epoch["batch"] is not None],
        cleanup=[epoch for epoch in epochs if epoch["batch"] is None],
        events=events,
        seconds_per_batch=workload.seconds,
    )


def _on_spark(
    workload: Workload, *, sites: int, memory: int | None, policy: Policy | None, placement: Sequence[float] | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    import fluxen as fx
    from fluxen.testing import feeds

    spark = fx.session("fluxen-figures", master="local[2]", spark__ui__enabled="false")
    spark.sparkContext.setLogLevel("OFF")
    place = Path(tempfile.mkdtemp(prefix="fluxen-liu-"))
    try:
        streams = feeds(spark, workload.tables(), place / "input")
        query = fx.join(streams, on="key", time="ts", within=None).adapt(
            sites=sites,
            partitions=workload.partitions,
            memory_per_site="unlimited" if memory is None else memory,
            policy=policy or (fx.Static() if memory is None else fx.LocalDisk()),
            placement=None if placement is None else tuple(placement),
            clock="event",
        )
        run = (
            query.writeStream.foreachBatch(_to_nowhere)
            .option("checkpointLocation", str(place / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        run.awaitTermination()
        return run.epochs, run.events
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _to_nowhere(results: Any, epoch: int) -> None:
    results.write.format("noop").mode("overwrite").save()


def last(rows: Sequence[Row], label: str) -> Row:
    """The last row of a run."""
    return [row for row in rows if row["run"] == label][-1]


def compared(rows: Sequence[Row], column: str) -> dict[str, Any]:
    """A column's last value of every run."""
    return {label: last(rows, label)[column] for label in dict.fromkeys(row["run"] for row in rows)}


def told(rows: Sequence[Row], *columns: str) -> dict[str, float | None]:
    """Those numbers of every run, to be shown beside what is judged."""
    return {f"{column}, {label}": value for column in columns for label, value in compared(rows, column).items()}
