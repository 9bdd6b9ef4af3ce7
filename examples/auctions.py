"""Online auctions: who wins each one, and which gets most bids; the streams are a small relative of Nexmark's.

`python examples/auctions.py` makes some minutes of auctions and bids, most of them on a few hot auctions, and runs two
queries: one in fluxen's own words, one as Spark SQL. Everything it writes is temporary.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import fluxen as fx
from fluxen.testing import feeds

START = datetime(2026, 1, 1, 9)
OPEN = timedelta(minutes=2)
"""how long an auction takes bids"""
AUCTIONS = pa.schema(
    [("id", pa.int64()), ("item", pa.string()), ("opened", pa.timestamp("us", "UTC")), ("reserve", pa.int64())]
)
BIDS = pa.schema(
    [("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
)


def house(minutes: int = 4, per_minute: int = 20, bids: int = 40, seed: int = 1) -> dict[str, list[pa.Table]]:
    """A table of each stream a minute. Every tenth auction is hot: half of all bids go to it until the next one is."""
    rng = np.random.default_rng(seed)
    opened, placed = [], []
    for minute in range(minutes):
        ids = np.arange(minute * per_minute, (minute + 1) * per_minute)
        times = [START + timedelta(seconds=float(60 * number / per_minute)) for number in ids]
        reserve = rng.integers(50, 500, per_minute)
        opened.append(pa.table([ids, [f"item-{number}" for number in ids], times, reserve], schema=AUCTIONS))
        seconds = minute * 60 + np.sort(rng.random(per_minute * bids)) * 60
        newest = (seconds * per_minute / 60).astype(np.int64)
        age = np.minimum(rng.geometric(0.1, len(seconds)) - 1, newest)
        auction = np.where(rng.random(len(seconds)) < 0.5, newest // 10 * 10, newest - age)
        price = 100 + rng.gamma(2.0, 200.0, len(seconds)).astype(np.int64)
        stamps = [START + timedelta(seconds=float(second)) for second in seconds]
        placed.append(pa.table([auction, rng.integers(0, 500, len(seconds)), price, stamps], schema=BIDS))
    return {"auctions": opened, "bids": placed}


def winners(auctions: Any, bids: Any) -> Any:
    """The highest bid of each auction so far, among those that came while it was open and reached the reserve."""
    valid = fx.join(
        {"auction": auctions, "bid": bids},
        on={"auction": "id", "bid": "auction"},
        time={"auction": "opened", "bid": "ts"},
        between={("bid", "auction"): ("0 seconds", OPEN)},
    ).where("bid_price >= auction_reserve")
    return valid.select("id", "auction_item", "bid_bidder", "bid_price", "bid_ts").top(
        by="id", n=1, order=[("bid_price", "desc"), "bid_ts"], time="bid_ts", ttl=OPEN
    )


HOTTEST = """
    SELECT window.start AS minute, auction, bids FROM (
        SELECT window, auction, bids, row_number() OVER (PARTITION BY window ORDER BY bids DESC, auction) AS place
        FROM (SELECT window(ts, '1 minute') AS window, auction, count(*) AS bids FROM bids GROUP BY 1, 2)
    ) WHERE place = 1
"""


def collect(query: Any, checkpoint: Path, key: str) -> list[Any]:
    """The newest row of each key, which is what results in update form leave."""
    rows: dict[Any, Any] = {}
    writer = query.writeStream.foreachBatch(lambda found, epoch: rows.update({r[key]: r for r in found.collect()}))
    writer = writer.option("checkpointLocation", str(checkpoint)).option("endOfInput", True)
    writer.trigger(availableNow=True).start().awaitTermination()
    return [rows[value] for value in sorted(rows)]


def main(directory: Path) -> tuple[list[Any], list[Any]]:
    spark = fx.session(master="local[2]")
    streams = feeds(spark, house(), directory / "input")
    won = winners(streams["auctions"], streams["bids"]).adapt(sites=2, policy=fx.FluxLoad())
    streams["bids"].withWatermark("ts", "0 seconds").createOrReplaceTempView("bids")
    hottest = fx.query(spark.sql(HOTTEST)).adapt(sites=2)
    return collect(won, directory / "won", "id"), collect(hottest, directory / "hottest", "minute")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        won, hottest = main(Path(place))
        for row in won[:5]:
            print(f"auction {row.id}: {row.auction_item} goes to bidder {row.bid_bidder} for {row.bid_price}")
        for row in hottest:
            print(f"{row.minute:%H:%M}  most bids on auction {row.auction}: {row.bids}")
