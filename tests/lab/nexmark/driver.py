"""Runs one Nexmark query over the files that have arrived until it is through, or until it is killed."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.lab.nexmark.stress import HOUSE, Sink, Stretch, start

import fluxen as fx
from fluxen_lab.benchmarks.job import Job


def main(name: str, directory: Path, attempt: int) -> None:
    spark = fx.session(
        "fluxen-nexmark",
        master="local[2]",
        spark__driver__memory="512m",
        spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        spark__sql__shuffle__partitions=2,
    )
    spark.sparkContext.setLogLevel("ERROR")
    job = Job(query=name, data=directory / "arrived", work=directory)
    stretch = Stretch(upto=HOUSE.batches, sites=2 + attempt % 2, how="memory" if attempt % 2 else "moves")
    start(spark, job, stretch, Sink(job), seed=attempt, last=False).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
