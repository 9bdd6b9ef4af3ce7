"""Runs one query over prepared files into a parquet sink until it is through, or until it is killed."""

from __future__ import annotations

import sys
from pathlib import Path

import fluxen as fx
from fluxen.testing.streams import stream_of


def main(directory: Path) -> None:
    spark = fx.session(
        "fluxen-chaos",
        master="local[2]",
        spark__driver__memory="512m",
        spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        spark__sql__shuffle__partitions=2,
    )
    spark.sparkContext.setLogLevel("ERROR")
    inputs = {name: stream_of(spark, directory / "input" / name) for name in ("a", "b")}
    joined = fx.join(inputs, on="k", time="ts", within="5 seconds", lateness="10 seconds")
    query = joined.aggregate(
        by="k", time="a_ts", window="10 seconds", lateness="30 seconds", n=fx.count(), total=fx.sum("b_v")
    )
    writer = query.adapt(sites=2, partitions=16).writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint")).option("endOfInput", True)
    writer.start(str(directory / "output")).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
