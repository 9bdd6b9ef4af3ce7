"""Network monitoring, the query of the Flux paper: averages per client, and the minute's busiest clients.

`python examples/network_monitoring.py` makes a few minutes of traffic, in which one client floods the network for a
minute, and runs both queries over it; everything it writes is temporary.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import fluxen as fx
from fluxen.testing import feed

START = datetime(2026, 1, 1, 9)
CLIENTS, FLOODING = 40, 7
PACKETS = pa.schema(
    [("client", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("bytes", pa.int64()), ("delay", pa.float64())]
)


def traffic(minutes: int = 3, per_minute: int = 1_200, seed: int = 1) -> list[pa.Table]:
    """One table of packets a minute. In the second, client 7 sends half of them and waits ten times as long."""
    rng = np.random.default_rng(seed)
    tables = []
    for minute in range(minutes):
        client = rng.integers(0, CLIENTS, per_minute)
        if minute == 1:
            client[rng.random(per_minute) < 0.5] = FLOODING
        delay = rng.gamma(4.0, 5.0, per_minute) * np.where((client == FLOODING) & (minute == 1), 10, 1)
        seconds = minute * 60 + np.sort(rng.random(per_minute)) * 60
        names = [f"10.0.0.{number}" for number in client]
        times = [START + timedelta(seconds=second) for second in seconds]
        size = rng.integers(64, 1_500, per_minute)
        tables.append(pa.table([names, times, size, np.round(delay, 3)], schema=PACKETS))
    return tables


def run(query: Any, place: Path) -> Any:
    """A query to the end of its input, with its results as files."""
    writer = query.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    writer = writer.option("endOfInput", True).trigger(availableNow=True)
    writer.start(str(place / "results")).awaitTermination()
    return query.spark.read.parquet(str(place / "results"))


def main(directory: Path) -> tuple[list[Any], list[Any]]:
    spark = fx.session(master="local[2]")
    packets = feed(spark, traffic(), directory / "packets")

    # every packet with the mean delay of its client's last ten; groups of busy clients move to the idler site
    smooth = fx.aggregate(packets, by="client", time="ts", last=10, mean=fx.avg("delay"), n=fx.count())
    smooth = smooth.where("n = 10 AND mean > 100").adapt(sites=2, policy=fx.FluxLoad())
    slow = run(smooth, directory / "slow").groupBy("client").count().collect()

    # bytes of each client and minute, and of these the three largest a minute
    minutes = fx.aggregate(packets, by="client", time="ts", window="1 minute", total=fx.sum("bytes"))
    busiest = minutes.top(by="window", n=3, order=[("total", "desc")])
    ranked = run(busiest, directory / "busiest").where("rank = 1").orderBy("window").collect()
    return slow, ranked


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        slow, ranked = main(Path(place))
        for row in slow:
            print(f"{row.client} waited more than 100 ms, averaged over ten packets, {row['count']} times")
        for row in ranked:
            print(f"{row.window.start:%H:%M}  {row.client} sent most: {row.total:,} bytes")
