"""The demo's query: QUERY 1 of Liu-07, a join of three banks' offers and the lowest price per broker.

The join is one DataFrame, which Spark runs as it is and fluxen through `fx.query`. The lowest prices of a batch are
worked out in the sink, the same for both, because Spark has no running aggregate behind a join. The rows come from
`fluxen.cli.offers`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fluxen.spark.words import query

SCHEMA = "currency string, offer int, ts timestamp, broker string, price double"
WINDOW = "40 seconds"

Cheapest = dict[str, tuple[float, int]]
"""Lowest price and number of matches of each broker."""


def offers_join(spark: SparkSession, directory: Path, banks: tuple[str, ...]) -> DataFrame:
    """Offers of one kind and currency that the other banks made within `WINDOW` of the first bank's.

    Event times but the first bank's are dropped on the way: Spark refuses to join rows that have two.
    """
    first, *others = banks
    joined = _stream(spark, directory, first)
    bound = F.expr(f"INTERVAL {WINDOW}")
    for bank in others:
        same = [F.col(f"{first}_{key}") == F.col(f"{bank}_{key}") for key in ("currency", "offer")]
        near = F.col(f"{bank}_ts").between(F.col(f"{first}_ts") - bound, F.col(f"{first}_ts") + bound)
        joined = joined.join(_stream(spark, directory, bank), same[0] & same[1] & near)
        joined = joined.drop(f"{bank}_currency", f"{bank}_offer", f"{bank}_ts")
    return joined.select(*(f"{bank}_{column}" for bank in banks for column in ("broker", "price")))


def start_offers(
    spark: SparkSession,
    directory: Path,
    banks: tuple[str, ...],
    checkpoint: Path,
    found: dict[int, Cheapest],
    adapt: dict[str, Any] | None,
) -> Any:
    """The query over the files below `directory`, one file per bank and micro-batch: on Spark alone, or on fluxen with
    `adapt`. Puts what each micro-batch brought into `found`."""
    df: Any = offers_join(spark, directory, banks)
    broker, price = f"{banks[0]}_broker", f"{banks[0]}_price"

    def keep(results: DataFrame, number: int) -> None:
        rows = results.groupBy(broker).agg(F.min(price), F.count("*")).collect()
        found[number] = {row[0]: (row[1], row[2]) for row in rows}

    if adapt is not None:
        df = query(df).adapt(**adapt)
    writer = df.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def _stream(spark: SparkSession, directory: Path, bank: str) -> DataFrame:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(directory / bank))
    return rows.withWatermark("ts", "0 seconds").select([F.col(name).alias(f"{bank}_{name}") for name in rows.columns])
