"""Runs a join on a cluster of three executors, kills one of them half way, and tells what it saw as JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyspark

os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
os.environ["PYSPARK_PYTHON"] = sys.executable

import fluxen as fx
from fluxen.testing.streams import stream_of

KILL_AFTER = 19
REPLACED_BY = 22


def main(directory: Path) -> None:
    spark = fx.session(
        "fluxen-cluster",
        master="local-cluster[3,1,768]",
        spark__driver__memory="512m",
        spark__executor__memory="768m",
        spark__executor__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        spark__executorEnv__PYTHONPATH=os.environ.get("PYTHONPATH", ""),
        spark__sql__shuffle__partitions=3,
    )
    spark.sparkContext.setLogLevel("ERROR")
    wait_for_executors(spark)
    inputs = {name: stream_of(spark, directory / "input" / name) for name in ("a", "b")}
    query = fx.join(inputs, on="k", time="ts", within="30 seconds", lateness="10 seconds").adapt(sites=3, partitions=16)
    results: dict[int, list[tuple[int, int, int]]] = {}
    run: Any = None

    def sink(rows: Any, epoch: int) -> None:
        results[epoch] = [tuple(row) for row in rows.select("k", "a_v", "b_v").collect()]
        if epoch == KILL_AFTER:
            daemon = run.epochs[-1]["stages"][0]["sites"][0]["executor"]
            os.kill(parent(int(daemon)), signal.SIGKILL)
        elif epoch == REPLACED_BY:
            wait_for_executors(spark)

    writer = query.writeStream.foreachBatch(sink).option("checkpointLocation", str(directory / "checkpoint"))
    run = writer.trigger(availableNow=True).start()
    run.awaitTermination()
    sites = [[site["executor"] for site in epoch["stages"][0]["sites"]] for epoch in run.epochs]
    rows = [row for epoch in sorted(results) for row in results[epoch]]
    (directory / "seen.json").write_text(json.dumps({"sites": sites, "rows": rows}))
    spark.stop()


def wait_for_executors(spark: Any) -> None:
    """Until all three are there; the status also lists the driver."""
    deadline = time.monotonic() + 180
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 4:
        if time.monotonic() > deadline:
            raise SystemExit("the cluster did not come up")
        time.sleep(0.2)


def parent(pid: int) -> int:
    """The executor that started a Python daemon."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
