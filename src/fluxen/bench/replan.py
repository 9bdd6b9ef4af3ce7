"""`fluxen bench replan`: a join tree while the rates change, with balancing and re-planning switched on one by one.

As in Zhu and Rundensteiner, section 5.2: three streams of one rate, of which b and c fall to a twentieth half-way, and
one of the sites has most of the load. Nothing is emulated here: the rates are those of this machine. The trees are in
spark/ours.py, Spark's chained joins in spark/native.py, both over the same files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fluxen.bench import oracle, report
from fluxen.bench.context import Context, Prepared
from fluxen.bench.data import Ints, StreamSpec, batch_table, write_tables
from fluxen.bench.job import Settings
from fluxen.bench.runner import WARM_UP_BATCHES, Measured
from fluxen.bench.workloads import Workload

__all__ = ["REPLAN", "VARIANTS", "Changing", "run", "spark_hash"]

VARIANTS = ("no-adapt", "balance", "replan", "both")
_LIMIT_S, _GRACE_S = 60.0, 30.0
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Changing(Workload):
    """Streams whose rates change half-way and whose keys load the first of two sites."""

    slow: float = 0.05
    """what is left of the rows of every stream but the first"""
    hot: float = 0.5
    """share of the rows that the first site gets besides its half of the others"""

    @property
    def rows(self) -> int:
        return sum(sum(self.counts(number)) for number in range(self.batches))

    def counts(self, batch: int) -> list[int]:
        """Rows of each stream in one batch."""
        full = [stream.rows // self.batches for stream in self.streams]
        if batch < self.batches // 2:
            return full
        return [full[0], *(max(1, round(count * self.slow)) for count in full[1:])]

    def write(self, directory: Path) -> None:
        for number, stream in enumerate(self.streams):
            tables = [self._table(stream, batch, self.counts(batch)[number]) for batch in range(self.batches)]
            write_tables(tables, directory / stream.name)

    def _table(self, stream: StreamSpec, batch: int, count: int) -> pa.Table:
        table = batch_table(replace(stream, rows=count * self.batches), batch, self.batches)
        rng = np.random.default_rng([stream.seed, batch, 1])
        every = np.arange(stream.keys, dtype=np.int64)
        first = every[spark_hash(every) < 0]  # of two sites, the first has the lower half of the hashes
        key = np.where(rng.random(count) < self.hot, rng.choice(first, count), table.column("key").to_numpy())
        return table.set_column(0, "key", pa.array(key))


def spark_hash(values: Ints) -> Ints:
    """Spark's xxhash64 of 64-bit integers.

    >>> spark_hash(np.array([0, 1])).tolist()
    [-5252525462095825812, -7001672635703045582]
    """
    one, two, three, four, five = (
        np.uint64(prime)
        for prime in (
            0x9E3779B185EBCA87,
            0xC2B2AE3D27D4EB4F,
            0x165667B19E3779F9,
            0x85EBCA77C2B2AE63,
            0x27D4EB2F165667C5,
        )
    )

    def rotated(x: Any, by: int) -> Any:
        return (x << np.uint64(by)) | (x >> np.uint64(64 - by))

    with np.errstate(over="ignore"):
        mixed = rotated(values.view(np.uint64) * two, 31) * one
        h = rotated((np.uint64(42) + five + np.uint64(8)) ^ mixed, 27) * one + four
        h = (h ^ (h >> np.uint64(33))) * two
        h = (h ^ (h >> np.uint64(29))) * three
        h = h ^ (h >> np.uint64(32))
    hashed: Ints = h.view(np.int64)
    return hashed


REPLAN = Changing(
    name="replan",
    streams=tuple(
        StreamSpec(name=name, rows=120_000, keys=2_000, skew=0.0, span_us=600 * _SECOND, text=True, seed=81 + number)
        for number, name in enumerate("abc")
    ),
    batches=12,
    bound_us=10 * _SECOND,
    shrink=("keys",),
)


def run(context: Context) -> dict[str, Any]:
    prepared = context.prepare(REPLAN)
    seconds = context.oracle("replan", oracle.join_sql(prepared.data, prepared.workload.bound_us))
    job = replace(context.job(prepared, "native-join"), settings=Settings(), limit_s=_LIMIT_S, grace_s=_GRACE_S)
    native = context.measure(prepared, job)
    native_compared = context.verify(native, prepared, "replan", oracle.COLUMNS["join"], exact=True)
    spark = rate(prepared, native)
    parts: list[dict[str, Any]] = []
    rates: dict[str, int | None] = {}
    for name in VARIANTS:
        ours = context.measure(prepared, context.job(prepared, f"fluxen-tree-{name}"))
        compared = context.verify(ours, prepared, "replan", oracle.our_columns("join"), exact=True)
        found = report.part(name, prepared.workload.rows, ours, compared, [(native, native_compared)])
        own = rates[name] = rate(prepared, ours)
        ratio = round(own / spark, 3) if own and spark else None
        parts.append(found | {"fluxen_rows_per_s": own, "spark_rows_per_s": spark, "ratio": ratio})
    return report.whole("replan", context.options, parts, duckdb_seconds=round(seconds, 3), rows_per_s=rates)


def rate(prepared: Prepared, measured: Measured) -> int | None:
    """Rows of the steady batches, which differ in size, over their seconds."""
    workload = prepared.workload
    assert isinstance(workload, Changing)
    steady = [batch for batch in measured.batches if batch.number >= WARM_UP_BATCHES]
    if not steady:
        return None
    return round(sum(sum(workload.counts(batch.number)) for batch in steady) / sum(b.seconds for b in steady))
