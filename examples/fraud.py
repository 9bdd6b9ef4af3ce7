"""Card fraud: payments that no login came before, and bursts of payments; an outer join and sessions in one query.

`python examples/fraud.py` makes an hour of payments and logins with a few thieves among them, and prints the alerts;
everything it writes is temporary.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

import fluxen as fx
from fluxen.testing import feeds

START = datetime(2026, 1, 1, 9)
CARDS = 60
THIEVES = (3, 11)
"""cards that are used without a login"""
BURST = 42
"""a card that is emptied within seconds, after a login"""
PAYMENTS = pa.schema([("card", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("amount", pa.float64())])
LOGINS = pa.schema([("card", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def hour(seed: int = 1) -> dict[str, list[pa.Table]]:
    """Three tables of twenty minutes each: a login, one to five minutes before every honest payment."""
    rng = np.random.default_rng(seed)
    paid = [(float(rng.uniform(300, 3_600)), int(card), round(float(rng.uniform(5, 90)), 2)) for card in range(CARDS)]
    honest = [(at - float(rng.uniform(60, 290)), card) for at, card, _ in paid if card not in THIEVES]
    paid += [(2_000.0 + 4 * number, BURST, 50.0) for number in range(8)]
    honest.append((1_900.0, BURST))
    payments, logins = [], []
    for start in range(0, 3_600, 1_200):
        now = sorted(row for row in paid if start <= row[0] < start + 1_200)
        columns = [[c for _, c, _ in now], [START + timedelta(seconds=at) for at, _, _ in now], [a for _, _, a in now]]
        payments.append(pa.table(columns, schema=PAYMENTS))
        seen = sorted(row for row in honest if start <= row[0] < start + 1_200)
        columns = [[c for _, c in seen], [START + timedelta(seconds=at) for at, _ in seen]]
        logins.append(pa.table(columns, schema=LOGINS))
    return {"payments": payments, "logins": logins}


def alerts(payments: Any, logins: Any) -> Any:
    """One query of three stages: an anti join, sessions, and the union of what they find."""
    lonely = fx.join(
        {"payment": payments, "login": logins},
        on="card",
        time="ts",
        between={("login", "payment"): ("-5 minutes", "0 seconds")},
        how="anti",
    )
    lonely = lonely.select(
        "card", F.col("payment_ts").alias("ts"), F.col("payment_amount").alias("amount"), F.lit("no login").alias("why")
    )
    bursts = fx.aggregate(payments, by="card", time="ts", session="30 seconds", n=fx.count(), amount=fx.sum("amount"))
    bursts = bursts.where("n >= 5").select(
        "card", F.col("session_window.start").alias("ts"), "amount", F.lit("burst").alias("why")
    )
    return fx.union(lonely, bursts)


def main(directory: Path) -> list[Any]:
    spark = fx.session(master="local[2]")
    streams = feeds(spark, hour(), directory / "input")
    query = alerts(streams["payments"], streams["logins"]).adapt(sites=2)
    writer = query.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    # the input is finite: payments whose login could still come are settled at its end
    writer = writer.option("endOfInput", True).trigger(availableNow=True)
    writer.start(str(directory / "alerts")).awaitTermination()
    return sorted(spark.read.parquet(str(directory / "alerts")).collect())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for row in main(Path(place)):
            print(f"card {row.card:>2}  {row.ts:%H:%M:%S}  {row.amount:>7.2f}  {row.why}")
