"""Runs one query over prepared files into a sink until it is through, or until it is killed.

`python driver.py DIRECTORY` joins and aggregates in fluxen's words, into parquet; with `sql` behind it, `fx.query` gets
a DataFrame, and with `sql-at-once` Spark writes what that DataFrame is over all rows. Another sink comes last, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import fluxen as fx
from fluxen.testing.streams import stream_of

PARQUET: dict[str, Any] = {"format": "parquet", "options": {}}
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}
SQL = """
SELECT w.start AS start, k, count(*) AS n, sum(m) AS total, count(m) AS met
FROM (SELECT k, window(ts, '10 seconds') AS w, m FROM (
  SELECT a.k, a.ts, b.v AS m FROM a LEFT JOIN b
  ON a.k = b.k AND a.v > b.v AND b.ts BETWEEN a.ts - INTERVAL 3 SECONDS AND a.ts + INTERVAL 5 SECONDS
  UNION ALL SELECT k, ts, v FROM b WHERE v < 100))
GROUP BY w, k
"""


def sql(spark: Any, inputs: dict[str, Any]) -> Any:
    for name, rows in inputs.items():
        rows.withWatermark("ts", "13 seconds").createOrReplaceTempView(name)
    return spark.sql(SQL)


def words(inputs: dict[str, Any]) -> fx.Query:
    joined = fx.join(inputs, on="k", time="ts", within="5 seconds", lateness="10 seconds")
    return joined.aggregate(
        by="k", time="a_ts", window="10 seconds", lateness="30 seconds", n=fx.count(), total=fx.sum("b_v")
    )


def main(directory: Path, what: str, sink: dict[str, Any]) -> None:
    settings = SETTINGS | sink.get("session", {})
    named = {name.replace(".", "__"): value for name, value in settings.items()}
    spark = fx.session("fluxen-chaos", master="local[2]", **named)
    spark.sparkContext.setLogLevel("ERROR")
    if what == "sql-at-once":
        whole = {name: spark.read.parquet(str(directory / "input" / name)) for name in ("a", "b")}
        sql(spark, whole).write.parquet(str(directory / "expected"))
        return
    inputs = {name: stream_of(spark, directory / "input" / name) for name in ("a", "b")}
    query = fx.query(sql(spark, inputs)) if what == "sql" else words(inputs)
    if "select" in sink:
        query = query.select(*(F.expr(column) for column in sink["select"]))
    writer = query.adapt(sites=2, partitions=16).writeStream.format(sink["format"]).options(**sink["options"])
    writer = writer.option("checkpointLocation", str(directory / "checkpoint")).option("endOfInput", True)
    writer = writer.trigger(availableNow=True)
    if "table" in sink:
        writer.toTable(sink["table"]).awaitTermination()
    else:
        writer.start(None if sink["format"] == "kafka" else str(directory / "output")).awaitTermination()


if __name__ == "__main__":
    place, what, sink = (*sys.argv[1:], *("words", json.dumps(PARQUET))[len(sys.argv) - 2 :])
    main(Path(place), what, json.loads(sink))
