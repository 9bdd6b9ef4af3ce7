"""Queries of the kind people have, each one DataFrame: Spark starts it as it is, fluxen through `fx.query(df)`.

The same over all rows at once, for DuckDB, is in ../query.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import fluxen as fx
from fluxen_lab.benchmarks.job import Job
from fluxen_lab.benchmarks.spark.sources import stream

__all__ = ["QUERIES", "native", "on_fluxen"]


def _side(spark: SparkSession, job: Job, name: str) -> DataFrame:
    rows = stream(spark, job.data, name, text=True).withWatermark("ts", "0 seconds")
    return rows.select([F.col(column).alias(f"{name}_{column}") for column in rows.columns])


def _near(name: str, job: Job) -> Column:
    """Equal keys, and no further from a than the bound, on either side."""
    bound = F.expr(f"INTERVAL {(job.bound_us or 0) // 1_000_000} SECONDS")
    times = F.col(f"{name}_ts").between(F.col("a_ts") - bound, F.col("a_ts") + bound)
    return (F.col("a_key") == F.col(f"{name}_key")) & times


def _two(spark: SparkSession, job: Job) -> DataFrame:
    return _side(spark, job, "a").join(_side(spark, job, "b"), _near("b", job))


def two_way(spark: SparkSession, job: Job) -> DataFrame:
    return _two(spark, job).select("a_key", "a_ts", "a_value", "a_text", "b_ts", "b_value", "b_text")


def three_way(spark: SparkSession, job: Job) -> DataFrame:
    """b's time does not go into the second join: Spark refuses to join rows that have two event times."""
    first = _two(spark, job).select("a_key", "a_ts", "a_value", "a_text", "b_value", "b_text")
    joined = first.join(_side(spark, job, "c"), _near("c", job))
    return joined.select("a_key", "a_ts", "a_value", "a_text", "b_value", "b_text", "c_ts", "c_value", "c_text")


def left_outer(spark: SparkSession, job: Job) -> DataFrame:
    """Every a with the b that follow it within the bound, or with nulls."""
    bound = F.expr(f"INTERVAL {(job.bound_us or 0) // 1_000_000} SECONDS")
    follows = F.col("b_ts").between(F.col("a_ts"), F.col("a_ts") + bound)
    same = F.col("a_key") == F.col("b_key")
    joined = _side(spark, job, "a").join(_side(spark, job, "b"), same & follows, "left")
    return joined.select("a_key", "a_ts", "a_value", "a_text", "b_ts", "b_value", "b_text")


def join_then_window(spark: SparkSession, job: Job) -> DataFrame:
    """Pairs counted and summed per hundredth of the keys and 10 s of a's time, whose windows the results close."""
    pairs = _two(spark, job).select((F.col("a_key") % 100).alias("part"), "a_ts", "b_value")
    grouped = pairs.groupBy("part", F.window("a_ts", "10 seconds"))
    found = grouped.agg(F.count("*").alias("n"), F.sum("b_value").alias("total"))
    return found.select("part", F.col("window.start").alias("start"), "n", "total")


def hopping(spark: SparkSession, job: Job) -> DataFrame:
    """Count, sum and largest value per key and 20 s window that begins every 5 s."""
    rows = stream(spark, job.data, "rows", text=False).withWatermark("ts", "0 seconds")
    grouped = rows.groupBy("key", F.window("ts", "20 seconds", "5 seconds"))
    found = grouped.agg(F.count("*").alias("n"), F.sum("value").alias("total"), F.max("value").alias("high"))
    return found.select("key", F.col("window.start").alias("start"), "n", "total", "high")


QUERIES: dict[str, Callable[[SparkSession, Job], DataFrame]] = {
    "two-way": two_way,
    "three-way": three_way,
    "two-way-large": two_way,
    "three-way-large": three_way,
    "left-outer": left_outer,
    "join-then-window": join_then_window,
    "hopping": hopping,
}


def native(part: str) -> Callable[[SparkSession, Job], DataFrame]:
    return QUERIES[part]


def on_fluxen(part: str) -> Callable[[SparkSession, Job], Any]:
    """The same DataFrame with the one line that a job changes, and every option as it comes."""
    return lambda spark, job: fx.query(QUERIES[part](spark, job))
