"""A Structured Streaming job as it is: clicks joined with the impressions they came from, counted by the minute.

`python examples/your_query.py` runs it on Spark, then on fluxen. The two differ in one line of `job`.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import fluxen as fx
from fluxen.testing import feeds

SHOWN = pa.schema([("ad", pa.int64()), ("site", pa.string()), ("shown", pa.timestamp("us", "UTC"))])
CLICKED = pa.schema([("clicked_ad", pa.int64()), ("clicked", pa.timestamp("us", "UTC"))])


def batches() -> dict[str, list[pa.Table]]:
    """Four micro-batches: an ad a second on three sites, every third of them clicked five seconds later."""
    start, minute = datetime(2026, 1, 1, 9), timedelta(minutes=1)
    shown, clicked = [], []
    for batch in range(4):
        at = [(batch * 60 + second, start + batch * minute + timedelta(seconds=second)) for second in range(60)]
        shown.append(pa.table([[n for n, _ in at], ["abc"[n % 3] for n, _ in at], [t for _, t in at]], schema=SHOWN))
        late = [(n, t + timedelta(seconds=5)) for n, t in at if n % 3 == 0 and n % 60 < 55]
        clicked.append(pa.table([[n for n, _ in late], [t for _, t in late]], schema=CLICKED))
    return {"impressions": shown, "clicks": clicked}


def job(spark: Any, streams: dict[str, Any], out: Path, *, on_fluxen: bool) -> None:
    for name, time in (("impressions", "shown"), ("clicks", "clicked")):
        streams[name].withWatermark(time, "10 seconds").createOrReplaceTempView(name)
    df = spark.sql("""
        SELECT site, window(shown, '1 minute') AS minute, count(*) AS clicks
        FROM impressions JOIN clicks ON ad = clicked_ad AND clicked BETWEEN shown AND shown + INTERVAL 30 SECONDS
        GROUP BY site, window(shown, '1 minute')
    """)
    if on_fluxen:
        df = fx.query(df)  # the line that differs
    writer = df.writeStream.format("parquet").option("checkpointLocation", str(out / "checkpoint"))
    writer.trigger(availableNow=True).start(str(out / "clicks")).awaitTermination()


def main(directory: Path) -> dict[str, list[Any]]:
    spark = fx.session(master="local[2]")
    found = {}
    for name in ("spark", "fluxen"):
        streams = feeds(spark, batches(), directory / name / "input")
        job(spark, streams, directory / name, on_fluxen=name == "fluxen")
        found[name] = sorted(spark.read.parquet(str(directory / name / "clicks")).collect())
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for engine, rows in main(Path(place)).items():
            print(engine)
            for row in rows:
                print(" ", row.site, row.minute.start, row.clicks)
