"""Runs one query over prepared files into a sink until it is through, or until it is killed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import fluxen as fx
from fluxen.testing.streams import stream_of

PARQUET: dict[str, Any] = {"format": "parquet", "options": {}}


def main(directory: Path, sink: dict[str, Any]) -> None:
    spark = fx.session(
        "fluxen-chaos",
        master="local[2]",
        spark__driver__memory="512m",
        spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        spark__sql__shuffle__partitions=2,
        **{name.replace(".", "__"): value for name, value in sink.get("session", {}).items()},
    )
    spark.sparkContext.setLogLevel("ERROR")
    inputs = {name: stream_of(spark, directory / "input" / name) for name in ("a", "b")}
    joined = fx.join(inputs, on="k", time="ts", within="5 seconds", lateness="10 seconds")
    query = joined.aggregate(
        by="k", time="a_ts", window="10 seconds", lateness="30 seconds", n=fx.count(), total=fx.sum("b_v")
    )
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
    main(Path(sys.argv[1]), json.loads(sys.argv[2]) if len(sys.argv) > 2 else PARQUET)
