"""User code over partition groups: the gap between one row of a user and the next.

An operator keeps state per partition group and hands it over as an Arrow table, so groups can move between sites.
Run it with `python examples/own_operator.py`; everything it writes is temporary.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import fluxen as fx
from fluxen.testing import feed


class Gaps:
    """Seconds since a user's row before; the first row of a user has none."""

    schema = "user string, gap double"

    def __init__(self) -> None:
        self.seen: dict[int, dict[str, datetime]] = {}

    def install(self, group: int, state: pa.Table | None) -> None:
        pairs = zip(*state.to_pydict().values()) if state is not None else ()
        self.seen[group] = dict(pairs)

    def process(self, group: int, rows: pa.Table) -> pa.Table:
        seen, gaps = self.seen[group], []
        for row in rows.to_pylist():  # rows of one key come in order of event time
            before = seen.get(row["user"])
            if before is not None:
                gaps.append({"user": row["user"], "gap": (row["ts"] - before).total_seconds()})
            seen[row["user"]] = row["ts"]
        return pa.Table.from_pylist(gaps, pa.schema([("user", pa.string()), ("gap", pa.float64())]))

    def extract(self, group: int) -> pa.Table:
        seen = self.seen.pop(group)
        times = pa.array(list(seen.values()), pa.timestamp("us", "UTC"))
        return pa.table({"user": pa.array(list(seen), pa.string()), "ts": times})

    def info(self, group: int) -> dict[str, int]:
        return {"rows": len(self.seen.get(group, {}))}


def clicks() -> list[pa.Table]:
    start = datetime(2026, 1, 1, 9)
    schema = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
    rows = [{"user": f"user-{i % 3}", "ts": start + timedelta(seconds=i * i)} for i in range(12)]
    table = pa.Table.from_pylist(rows, schema)
    return [table.slice(0, 5), table.slice(5)]


def main(directory: Path) -> list[Any]:
    spark = fx.session(master="local[2]")
    query = fx.stateful(feed(spark, clicks()), by="user", operator=Gaps(), time="ts").adapt(sites=2, partitions=8)
    found: list[Any] = []
    run = (
        query.writeStream.foreachBatch(lambda results, epoch: found.extend(results.collect()))
        .option("checkpointLocation", str(directory))
        .trigger(availableNow=True)
        .start()
    )
    run.awaitTermination()
    return sorted(found)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for row in main(Path(place)):
            print(row.user, row.gap)
