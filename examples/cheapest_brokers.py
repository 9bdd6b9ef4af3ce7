"""Three banks' offers joined on currency and kind of offer, then the lowest price per broker: two stateful stages.

Run it with `python examples/cheapest_brokers.py`; everything it writes is temporary.
"""

from __future__ import annotations

import os
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import fluxen as fx

BANKS = ("bank1", "bank2", "bank3")


def write_offers(directory: Path, files: int = 3, rows: int = 200) -> None:
    """One file per bank and micro-batch."""
    start = datetime(2026, 1, 1, 9)
    for number, bank in enumerate(BANKS):
        (directory / bank).mkdir(parents=True, exist_ok=True)
        for file in range(files):
            offers = [
                {
                    "currency": ("EUR", "GBP", "JPY")[i % 3],
                    "offer": (7 * i + number) % 20,
                    "ts": start + timedelta(seconds=file * rows + i),
                    "broker": f"broker-{(i + number) % 5}",
                    "price": 1 + (13 * i + number) % 17 / 100,
                }
                for i in range(rows)
            ]
            path = directory / bank / f"{file:03d}.parquet"
            pq.write_table(pa.Table.from_pylist(offers, SCHEMA), path)
            # Spark reads files in the order of their times, which are the same if they are written at once
            os.utime(path, (start.timestamp() + file, start.timestamp() + file))


SCHEMA = pa.schema(
    [
        ("currency", pa.string()),
        ("offer", pa.int32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("broker", pa.string()),
        ("price", pa.float64()),
    ]
)


def main(directory: Path) -> list[tuple[str, float, int]]:
    write_offers(directory / "offers")
    spark = fx.session(master="local[2]")
    schema = "currency string, offer int, ts timestamp, broker string, price double"
    streams = {
        bank: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(directory / "offers" / bank))
        for bank in BANKS
    }
    joined = fx.join(streams, on=["currency", "offer"], time="ts", within="60 seconds")
    query = joined.aggregate(by="bank1_broker", cheapest=fx.min("bank1_price"), matches=fx.count())

    latest: dict[str, tuple[float, int]] = {}

    def keep(results, epoch):  # running values: a broker's newest row replaces its older ones
        latest.update({row.bank1_broker: (row.cheapest, row.matches) for row in results.collect()})

    run = (
        query.adapt(sites=2, partitions=16, policy=fx.FluxLoad())
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    run.awaitTermination()
    return sorted((broker, price, matches) for broker, (price, matches) in latest.items())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for broker, price, matches in main(Path(place)):
            print(f"{broker}  {price:.2f}  ({matches} matches)")
