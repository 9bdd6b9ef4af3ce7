"""`fluxen bench nexmark`: every Nexmark query on fluxen and on Spark, by turns, checked against DuckDB.

Queries that keep no state are Spark's own on either engine, so only Spark runs them. What fluxen refuses is reported
with its reason, and so is what Spark cannot run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fluxen_lab.benchmarks import report
from fluxen_lab.benchmarks.compare import Comparison
from fluxen_lab.benchmarks.context import Context, Prepared
from fluxen_lab.benchmarks.job import Settings
from fluxen_lab.benchmarks.nexmark.check import checked, read_streams
from fluxen_lab.benchmarks.nexmark.queries import QUERIES
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.benchmarks.turns import Engine
from fluxen_lab.datagen.nexmark import NEXMARK, Nexmark

__all__ = ["ROUNDS", "Found", "part", "rows_read", "run"]

ROUNDS = 3
_LIMIT_S, _GRACE_S = 120.0, 60.0
_REFUSED = "QueryError: "
_STATELESS = "keeps no state"
# the better of both state stores in every search so far (settings.py); the rest as fluxen's session has it
_SPARK = Settings(provider="hdfs", shuffle_partitions=2, tuned=True)
Name = Literal["fluxen", "spark"]


@dataclass(slots=True)
class Found:
    """What one engine did with one query: the run that was checked, and those that were timed."""

    check: Measured
    compared: Comparison | None
    timed: list[Measured] = field(default_factory=list)

    @property
    def error(self) -> str | None:
        return self.check.outcome.error or self.check.outcome.skipped

    @property
    def refused(self) -> str | None:
        error = self.error or ""
        return error.removeprefix(_REFUSED) if error.startswith(_REFUSED) else None


def run(
    context: Context, names: Sequence[str] = tuple(QUERIES), rounds: int = ROUNDS, workload: Nexmark = NEXMARK
) -> dict[str, Any]:
    prepared = context.prepare(workload)
    read_streams(context.connection, prepared.data)
    parts = []
    with (
        Engine(context.job(prepared, "fluxen-nexmark"), prepared.workload.batches) as ours,
        Engine(replace(context.job(prepared, "nexmark"), settings=_SPARK), prepared.workload.batches) as native,
    ):
        engines: dict[Name, Engine] = {"fluxen": ours, "spark": native}
        for name in names:
            turns = _Turns(context, engines, name, rows_read(prepared, name))
            parts.append(part(name, turns.rows, turns.run(rounds)))
    compared = [one for one in parts if one["ratio"] is not None]
    whole = report.whole("nexmark", context.options, compared or parts, spark_settings=str(_SPARK))
    wrong = [one["name"] for one in parts if one["correct"] is False]
    return whole | {
        "rows": prepared.workload.rows,
        "correct": not wrong,
        "wrong": wrong,
        "refused": [one["name"] for one in parts if one["refused"]],
        "parts": parts,
    }


def rows_read(prepared: Prepared, name: str) -> int:
    """Rows of the streams that a query reads."""
    assert isinstance(prepared.workload, Nexmark)
    counts = prepared.workload.counts()
    return sum(counts[stream] for stream in QUERIES[name].streams)


@dataclass(slots=True)
class _Turns:
    """One query on both engines."""

    context: Context
    engines: dict[Name, Engine]
    name: str
    rows: int

    def run(self, rounds: int) -> dict[Name, Found]:
        """The runs that are checked come first, and warm what is timed then."""
        found = {who: self._checked(who) for who in self.engines}
        running = [who for who in self.engines if found[who].check.outcome.finished]
        # a rate that is compared with nothing needs no median
        for number in range(rounds if len(running) == len(self.engines) else 1):
            for who in running:
                found[who].timed.append(self._turn(who, str(number + 1)))
        return found

    def _checked(self, who: Name) -> Found:
        measured = self._turn(who, "checked")
        if not measured.outcome.finished:
            return Found(measured, None)
        compared = checked(self.context.connection, QUERIES[self.name], measured.job.out)
        verdict = "equal the oracle's" if compared.equal else f"DIFFER from the oracle's: {compared.detail}"
        self.context.say(f"  results {verdict} ({compared.expected_rows:,} rows)")
        return Found(measured, compared)

    def _turn(self, who: Name, what: str) -> Measured:
        engine = self.engines[who]
        job = replace(
            engine.job,
            query=f"fluxen-nexmark-{self.name}" if who == "fluxen" else f"nexmark-{self.name}",
            sink="parquet" if what == "checked" else engine.job.sink,
            # fluxen knows by itself which results change later
            mode=QUERIES[self.name].mode if who == "spark" else "append",
            limit_s=_LIMIT_S,
            grace_s=_GRACE_S,
        )
        return self.context.turn(engine, job, f"{self.name}, {who}, {what}", self.rows // engine.data_batches)


def part(name: str, rows: int, found: dict[Name, Found]) -> dict[str, Any]:
    """One query's object. `correct` is null where fluxen refuses, of Spark's results where only Spark has work."""
    ours, native = found["fluxen"], found["spark"]
    stateless = _STATELESS in (ours.refused or "")
    answer = native if stateless else ours
    compared = answer.compared
    rates = {who: report.median_rate(one.timed) for who, one in found.items()}
    ratio = report.ratio(rates["fluxen"], rates["spark"])
    typical = answer.timed[len(answer.timed) // 2] if answer.timed else answer.check
    refused = None if stateless else ours.refused
    return {
        "name": name,
        "engine": "spark" if stateless else "fluxen",
        "rows": rows,
        "correct": None if refused else compared is not None and compared.equal,
        "result_rows": compared.expected_rows if compared else None,
        "difference": compared.detail if compared else None,
        "refused": refused,
        "error": None if ours.refused else ours.error,
        "fluxen_rows_per_s": report.rounded(rates["fluxen"]),
        "spark_rows_per_s": report.rounded(rates["spark"]),
        "spark_reason": native.error,
        "spark_correct": None if native.compared is None else native.compared.equal,
        "ratio": ratio,
        "fluxen_runs": [report.rounded(report.rate(one)) for one in ours.timed],
        "spark_runs": [report.rounded(report.rate(one)) for one in native.timed],
        "batch_seconds": typical.percentiles(),
        "peak_rss_mb": round(typical.peak.pss_mb),
    }
