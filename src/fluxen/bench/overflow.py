"""`fluxen bench memory`: a three-way join whose state is 1, 3 and 10 times its memory, beside Spark's with RocksDB.

Nothing expires within the run, so the state is all the input. The first run has no limit and tells how large that is;
the others get a share of it. Per run: results while it ran and results owed, cleanup time, peak memory of the Python
processes beyond what they take when idle. The queries are in spark/ours.py and spark/native.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fluxen.bench import oracle, report
from fluxen.bench.context import Context, Prepared
from fluxen.bench.data import link_files
from fluxen.bench.job import Settings
from fluxen.bench.runner import Measured
from fluxen.bench.settings import LIMIT_S
from fluxen.bench.workloads import OVERFLOW

__all__ = ["run"]

_MULTIPLES = (1, 3, 10)
_SITES = 2  # as in spark/ours.py
_REHEARSAL = 2
_GRACE_S = 60.0


def run(context: Context) -> dict[str, Any]:
    prepared = context.prepare(OVERFLOW)
    rehearsal = context.work / "data" / "memory-rehearsal"
    for stream in prepared.workload.streams:
        link_files(prepared.data / stream.name, rehearsal / stream.name, _REHEARSAL)
    job = replace(context.job(prepared, "fluxen-join", "memory-unlimited"), rehearsal=rehearsal)
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
        parts.append(found | _memory(ours, unlimited, multiple))
    return report.whole(
        "memory",
        context.options,
        parts,
        state_mb=round(state / 1e6, 1),
        unlimited_rows_per_s=None if unlimited.rows_per_s is None else round(unlimited.rows_per_s),
    )


def _native(context: Context, prepared: Prepared) -> Measured:
    job = context.job(prepared, "native-join")
    return context.measure(
        prepared, replace(job, settings=Settings(provider="rocksdb"), limit_s=LIMIT_S, grace_s=_GRACE_S)
    )


def _memory(ours: Measured, unlimited: Measured, multiple: int) -> dict[str, Any]:
    said = ours.outcome.state
    configured = _SITES * (ours.job.memory or 0) / 1e6
    beyond = ours.peak.python_mb - ours.outcome.idle_python_mb
    slowed = ours.rows_per_s / unlimited.rows_per_s if ours.rows_per_s and unlimited.rows_per_s else None
    return {
        "state_over_memory": multiple,
        "memory_mb": round(configured, 1),
        "results_now": said.get("results_now"),
        "results_owed": said.get("results_owed"),
        "cleanup_seconds": said.get("cleanup_seconds"),
        "active_state_mb": round(said.get("bytes", 0) / 1e6, 1),
        "python_idle_mb": round(ours.outcome.idle_python_mb),
        "python_beyond_idle_mb": round(beyond),
        "of_unlimited_rate": None if slowed is None else round(slowed, 3),
    }
