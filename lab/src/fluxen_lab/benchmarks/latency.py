"""`fluxen bench latency`: batches that follow a latency, beside batches of every fixed size.

W1's streams, four times as long and in files a third as large, all there when the query starts. A fixed size is a
number of files per batch; `auto` begins with one file and is given a latency to keep to. They take turns in one warm
session. What counts is the rate over the second half of the rows, when the limits are found: rows over the wall clock,
new starts of the inner query included. The rate over all rows is told beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from fluxen_lab.benchmarks import oracle, report
from fluxen_lab.benchmarks.compare import compare, parquet_relation
from fluxen_lab.benchmarks.context import Context, Prepared
from fluxen_lab.benchmarks.job import Outcome
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.benchmarks.turns import Engine
from fluxen_lab.datagen.workloads import BACKLOG

__all__ = ["LATENCY", "Rates", "rates", "run"]

LATENCY = 1.0
"""Seconds, of `auto`."""
ROUNDS = 3
_SIZES = (2, 4, 8, 12, 16, 24)
_LIMIT_S = 180.0
_REHEARSAL_S = 40.0


def run(context: Context) -> dict[str, Any]:
    prepared = context.prepare(BACKLOG)
    runs: dict[str, list[Measured]] = {name: [] for name in ("auto", *map(str, _SIZES))}
    with Engine(_job(context, prepared), prepared.workload.batches) as engine:
        for number in range(ROUNDS):
            for name in list(runs) if number % 2 == 0 else list(runs)[::-1]:
                job = replace(engine.job, query=f"fluxen-latency-{name}")
                found = context.turn(engine, job, f"{name}, round {number + 1}", prepared.workload.batch_rows)
                runs[name].append(found)
        correct = _checked(context, prepared, engine)
    parts = [_part(name, prepared, measured, correct) for name, measured in runs.items()]
    auto, fixed = parts[0], [part for part in parts[1:] if part["rows_per_s"]]
    within = [part for part in fixed if part["batch_s"] <= LATENCY]
    nothing: dict[str, Any] = {"name": None, "rows_per_s": None}
    best, quickest = (max(some, key=lambda part: part["rows_per_s"], default=nothing) for some in (within, fixed))
    for part in parts:
        part["ratio"] = report.ratio(part["rows_per_s"], best["rows_per_s"])
    return report.whole(
        "latency",
        context.options,
        parts,
        latency_s=LATENCY,
        best_within_latency=best["name"],
        best_of_all=quickest["name"],
        auto_of_best_within_latency=auto["ratio"],
        auto_of_best_of_all=report.ratio(auto["rows_per_s"], quickest["rows_per_s"]),
        rounds=ROUNDS,
    )


def _job(context: Context, prepared: Prepared) -> Any:
    return replace(
        context.job(prepared, "fluxen-latency-auto"),
        sink="noop",
        limit_s=_LIMIT_S,
        rehearsal=context.rehearsal(prepared, 40),
        rehearsal_s=_REHEARSAL_S * min(1.0, context.options.scale),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rows per second of wall clock, and what a batch of the second half took."""

    whole: float
    second_half: float
    batch_s: float
    batch_rows: float


def rates(outcome: Outcome) -> Rates | None:
    """Of a run that ended; the second half begins after the batch with the middle row."""
    rows = {int(number): count for number, count in outcome.state["rows"].items()}
    batches = [batch for batch in outcome.batches if rows.get(batch.number)]
    if not outcome.finished or len(batches) < 4:
        return None
    ends = [batch.started + batch.seconds for batch in batches]
    total = sum(rows[batch.number] for batch in batches)
    seen, half = 0, 0
    while half < len(batches) - 2 and seen < total / 2:
        seen += rows[batches[half].number]
        half += 1
    late = batches[half:]
    return Rates(
        whole=total / (ends[-1] - batches[0].started),
        second_half=(total - seen) / (ends[-1] - ends[half - 1]),
        batch_s=median(batch.seconds for batch in late),
        batch_rows=median(rows[batch.number] for batch in late),
    )


def _part(name: str, prepared: Prepared, runs: list[Measured], correct: bool) -> dict[str, Any]:
    found = [rates(one.outcome) for one in runs]
    known = [one for one in found if one is not None]
    whole = len(known) == len(runs)
    second = [round(one.second_half) for one in known]
    return {
        "name": name,
        "rows": prepared.workload.rows,
        "correct": correct,
        "rows_per_s": round(median(second)) if whole else None,
        "fluxen_rows_per_s": round(median(second)) if whole else None,
        "spark_rows_per_s": None,
        "ratio": None,
        "spread": [min(second), max(second)] if known else None,
        "whole_rows_per_s": round(median(one.whole for one in known)) if whole else None,
        "batch_s": round(median(one.batch_s for one in known), 3) if known else None,
        "batch_rows": round(median(one.batch_rows for one in known)) if known else None,
        "batch_seconds": runs[-1].percentiles(),
        "resized": [one.outcome.state.get("resized") for one in runs],
        "error": next((one.outcome.error for one in runs if one.outcome.error), None),
        "peak_rss_mb": round(max(one.peak.pss_mb for one in runs)),
    }


def _checked(context: Context, prepared: Prepared, engine: Engine) -> bool:
    """The results of a run of `auto` that writes them; what timed runs compute is dropped."""
    context.oracle("expected", oracle.join_sql(prepared.data, prepared.workload.bound_us))
    again = context.turn(engine, replace(engine.job, sink="parquet"), "auto, checked", prepared.workload.batch_rows)
    if not again.outcome.finished:
        return False
    columns = oracle.our_columns("join")
    found = compare(context.connection, "SELECT * FROM expected", parquet_relation(again.job.out, columns), columns)
    verdict = "equal the oracle's" if found.equal else f"DIFFER from the oracle's: {found.detail}"
    context.say(f"  results {verdict} ({found.expected_rows:,} rows)")
    return found.equal
