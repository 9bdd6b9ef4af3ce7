"""A running aggregate over a topic: through fluxen, through Spark's own groupBy, and the topic only passed through.

All read and parse the same records; what goes to Kafka again is key and value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import fluxen as fx
from fluxen_lab.benchmarks.job import Job

__all__ = ["QUERIES"]

_ROW = "key LONG, value DOUBLE"


def _rows(spark: SparkSession, job: Job) -> DataFrame:
    """One micro-batch after the other, as large as the files that the topic was filled from."""
    limit = int((job.data / "limit").read_text())
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job.servers)
    source = source.option("subscribe", job.data.name).option("startingOffsets", "earliest")
    records = source.option("maxOffsetsPerTrigger", limit).load()
    return records.select(F.from_json(F.col("value").cast("string"), _ROW).alias("row")).select("row.*")


def _sent(results: Any, job: Job) -> Any:
    if job.sink != "kafka":
        return results
    value = F.to_json(F.struct(*results.columns)).alias("value")
    return results.select(F.col("key").cast("string").alias("key"), value)


def passed(spark: SparkSession, job: Job) -> DataFrame:
    found: DataFrame = _sent(_rows(spark, job), job)
    return found


def grouped(spark: SparkSession, job: Job) -> DataFrame:
    values = F.count("*").alias("n"), F.sum("value").alias("total"), F.avg("value").alias("mean")
    found: DataFrame = _sent(_rows(spark, job).groupBy("key").agg(*values), job)
    return found


def running(spark: SparkSession, job: Job) -> Any:
    values = {"n": fx.count(), "total": fx.sum("value"), "mean": fx.avg("value")}
    query = fx.aggregate(_rows(spark, job), by="key", aggregates=values).adapt(sites=2, partitions=64)
    return _sent(query, job)


QUERIES: dict[str, Callable[[SparkSession, Job], Any]] = {
    "kafka-passed": passed,
    "kafka-grouped": grouped,
    "fluxen-kafka-running": running,
}
