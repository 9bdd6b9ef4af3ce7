"""The benchmark's files as streams, and the sinks both engines write to.

The files come from data.py; native.py, last10.py and ours.py build queries on these streams.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fluxen.bench.job import PROVIDERS, Job

__all__ = ["native_session", "sink", "stream"]

_ROWS = "key LONG, ts TIMESTAMP, value DOUBLE"
_WITH_TEXT = f"{_ROWS}, text STRING"


def native_session(job: Job) -> SparkSession:
    """Spark as a user would tune it by hand for its own operators."""
    return (
        SparkSession.builder.config("spark.sql.shuffle.partitions", job.settings.shuffle_partitions)
        .config("spark.sql.streaming.stateStore.providerClass", PROVIDERS[job.settings.provider])
        # Spark's default takes 40-60 ms a log file on a local disk; its own baseline gets the faster one as well
        .config(
            "spark.sql.streaming.checkpointFileManagerClass",
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        )
        .getOrCreate()
    )


def stream(spark: SparkSession, data: Path, name: str, *, text: bool) -> DataFrame:
    """One stream's files, one per micro-batch, in order of modification time."""
    return (
        spark.readStream.schema(_WITH_TEXT if text else _ROWS).option("maxFilesPerTrigger", 1).parquet(str(data / name))
    )


def sink(job: Job) -> Callable[[Any, int], None]:
    """What foreachBatch is given, the same for both engines."""

    def to_parquet(batch: Any, number: int) -> None:
        # a folder per batch, overwritten on re-delivery: appending, and exactly once
        batch.write.mode("overwrite").parquet(str(job.out / f"batch-{number:05d}"))

    def to_noop(batch: Any, number: int) -> None:
        batch.write.format("noop").mode("overwrite").save()

    def to_nothing(batch: Any, number: int) -> None:
        return None

    return {"parquet": to_parquet, "noop": to_noop, "nothing": to_nothing}[job.sink]
