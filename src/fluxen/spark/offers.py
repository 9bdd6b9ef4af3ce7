"""The demo's query: QUERY 1 of Liu-07, a join of three banks' offers and the lowest price per broker.

Offers of one kind and currency meet if all three banks made them within `WINDOW`: the paper's condition on the
timestamps, read as a bound on how far apart they are. The rows come from `fluxen.cli.offers`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fluxen.operators.aggregate.functions import count, min
from fluxen.spark.query import Query
from fluxen.spark.words import join

SCHEMA = "currency string, offer int, ts timestamp, broker string, price double"
WINDOW = "60 seconds"


def offers_query(spark: SparkSession, directory: Path, banks: tuple[str, ...], **adapt: Any) -> Query:
    """The query over the files below `directory`, one file per bank and micro-batch."""
    streams = {bank: _stream(spark, directory / bank) for bank in banks}
    joined: Query = join(streams, on=["currency", "offer"], time="ts", within=WINDOW)
    first = banks[0]
    cheapest = joined.aggregate(by=f"{first}_broker", cheapest=min(f"{first}_price"), matches=count())
    return cheapest.adapt(**adapt)


def _stream(spark: SparkSession, path: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(path))
