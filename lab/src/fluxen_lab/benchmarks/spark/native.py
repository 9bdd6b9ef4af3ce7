"""Spark's own windowed aggregation and chained stream-stream joins: what fluxen is measured against.

The same queries through fluxen are in ours.py, and over all rows at once in ../oracle.py.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fluxen_lab.benchmarks.job import Job
from fluxen_lab.benchmarks.spark.sources import stream

__all__ = ["empty", "join", "tumbling"]


def tumbling(spark: SparkSession, job: Job) -> DataFrame:
    """Count, sum and average per key and 10 s window, emitted when the watermark passes the window."""
    rows = stream(spark, job.data, "rows", text=False).withWatermark("ts", "0 seconds")
    return (
        rows.groupBy("key", F.window("ts", "10 seconds"))
        .agg(F.count("*").alias("n"), F.sum("value").alias("total"), F.avg("value").alias("mean"))
        .select("key", F.col("window.start").alias("start"), "n", "total", "mean")
    )


def join(spark: SparkSession, job: Job) -> DataFrame:
    """a with b, then with c: equal keys, b and c within the bound of a."""
    sides = {}
    for name in "abc":
        rows = stream(spark, job.data, name, text=True).withWatermark("ts", "0 seconds")
        sides[name] = rows.select([F.col(column).alias(f"{name}_{column}") for column in rows.columns])
    bound = F.expr(f"INTERVAL {(job.bound_us or 0) / 1e6:f} SECOND")
    joined = sides["a"]
    for name in "bc":
        near = F.col(f"{name}_ts").between(F.col("a_ts") - bound, F.col("a_ts") + bound)
        joined = joined.join(sides[name], (F.col("a_key") == F.col(f"{name}_key")) & near).drop(f"{name}_key")
        # Spark refuses a second join over two event-time columns: as a computed value this is no longer one
        joined = joined.withColumn(f"{name}_ts", F.timestamp_micros(F.unix_micros(f"{name}_ts")))
    return joined.withColumnRenamed("a_key", "key")


def empty(spark: SparkSession, job: Job) -> DataFrame:
    """The three streams in one query that keeps nothing: Spark's own cost of a micro-batch over these sources."""
    a, b, c = (stream(spark, job.data, name, text=True) for name in "abc")
    return a.unionByName(b).unionByName(c)
