"""`fluxen bench replan`: a join tree while the rates change, with balancing and re-planning switched on one by one.

As in Zhu and Rundensteiner, section 5.2: three streams of one rate, of which a becomes ten times as fast after a while
and b and c half as fast, and one site has three quarters of the load (datagen/changing.py). Nothing is emulated: the
rates are those of this machine. The trees are in spark/ours.py, Spark's chained joins in spark/native.py, both over
the same files.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from fluxen_lab.benchmarks import oracle, report
from fluxen_lab.benchmarks.context import Context, Prepared
from fluxen_lab.benchmarks.job import Job
from fluxen_lab.benchmarks.runner import WARM_UP_BATCHES, Measured
from fluxen_lab.datagen.changing import REPLAN, Changing
from fluxen_lab.plotting import pyplot, save

__all__ = ["VARIANTS", "rates", "rates_by_batch", "run"]

VARIANTS = ("no-adapt", "balance", "replan", "both")
_LIMIT_S, _GRACE_S = 60.0, 30.0
_SETTLED = 4  # batches at the end in which adaptation is over
Rates: TypeAlias = dict[str, int | None]


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
    figure, axes = pyplot().subplots(figsize=(7, 4))
    for name, found in by_batch.items():
        axes.plot(range(len(found)), found, marker=".", label="Spark's chained joins" if name == "spark" else name)
    axes.axvline(REPLAN.change - 0.5, color="grey", linestyle=":")
    xlabel = "micro-batch; the rates change at the dotted line"
    save(figure, axes, path, title="bench replan", xlabel=xlabel, ylabel="rows per second")
