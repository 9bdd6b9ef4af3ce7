"""The queries of `fluxen bench latency`: W1's join with a fixed number of files per batch, or with a latency."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import fluxen as fx
from fluxen_lab.benchmarks.job import Job
from fluxen_lab.benchmarks.latency import LATENCY
from fluxen_lab.benchmarks.spark.sources import stream

__all__ = ["builder", "state_of"]


def builder(size: str) -> Callable[[SparkSession, Job], Any]:
    """`size` is a number of files, or "auto"."""

    def build(spark: SparkSession, job: Job) -> Any:
        files = 1 if size == "auto" else int(size)
        inputs = {name: stream(spark, job.data, name, text=True, files=files) for name in "abc"}
        bound = f"{(job.bound_us or 0) // 1_000} milliseconds"
        between = {(name, "a"): (f"-{bound}", bound) for name in "bc"}
        query = fx.join(inputs, on="key", time="ts", between=between).adapt(sites=2, partitions=64)
        return query.adapt(latency=f"{LATENCY:g} seconds") if size == "auto" else query

    return build


def state_of(run: Any) -> dict[str, Any]:
    """How many rows each batch had, and how often its size was changed."""
    rows = {entry["batchId"]: (entry.get("fluxen") or {}).get("rows_in", 0) for entry in run.recentProgress}
    resized = [event["what"] for event in run.events if event["kind"] == "resize"]
    return {"rows": rows, "resized": resized}
