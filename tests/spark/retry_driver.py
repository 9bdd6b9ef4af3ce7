"""Runs a query whose tasks fail once each, in a session that retries them, and prints the results as JSON.

The user's operator fails on its first rows; in another run the sink's own function fails after the sites have already
written their records, so that whole tasks run again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import fluxen as fx
from fluxen.testing.streams import stream_of


class Flaky:
    """Counts rows per key; fails the first time it is asked."""

    schema = "k long, n long"

    def __init__(self, flag: str) -> None:
        self.flag = flag
        self.state: dict[int, pa.Table | None] = {}

    def install(self, group: int, state: pa.Table | None) -> None:
        self.state[group] = state

    def process(self, group: int, rows: pa.Table) -> pa.Table | None:
        fail_once(self.flag)
        new = pa.table({"k": rows.column("k"), "n": pa.array([1] * rows.num_rows, pa.int64())})
        old = self.state[group]
        whole = new if old is None else pa.concat_tables([old, new])
        self.state[group] = whole.group_by("k").aggregate([("n", "sum")]).rename_columns(["k", "n"])
        return self.state[group]

    def extract(self, group: int) -> pa.Table | None:
        return self.state.pop(group)

    def info(self, group: int) -> dict[str, int]:
        return {"rows": 0}


def fail_once(flag: str) -> None:
    try:
        Path(flag).touch(exist_ok=False)
    except FileExistsError:
        return
    raise RuntimeError("a task that fails once")


def main(directory: Path) -> None:
    spark = fx.session("fluxen-retry", master="local[2,3]", spark__driver__memory="512m")
    spark.sparkContext.setLogLevel("OFF")
    found: dict[str, dict[int, int]] = {}

    def run(name: str, query: Any, flaky: bool) -> None:
        totals = found.setdefault(name, {})

        def late_failure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from batches
            fail_once(str(directory / f"{name}-sink"))

        def sink(results: Any, epoch: int) -> None:
            rows = results.mapInArrow(late_failure, results.schema) if flaky else results
            totals.update({row.k: row.n for row in rows.collect()})

        writer = query.adapt(sites=2, partitions=4).writeStream.foreachBatch(sink).trigger(availableNow=True)
        writer.option("checkpointLocation", str(directory / name)).start().awaitTermination()

    stream = stream_of(spark, directory / "input")
    run("operator", fx.stateful(stream, by="k", operator=Flaky(str(directory / "operator-flag"))), False)
    run("aggregate", fx.aggregate(stream, by="k", n=fx.count()), True)
    (directory / "seen.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
