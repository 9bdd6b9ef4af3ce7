"""The mean of each symbol's last three prices at every trade, and one-minute bars: two forms of aggregation.

Run it with `python examples/moving_average.py`; everything it writes is temporary.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import fluxen as fx
from fluxen.testing import feed


def trades() -> list[pa.Table]:
    """Two micro-batches of trades, one symbol a second."""
    start = datetime(2026, 1, 1, 9)
    rows = [{"symbol": "AB"[i % 2], "ts": start + timedelta(seconds=10 * i), "price": 100.0 + i % 7} for i in range(24)]
    schema = pa.schema([("symbol", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("price", pa.float64())])
    table = pa.Table.from_pylist(rows, schema)
    return [table.slice(0, 12), table.slice(12)]


def collect(query: Any, directory: Path, **options: Any) -> list[Any]:
    """All results of a query over the input there is."""
    found: list[Any] = []
    run = (
        query.writeStream.foreachBatch(lambda results, epoch: found.extend(results.collect()))
        .option("checkpointLocation", str(directory))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    run.awaitTermination()
    return found


def main(directory: Path) -> tuple[list[Any], list[Any]]:
    spark = fx.session(master="local[2]")
    stream = feed(spark, trades())
    moving = fx.aggregate(stream, by="symbol", time="ts", last=3, mean=fx.avg("price"), n=fx.count())
    bars = fx.aggregate(
        stream, by="symbol", time="ts", window="1 minute", open=fx.first("price"), close=fx.last("price"), n=fx.count()
    )
    averages = collect(moving.adapt(sites=2), directory / "moving")
    # the input is finite, so the last minute is closed too
    minutes = collect(bars.adapt(sites=2), directory / "bars", endOfInput=True)
    return averages, minutes


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        averages, minutes = main(Path(place))
        for row in sorted(averages)[:5]:
            print(row.symbol, row.ts, f"{row.mean:.2f}", row.n)
        for row in sorted(minutes):
            print(row.symbol, row.window.start, row.open, row.close, row.n)
