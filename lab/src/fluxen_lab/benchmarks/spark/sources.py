"""The benchmark's files as streams, and the sinks both engines write to.

The files come from datagen/streams.py; native.py, last10.py and ours.py build queries on these streams.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fluxen.spark.session import local_disk
from fluxen_lab.benchmarks.job import PROVIDERS, Job

__all__ = ["native_session", "plain_session", "sink", "stream"]

_ROWS = "key LONG, ts TIMESTAMP, value DOUBLE"
_WITH_TEXT = f"{_ROWS}, text STRING"


def native_session(job: Job) -> SparkSession:
    """Spark with the settings that were searched for its own operators."""
    builder = SparkSession.builder.config("spark.sql.shuffle.partitions", job.settings.shuffle_partitions).config(
        "spark.sql.streaming.stateStore.providerClass", PROVIDERS[job.settings.provider]
    )
    for name, value in local_disk(job.master).items() if job.settings.tuned else ():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def plain_session(job: Job) -> SparkSession:
    """Spark as it comes."""
    return SparkSession.builder.getOrCreate()


def stream(spark: SparkSession, data: Path, name: str, *, text: bool, files: int = 1) -> DataFrame:
    """One stream's files, so many per micro-batch, in order of modification time."""
    reader = spark.readStream.schema(_WITH_TEXT if text else _ROWS).option("maxFilesPerTrigger", files)
    return reader.parquet(str(data / name))


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
