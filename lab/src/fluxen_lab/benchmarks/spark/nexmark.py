"""Nexmark's streams as views, and its queries on either engine; their text is in ../nexmark/queries.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import fluxen as fx
from fluxen.errors import QueryError
from fluxen_lab.benchmarks.job import Job
from fluxen_lab.benchmarks.nexmark.queries import QUERIES

__all__ = ["WATERMARK", "native", "on_fluxen", "views"]

WATERMARK = "4 seconds"
_SCHEMAS = {
    "person": "id LONG, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, "
    "dateTime TIMESTAMP, extra STRING",
    "auction": "id LONG, itemName STRING, description STRING, initialBid LONG, reserve LONG, dateTime TIMESTAMP, "
    "expires TIMESTAMP, seller LONG, category LONG, extra STRING",
    "bid": "auction LONG, bidder LONG, price LONG, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING",
}


def views(spark: SparkSession, job: Job) -> None:
    """The three streams, one file per micro-batch, and the table that q13 looks up."""
    for name, schema in _SCHEMAS.items():
        files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(job.data / name))
        files.withWatermark("dateTime", WATERMARK).createOrReplaceTempView(name)
    side = spark.range(10_000).selectExpr("id AS key", "concat('value-', id) AS value")
    side.createOrReplaceTempView("side_input")


def native(name: str) -> Callable[[SparkSession, Job], DataFrame]:
    def build(spark: SparkSession, job: Job) -> DataFrame:
        views(spark, job)
        return spark.sql(QUERIES[name].sql)

    return build


def on_fluxen(name: str) -> Callable[[SparkSession, Job], Any]:
    def build(spark: SparkSession, job: Job) -> Any:
        query = fx.query(native(name)(spark, job))
        if not isinstance(query, fx.Query):  # Spark's own run of it is measured anyway
            raise QueryError("the query keeps no state, so there is nothing for fluxen to run")
        return query

    return build
