"""`fluxen bench replan`: a join tree while the rates change, with balancing and re-planning switched on one by one.

As in Zhu and Rundensteiner, section 5.2: three streams of one rate, of which a becomes ten times as fast after a while
and b and c half as fast, and one of the sites has three quarters of the load. Rows of a often find b or c but seldom
both, so that joining a with b first, as the first tree and Spark's chained joins do, makes pairs of which few become
results. Nothing is emulated here: the rates are those of this machine. The trees are in spark/ours.py, Spark's chained
joins in spark/native.py, both over the same files.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from fluxen.bench import oracle, report
from fluxen.bench.context import Context, Prepared
from fluxen.bench.data import Ints, StreamSpec, batch_table, write_tables
from fluxen.bench.job import Job
from fluxen.bench.runner import WARM_UP_BATCHES, Measured
from fluxen.bench.workloads import Workload

__all__ = ["REPLAN", "VARIANTS", "Changing", "rates", "rates_by_batch", "run", "spark_hash"]

VARIANTS = ("no-adapt", "balance", "replan", "both")
_LIMIT_S, _GRACE_S = 60.0, 30.0
_SETTLED = 4  # batches at the end in which adaptation is over
_SECOND = 1_000_000
Rates: TypeAlias = dict[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changing(Workload):
    """Streams whose rates change and whose keys load the first of two sites. `rows` of a stream are those of a."""

    change: int
    """batches before the rates change"""
    early: float = 0.1
    """share of the rows that every stream has before"""
    slow: float = 0.05
    """share of the rows that every stream but the first has after"""
    hot: float = 0.5
    """share of the rows that the first site gets besides its half of the others"""
    shared: float = 0.002
    """share of the rows of b that have a key of c, and the other way round"""

    @property
    def rows(self) -> int:
        return sum(sum(self.counts(number)) for number in range(self.batches))

    def counts(self, batch: int) -> list[int]:
        """Rows of each stream in one batch."""
        full = [stream.rows // self.batches for stream in self.streams]
        share = [self.early] * len(full) if batch < self.change else [1.0, *[self.slow] * (len(full) - 1)]
        return [max(1, round(count * part)) for count, part in zip(full, share)]

    def write(self, directory: Path) -> None:
        for number, stream in enumerate(self.streams):
            tables = [self._table(number, batch, self.counts(batch)[number]) for batch in range(self.batches)]
            write_tables(tables, directory / stream.name)

    def _table(self, number: int, batch: int, count: int) -> pa.Table:
        stream = self.streams[number]
        table = batch_table(replace(stream, rows=count * self.batches), batch, self.batches)
        rng = np.random.default_rng([stream.seed, batch, 1])
        odd = rng.random(count) < (0.5, self.shared, 1 - self.shared)[number]
        # of two sites, the first has the lower half of the hashes
        first = rng.random(count) < self.hot
        key = np.zeros(count, dtype=np.int64)
        for parity in (0, 1):
            every = np.arange(parity, stream.keys, 2, dtype=np.int64)
            mine = odd == bool(parity)
            drawn = np.where(first, rng.choice(every[spark_hash(every) < 0], count), rng.choice(every, count))
            key[mine] = drawn[mine]
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
        StreamSpec(name=name, rows=14 * 100_000, keys=2_000, skew=0.0, span_us=70 * _SECOND, text=True, seed=seed)
        for name, seed in (("a", 81), ("b", 82), ("c", 83))
    ),
    batches=14,
    change=4,
    bound_us=10 * _SECOND,
    shrink=("keys",),
)


def run(context: Context) -> dict[str, Any]:
    prepared = context.prepare(REPLAN)
    seconds = context.oracle("replan", oracle.join_sql(prepared.data, prepared.workload.bound_us))
    native = context.measure(
        prepared, replace(_job(context, prepared, "native-join"), limit_s=_LIMIT_S, grace_s=_GRACE_S)
    )
    native_compared = context.verify(native, prepared, "replan", oracle.COLUMNS["join"], exact=True)
    spark = rates(prepared, native)
    by_batch = {"spark": rates_by_batch(prepared, native)}
    parts: list[dict[str, Any]] = []
    for name in VARIANTS:
        ours = context.measure(prepared, _job(context, prepared, f"fluxen-tree-{name}"))
        compared = context.verify(ours, prepared, "replan", oracle.our_columns("join"), exact=True)
        found = report.part(name, prepared.workload.rows, ours, compared, [(native, native_compared)])
        parts.append(found | _compared(rates(prepared, ours), spark, found["spark"]))
        by_batch[name] = rates_by_batch(prepared, ours)
    _plot(by_batch, context.work / "replan.png")
    return report.whole(
        "replan",
        context.options,
        parts,
        duckdb_seconds=round(seconds, 3),
        rows_per_s={"spark": spark["after"]} | {part["name"]: part["fluxen_rows_per_s"] for part in parts},
        spark_rates=spark,
        rows_per_s_by_batch=by_batch,
    )


def _compared(ours: Rates, spark: Rates, natives: list[dict[str, Any]]) -> dict[str, Any]:
    """What counts is the time after the change; the report's own rates suppose batches of one size."""
    after, native = ours["after"], spark["after"]
    return {
        "fluxen_rows_per_s": after,
        "spark_rows_per_s": native,
        "ratio": round(after / native, 3) if after and native else None,
        "rates": ours,
        "fluxen_wall_rows_per_s": None,
        "spark": [found | {"rows_per_s": native, "wall_rows_per_s": None} for found in natives],
    }


def _job(context: Context, prepared: Prepared, query: str) -> Job:
    # results are few beside the work, so the runs that are timed write them and are the ones that are checked
    return replace(context.job(prepared, query), sink="parquet")


def rates(prepared: Prepared, measured: Measured) -> Rates:
    """Rows per second before the rates change, after, and in the last four batches."""
    workload = prepared.workload
    assert isinstance(workload, Changing)
    spans = {
        "before": range(WARM_UP_BATCHES, workload.change),
        "after": range(workload.change, workload.batches),
        "settled": range(workload.batches - _SETTLED, workload.batches),
    }
    found: Rates = {}
    for name, span in spans.items():
        batches = [batch for batch in measured.batches if batch.number in span]
        rows = sum(sum(workload.counts(batch.number)) for batch in batches)
        found[name] = round(rows / sum(batch.seconds for batch in batches)) if batches else None
    return found


def rates_by_batch(prepared: Prepared, measured: Measured) -> list[int]:
    workload = prepared.workload
    assert isinstance(workload, Changing)
    return [round(sum(workload.counts(batch.number)) / batch.seconds) for batch in measured.batches]


def _plot(by_batch: dict[str, list[int]], path: Path) -> None:
    """Kept with `--keep`."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name, found in by_batch.items():
        axes.plot(range(len(found)), found, marker=".", label="Spark's chained joins" if name == "spark" else name)
    axes.axvline(REPLAN.change - 0.5, color="grey", linestyle=":")
    axes.set_xlabel("micro-batch; the rates change at the dotted line")
    axes.set_ylabel("rows per second")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
