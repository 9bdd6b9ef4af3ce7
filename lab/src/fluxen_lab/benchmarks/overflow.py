"""`fluxen bench memory`: a three-way join with more state than memory, beside Spark's with RocksDB.

Nothing expires within a run, so the state is all the input. The first run has no limit and tells how large that is; the
others get a share of it: state at 1, 3 and 10 times the memory. Per run: results while it ran and results owed, cleanup
time, peak memory of the Python workers beyond what they take when idle. These states are small, so that all of it takes
minutes; `resident` is one run with a gigabyte of state, five times its memory, for the question whether the memory
configured is the memory used. The queries are in spark/ours.py and spark/native.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fluxen_lab.benchmarks import oracle, report
from fluxen_lab.benchmarks.context import Context, Prepared
from fluxen_lab.benchmarks.job import Job, Settings
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.datagen.workloads import OVERFLOW, RESIDENT, Workload

__all__ = ["run"]

_MULTIPLES = (1, 3, 10)
_SITES = 2  # as in spark/ours.py
_REHEARSAL = 1
_NATIVE_S, _GRACE_S = 30.0, 15.0
_SAMPLE_S = 0.05  # a batch touches all of its state for a tenth of a second
_RESIDENT_MEMORY = 97_000_000


def run(context: Context) -> dict[str, Any]:
    prepared = context.prepare(OVERFLOW)
    job = _job(context, prepared, "memory-unlimited")
    unlimited = context.measure(prepared, job)
    native = _native(context, prepared)
    context.oracle("expected", oracle.join_sql(prepared.data, prepared.workload.bound_us))
    native_compared = context.verify(native, prepared, "expected", oracle.COLUMNS["join"], exact=True)
    state = int(unlimited.outcome.state.get("bytes", 0))
    parts = []
    for multiple in _MULTIPLES:
        limited = replace(
            job, work=job.work.with_name(f"memory-{multiple}x"), memory=max(state // (_SITES * multiple), 1)
        )
        ours = context.measure(prepared, limited)
        compared = context.verify(ours, prepared, "expected", oracle.our_columns("join"), exact=True)
        found = report.part(f"{multiple}x", prepared.workload.rows, ours, compared, [(native, native_compared)])
        parts.append(found | _memory(ours, prepared.workload) | _slowed(ours, unlimited))
    resident = _resident(context)
    whole = report.whole(
        "memory",
        context.options,
        parts,
        state_mb=round(state / 1e6, 1),
        unlimited_rows_per_s=None if unlimited.rows_per_s is None else round(unlimited.rows_per_s),
        resident=resident,
    )
    return whole | {"sink": "parquet", "correct": whole["correct"] and resident["correct"]}


def _job(context: Context, prepared: Prepared, name: str) -> Job:
    """The query over all files, after a rehearsal over the first ones that makes idle workers what they will be."""
    job = context.job(prepared, "fluxen-join", name)
    # results are written in every run: one that is checked is the one that was measured
    return replace(job, rehearsal=context.rehearsal(prepared, _REHEARSAL), sink="parquet", sample_s=_SAMPLE_S)


def _native(context: Context, prepared: Prepared) -> Measured:
    job = context.job(prepared, "native-join")
    return context.measure(
        prepared,
        replace(job, sink="parquet", settings=Settings(provider="rocksdb"), limit_s=_NATIVE_S, grace_s=_GRACE_S),
    )


def _resident(context: Context) -> dict[str, Any]:
    prepared = context.prepare(RESIDENT)
    memory = round(_RESIDENT_MEMORY * prepared.workload.rows / RESIDENT.rows)
    ours = context.measure(prepared, replace(_job(context, prepared, "resident"), memory=memory))
    context.oracle("resident", oracle.join_sql(prepared.data, prepared.workload.bound_us))
    compared = context.verify(ours, prepared, "resident", oracle.our_columns("join"), exact=True)
    return report.part("resident", prepared.workload.rows, ours, compared, []) | _memory(ours, prepared.workload)


def _memory(ours: Measured, workload: Workload) -> dict[str, Any]:
    said = ours.outcome.state
    configured = _SITES * (ours.job.memory or 0) / 1e6
    state = workload.rows * said.get("bytes", 0) / max(said.get("rows", 0), 1) / 1e6
    beyond = ours.peak.workers_mb - ours.outcome.idle_workers_mb
    return {
        "memory_mb": round(configured, 1),
        "state_mb": round(state, 1),
        "state_over_memory": round(state / configured, 2),
        "results_now": said.get("results_now"),
        "results_owed": said.get("results_owed"),
        "cleanup_seconds": said.get("cleanup_seconds"),
        "active_state_mb": round(said.get("bytes", 0) / 1e6, 1),
        "workers_idle_mb": round(ours.outcome.idle_workers_mb),
        "workers_beyond_idle_mb": round(beyond),
        "workers_over_memory": round(beyond / configured, 3),
    }


def _slowed(ours: Measured, unlimited: Measured) -> dict[str, Any]:
    share = ours.rows_per_s / unlimited.rows_per_s if ours.rows_per_s and unlimited.rows_per_s else None
    return {"of_unlimited_rate": None if share is None else round(share, 3)}
