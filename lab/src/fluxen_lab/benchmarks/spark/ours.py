"""The benchmarks' queries through fluxen's public interface, and nothing else of fluxen.

The same queries through Spark's own operators are in native.py and last10.py; ../oracle.py says under which names
fluxen's results hold the canonical columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import fluxen as fx
from fluxen_lab.benchmarks.job import Job
from fluxen_lab.benchmarks.spark.sources import stream

__all__ = ["QUERIES", "session", "state_of"]

_SITES = 2
_PARTITIONS = 64


def session(job: Job) -> SparkSession:
    return fx.session(master=job.master)


def _adapted(query: Any, job: Job | None = None) -> Any:
    limited = {} if job is None or job.memory is None else {"memory_per_site": job.memory, "policy": fx.LocalDisk()}
    return query.adapt(sites=_SITES, partitions=_PARTITIONS, **limited)


def join(spark: SparkSession, job: Job) -> Any:
    inputs = {name: stream(spark, job.data, name, text=True) for name in "abc"}
    if job.bound_us is None:
        return _adapted(fx.join(inputs, on="key", time="ts", within=None), job)
    bound = f"{job.bound_us // 1_000} milliseconds"
    between = {(name, "a"): (f"-{bound}", bound) for name in "bc"}
    return _adapted(fx.join(inputs, on="key", time="ts", between=between), job)


def _tree(*, balance: bool, replan: bool) -> Callable[[SparkSession, Job], Any]:
    def build(spark: SparkSession, job: Job) -> Any:
        inputs = {name: stream(spark, job.data, name, text=True) for name in "abc"}
        bound = f"{(job.bound_us or 0) // 1_000} milliseconds"
        between = {(name, "a"): (f"-{bound}", bound) for name in "bc"}
        query = fx.join(inputs, on="key", time="ts", between=between, plan="tree")
        # by state, as in the paper: how busy a site is says little while it merges what it keeps
        policy = fx.LazyDisk(gap=3.0) if balance else fx.Static()
        return _adapted(query).adapt(policy=policy, replan=replan)

    return build


def last10(spark: SparkSession, job: Job) -> Any:
    rows = stream(spark, job.data, "rows", text=False)
    return _adapted(fx.aggregate(rows, by=["key"], time="ts", mean=fx.avg("value"), last=10))


def tumbling(spark: SparkSession, job: Job) -> Any:
    rows = stream(spark, job.data, "rows", text=False)
    return _adapted(
        fx.aggregate(
            rows,
            by=["key"],
            time="ts",
            window="10 seconds",
            n=fx.count(),
            total=fx.sum("value"),
            mean=fx.avg("value"),
        )
    )


def running(spark: SparkSession, job: Job) -> Any:
    rows = stream(spark, job.data, "rows", text=False)
    return _adapted(
        fx.aggregate(rows, by=["key"], time="ts", n=fx.count(), total=fx.sum("value"), mean=fx.avg("value"))
    )


def state_of(run: Any) -> dict[str, Any]:
    """The largest the active state became, as the run reports it after each batch, and what was owed in the end."""
    reported = [entry.get("fluxen") or {} for entry in run.recentProgress]
    flushes = [epoch for epoch in run.epochs if epoch["batch"] is None]
    return {
        "rows": max((entry.get("state_rows", 0) for entry in reported), default=0),
        "bytes": max((entry.get("state_bytes", 0) for entry in reported), default=0),
        "results_now": sum(entry.get("results", 0) for entry in reported),
        "results_owed": sum(epoch["results"] for epoch in flushes),
        "cleanup_seconds": round(sum(sum(epoch["seconds"].values()) for epoch in flushes), 3),
    }


QUERIES: dict[str, Callable[[SparkSession, Job], Any]] = {
    "fluxen-join": join,
    "fluxen-tree-no-adapt": _tree(balance=False, replan=False),
    "fluxen-tree-balance": _tree(balance=True, replan=False),
    "fluxen-tree-replan": _tree(balance=False, replan=True),
    "fluxen-tree-both": _tree(balance=True, replan=True),
    "fluxen-last10": last10,
    "fluxen-tumbling": tumbling,
    "fluxen-running": running,
}
