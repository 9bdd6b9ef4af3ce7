"""`fluxen bench growth`: the time of a batch of constant size while the state grows thirtyfold.

Three operators: the three-way join without a bound, running values per key, and the last ten rows per key. The
queries are in spark/ours.py; there is no native side, the state at the start is what the rest is compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fluxen_lab.benchmarks import oracle, report
from fluxen_lab.benchmarks.context import Context, Prepared
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.datagen.workloads import GROWTH_JOIN, GROWTH_ROWS, Workload

__all__ = ["neighbourhood", "run"]

_UNIT = 4  # batches whose rows are the state at 1x
_MULTIPLES = (1, 3, 10, 30)
_REHEARSAL = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    name: str
    workload: Workload
    query: str
    columns: str
    sql: Callable[[Path], str]


_PARTS = (
    _Part(
        name="join",
        workload=GROWTH_JOIN,
        query="fluxen-join",
        columns="join",
        sql=lambda data: oracle.join_sql(data, None),
    ),
    _Part(name="running", workload=GROWTH_ROWS, query="fluxen-running", columns="running", sql=oracle.running_sql),
    _Part(name="last10", workload=GROWTH_ROWS, query="fluxen-last10", columns="last10", sql=oracle.last10_sql),
)


def run(context: Context) -> dict[str, Any]:
    prepared = {workload.name: context.prepare(workload) for workload in (GROWTH_JOIN, GROWTH_ROWS)}
    parts = [_measure(context, part, prepared[part.workload.name]) for part in _PARTS]
    worst = {
        f"growth_{multiple}x": max(found["growth"][f"{multiple}x"] or float("inf") for found in parts)
        for multiple in _MULTIPLES[1:]
    }
    finite = {name: value if value != float("inf") else None for name, value in worst.items()}
    return report.whole("growth", context.options, parts, **finite)


def _measure(context: Context, part: _Part, prepared: Prepared) -> dict[str, Any]:
    # the same query over the first files first: a JVM still compiling at 1x would make growth look smaller
    rehearsal = context.rehearsal(prepared, _REHEARSAL)
    job = replace(context.job(prepared, part.query), rehearsal=rehearsal, sink="parquet")
    ours = context.measure(prepared, job)
    context.oracle("expected", part.sql(prepared.data))
    compared = context.verify(ours, prepared, "expected", oracle.our_columns(part.columns), exact=part.name == "join")
    context.connection.execute("DROP TABLE expected")
    found = report.part(part.name, prepared.workload.rows, ours, compared, [])
    return found | _growth(ours, prepared.workload.batches)


def neighbourhood(multiple: int, batches: int) -> range:
    """The batches around the one that finds `multiple` times the state of 1x."""
    centre = multiple * _UNIT
    half = min(_UNIT, max(2, centre // 4))
    return range(max(2, centre - half), min(batches, centre + half + 1))


def _growth(ours: Measured, batches: int) -> dict[str, Any]:
    seconds = {batch.number: batch.seconds for batch in ours.batches}
    median: dict[str, float | None] = {}
    mean: dict[str, float | None] = {}
    for multiple in _MULTIPLES:
        near = [seconds[number] for number in neighbourhood(multiple, batches) if number in seconds]
        median[f"{multiple}x"] = round(float(np.median(near)), 4) if near else None
        # a merge of segments lands in one batch of several: the median leaves it out, the mean does not
        mean[f"{multiple}x"] = round(float(np.mean(near)), 4) if near else None
    return {
        "batch_seconds_at": median,
        "mean_batch_seconds_at": mean,
        "growth": _ratios(median),
        "mean_growth": _ratios(mean),
        "rows_per_batch": ours.rows_per_batch,
    }


def _ratios(seconds: dict[str, float | None]) -> dict[str, float | None]:
    base = seconds["1x"]
    return {name: round(value / base, 3) if value and base else None for name, value in seconds.items() if name != "1x"}
