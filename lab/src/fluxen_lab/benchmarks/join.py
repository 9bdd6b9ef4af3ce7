"""`fluxen bench join`: three-way interval joins, uniform (W1) and skewed (W2), against Spark's chained joins.

Also what a batch costs when it has almost no rows, and the memory the join takes beside its live state. The
queries are in spark/ours.py (fluxen), spark/native.py (Spark) and oracle.py (DuckDB).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fluxen_lab.benchmarks import oracle, report
from fluxen_lab.benchmarks.context import Context, Prepared
from fluxen_lab.benchmarks.job import Job
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.benchmarks.settings import LIMIT_S, Trial, best_settings
from fluxen_lab.datagen.workloads import FIXED, W1, W2, WIDE, Workload

__all__ = ["run"]

_GRACE_S = 60.0
_SETTLED = 10  # batches of the fixed-cost run that are not counted: short batches warm up over more of them
_ROW_BYTES = 8 + 8 + 8 + 4 + 16  # key, time, value, offset and characters of the string


def run(context: Context) -> dict[str, Any]:
    parts, tried = [], {}
    for workload in (W1, W2):
        found, trials = _part(context, workload)
        parts.append(found)
        tried[workload.name] = [trial.as_json() for trial in trials]
    duckdb_seconds = {found["name"]: found["duckdb_seconds"] for found in parts}
    return report.whole(
        "join",
        context.options,
        parts,
        duckdb_seconds=duckdb_seconds,
        memory=_wide(context),
        fixed_cost=_fixed_cost(context),
        settings_tried=tried,
    )


def _part(context: Context, workload: Workload) -> tuple[dict[str, Any], list[Trial]]:
    columns = oracle.COLUMNS["join"]
    prepared = context.prepare(workload)
    settings, trials = best_settings(context, prepared, workload.name, "native-join")
    job = replace(context.job(prepared, "native-join"), settings=settings, limit_s=LIMIT_S, grace_s=_GRACE_S)
    natives = context.natives(prepared, job)
    ours = context.measure(prepared, context.rehearsed(prepared, context.job(prepared, "fluxen-join")))
    seconds = context.oracle(workload.name, oracle.join_sql(prepared.data, prepared.workload.bound_us))
    compared = context.verify(ours, prepared, workload.name, oracle.our_columns("join"), exact=True)
    checked = [(native, context.verify(native, prepared, workload.name, columns, exact=True)) for native in natives]
    context.connection.execute(f"DROP TABLE {workload.name}")
    found = report.part(workload.name, prepared.workload.rows, ours, compared, checked)
    found["duckdb_seconds"] = round(seconds, 3)
    found["duckdb_rows_per_s"] = round(prepared.workload.rows / seconds)
    found["memory"] = _memory(context, prepared, ours)
    return found, trials


def _wide(context: Context) -> dict[str, Any]:
    """Memory where the live state is large beside what a Python worker takes for itself."""
    prepared = context.prepare(WIDE)
    job = replace(context.job(prepared, "fluxen-join"), sink="noop", rehearsal=context.rehearsal(prepared))
    return _memory(context, prepared, context.measure(prepared, job))


def _memory(context: Context, prepared: Prepared, ours: Measured) -> dict[str, Any]:
    """Peak memory beyond that of Spark moving the same files through no operator, beside the live state's size."""
    job = context.job(prepared, "empty", f"{prepared.workload.name}-passthrough")
    as_long = replace(job, sink="noop", rehearsal=ours.job.rehearsal, rehearsal_s=ours.job.rehearsal_s)
    idle = context.measure(prepared, as_long)
    live = live_state_rows(prepared.workload) * _ROW_BYTES / 1e6
    batch = prepared.workload.batch_rows * _ROW_BYTES / 1e6
    beyond = ours.peak.pss_mb - idle.peak.pss_mb
    return {
        "peak_rss_mb": round(ours.peak.pss_mb),
        "idle_rss_mb": round(idle.peak.pss_mb),
        "beyond_idle_mb": round(beyond),
        "python_peak_mb": round(ours.peak.python_mb),
        "python_idle_mb": round(idle.peak.python_mb),
        "live_state_mb": round(live, 1),
        "batch_mb": round(batch, 1),
        "ratio": round(beyond / (live + batch), 2),
        "reported_state": ours.outcome.state,
    }


def live_state_rows(workload: Workload) -> float:
    """Rows some later row can still join with, once the window is full.

    A future b or c reaches an a one bound back; a future c reaches, through that a, a b two bounds back, and a
    future b a c likewise. Rows behind the start of the stream do not count.
    """
    spans = (workload.bound_us or 0, 2 * (workload.bound_us or 0), 2 * (workload.bound_us or 0))
    return sum(stream.rows * min(1.0, span / stream.span_us) for stream, span in zip(workload.streams, spans))


def _fixed_cost(context: Context) -> dict[str, Any]:
    """A batch of 1,000 rows through the join beside a foreachBatch that does nothing over the same sources.

    The latter under Spark's own settings, and under those that `fluxen.session()` sets.
    """
    # never shrunk: its size is the question
    data = context.work / "data" / FIXED.name
    FIXED.write(data)
    prepared = Prepared(workload=FIXED, data=data)
    rehearsal = context.rehearsal(prepared, FIXED.batches)
    ours = _settled(context, prepared, replace(context.job(prepared, "fluxen-join"), rehearsal=rehearsal, sink="noop"))
    empty, tuned = (
        _settled(context, prepared, replace(context.job(prepared, query), rehearsal=rehearsal, sink="nothing"))
        for query in ("empty-plain", "empty")
    )
    return {
        "rows_per_batch": FIXED.batch_rows,
        "fluxen_batch_s": ours,
        "empty_batch_s": empty,
        "ratio": report.ratio(ours, empty),
        "empty_tuned_batch_s": tuned,
        "ratio_tuned": report.ratio(ours, tuned),
    }


def _settled(context: Context, prepared: Prepared, job: Job) -> float | None:
    measured = context.measure(prepared, job)
    seconds = [batch.seconds for batch in measured.batches if batch.number >= _SETTLED]
    return round(float(np.median(seconds)), 4) if seconds else None
