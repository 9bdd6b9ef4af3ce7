"""The JSON a benchmark prints: one object per part and one around them.

Field names are part of the public surface; context.py and runner.py hold what they are computed from.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from fluxen_lab.benchmarks.compare import Comparison
from fluxen_lab.benchmarks.context import Options
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.provenance import machine

__all__ = ["baseline", "median_rate", "part", "rate", "ratio", "rounded", "whole"]

Json = dict[str, Any]


def rate(measured: Measured) -> float | None:
    """The rate that counts: steady, or for a run too slow to have one the bound that favours it."""
    return measured.rows_per_s or measured.at_most_rows_per_s


def median_rate(runs: Sequence[Measured]) -> float | None:
    """None if some run has no rate: a median of the others would leave out the worst."""
    rates = [rate(run) for run in runs]
    return median(found for found in rates if found is not None) if rates and None not in rates else None


def ratio(ours: float | None, other: float | None) -> float | None:
    return round(ours / other, 3) if ours and other else None


def baseline(measured: Measured, compared: Comparison | None = None) -> Json:
    """One native run."""
    return {
        "query": measured.job.query,
        "provider": measured.job.settings.provider,
        "shuffle_partitions": measured.job.settings.shuffle_partitions,
        "tuned": measured.job.settings.tuned,
        "rows_per_s": rounded(rate(measured)),
        "rate_is_upper_bound": measured.rows_per_s is None and measured.at_most_rows_per_s is not None,
        "wall_rows_per_s": rounded(measured.wall_rows_per_s),
        "steady_batches": len(measured.steady),
        "finished": measured.outcome.finished,
        "correct": None if compared is None else compared.equal,
        "skipped": measured.outcome.skipped,
        "error": measured.outcome.error,
        "batch_seconds": measured.percentiles(),
        "warm_up_seconds": list(measured.warm_up_seconds),
        "peak_rss_mb": round(measured.peak.pss_mb),
        "phases_ms": measured.phase_medians_ms(),
    }


def part(
    name: str,
    rows: int,
    ours: Measured,
    compared: Comparison | None,
    natives: Sequence[tuple[Measured, Comparison | None]],
) -> Json:
    """One part: fluxen beside the fastest of the native runs, and of those with the settings that fluxen makes."""
    fastest, tuned = (
        max(
            (run for run, _ in natives if run.job.settings.tuned is with_ours),
            key=lambda run: rate(run) or 0,
            default=None,
        )
        for with_ours in (False, True)
    )
    spark_rate = rate(fastest) if fastest else None
    return {
        "name": name,
        "rows": rows,
        "correct": compared is not None and compared.equal,
        "result_rows": compared.expected_rows if compared else None,
        "difference": compared.detail if compared else "fluxen's run did not finish",
        "error": ours.outcome.error or ours.outcome.skipped,
        "fluxen_rows_per_s": rounded(ours.rows_per_s),
        "spark_rows_per_s": rounded(spark_rate),
        "ratio": ratio(ours.rows_per_s, spark_rate),
        "ratio_tuned": ratio(ours.rows_per_s, rate(tuned)) if tuned else None,
        "batch_seconds": ours.percentiles(),
        "warm_up_seconds": list(ours.warm_up_seconds),
        "fluxen_wall_rows_per_s": rounded(ours.wall_rows_per_s),
        "peak_rss_mb": round(ours.peak.pss_mb),
        "phases_ms": ours.phase_medians_ms(),
        "spark_fastest": fastest.job.query if fastest else None,
        "spark": [baseline(measured, native_compared) for measured, native_compared in natives],
    }


def whole(bench: str, options: Options, parts: Sequence[Json], **more: Any) -> Json:
    """The object on standard output. Its rates and batch times are those of the part with the smallest ratio."""
    limiting = min(parts, key=lambda found: (found["ratio"] is not None, found["ratio"] or 0.0))
    return {
        "bench": bench,
        "scale": options.scale,
        "sink": options.sink,
        "rows": sum(found["rows"] for found in parts),
        "correct": all(found["correct"] for found in parts),
        "fluxen_rows_per_s": limiting["fluxen_rows_per_s"],
        "spark_rows_per_s": limiting["spark_rows_per_s"],
        "ratio": limiting["ratio"],
        "limiting_part": limiting["name"],
        "batch_seconds": limiting["batch_seconds"],
        "peak_rss_mb": max(found["peak_rss_mb"] for found in parts),
        **more,
        "parts": list(parts),
        "machine": machine(),
    }


def rounded(value: float | None) -> int | None:
    return None if value is None else round(value)
