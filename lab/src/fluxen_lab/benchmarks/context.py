"""What every benchmark needs while it runs: its files, one measured run after another, the check against the oracle.

aggregate.py, join.py and growth.py are written on this; report.py turns what they find into JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fluxen_lab.benchmarks.compare import Column, Comparison, compare, connect, parquet_relation
from fluxen_lab.benchmarks.job import Job, Sink
from fluxen_lab.benchmarks.oracle import materialize
from fluxen_lab.benchmarks.runner import Measured, execute
from fluxen_lab.benchmarks.turns import Engine
from fluxen_lab.datagen.streams import link_files
from fluxen_lab.datagen.workloads import Workload

__all__ = ["TOLERANCE", "Context", "Options", "Prepared"]

TOLERANCE = 1e-9
REHEARSED = 10
"""Batches every engine may work on before it is measured."""
REHEARSAL_S = 120.0
"""Seconds for which it does so again and again where steady rates are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run a benchmark. With the `noop` sink fluxen's results are checked in a second, untimed run."""

    scale: float = 1.0
    rediscover: bool = False
    sink: Sink = "noop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A workload at the run's scale with its files on disk."""

    workload: Workload
    data: Path


@dataclass(slots=True, kw_only=True)
class Context:
    """One run of one benchmark. `say` takes lines for people; nothing here writes to standard output."""

    work: Path
    options: Options
    say: Callable[[str], None]
    _connection: Any = field(default=None, init=False)

    def prepare(self, workload: Workload) -> Prepared:
        scaled = workload.scaled(self.options.scale)
        self.say(f"writing {scaled.rows:,} rows for {scaled.name} in {scaled.batches} batches")
        data = self.work / "data" / scaled.name
        scaled.write(data)
        return Prepared(workload=scaled, data=data)

    def job(self, prepared: Prepared, query: str, name: str = "") -> Job:
        return Job(
            query=query,
            data=prepared.data,
            work=self.work / "runs" / (name or f"{prepared.workload.name}-{query}"),
            sink=self.options.sink,
            bound_us=prepared.workload.bound_us,
        )

    def rehearsal(self, prepared: Prepared, batches: int = REHEARSED) -> Path:
        """A workload's first files, for a run before the one that counts."""
        directory = self.work / "data" / f"{prepared.data.name}-rehearsal"
        if not directory.exists():
            for stream in prepared.workload.streams:
                link_files(prepared.data / stream.name, directory / stream.name, batches)
        return directory

    def rehearsed(self, prepared: Prepared, job: Job) -> Job:
        """The job after a rehearsal that is as long for every engine."""
        return replace(job, rehearsal=self.rehearsal(prepared), rehearsal_s=REHEARSAL_S * min(1.0, self.options.scale))

    def natives(self, prepared: Prepared, job: Job) -> list[Measured]:
        """Native Spark, rehearsed, with its own settings and with those that fluxen makes for a local disk."""
        found = []
        for tuned in (False, True):
            work = job.work.with_name(f"{job.work.name}{'-tuned' if tuned else ''}")
            run = replace(job, settings=replace(job.settings, tuned=tuned), work=work)
            found.append(self.measure(prepared, self.rehearsed(prepared, run)))
        return found

    def measure(self, prepared: Prepared, job: Job, *, extra_batches: int = 0) -> Measured:
        """Run a job to its end; `extra_batches` are tiny warm-up files in front of the workload's own."""
        self.say(f"{job.work.name} ({job.settings})" if not job.query.startswith("fluxen") else job.work.name)
        measured = execute(
            job,
            rows_per_batch=prepared.workload.batch_rows,
            data_batches=prepared.workload.batches + extra_batches,
        )
        self.say(f"  {_summary(measured)}")
        return measured

    def turn(self, engine: Engine, job: Job, name: str, rows: int) -> Measured:
        """One run, over batches of so many rows, of an engine that waits for its turns."""
        self.say(name)
        measured = engine.turn(job, rows)
        self.say(f"  {_summary(measured)}")
        return measured

    def verify(
        self, measured: Measured, prepared: Prepared, expected: str, columns: Sequence[Column], *, exact: bool
    ) -> Comparison | None:
        """Compare a finished run's results with the materialized table `expected`; None if there is nothing to compare.

        A baseline that dropped its results is not run again for the comparison.
        """
        if not measured.outcome.finished:
            return None
        out = measured.job.out
        if measured.job.sink == "noop":
            if not measured.job.query.startswith("fluxen"):
                return None
            work = measured.job.work.with_name(f"{measured.job.work.name}-check")
            job = replace(measured.job, sink="parquet", work=work, rehearsal=None)
            again = self.measure(prepared, job, extra_batches=measured.data_batches - prepared.workload.batches)
            if not again.outcome.finished:
                return None
            out = job.out
        found = compare(
            self.connection,
            f"SELECT * FROM {expected}",
            parquet_relation(out, columns),
            columns,
            tolerance=None if exact else TOLERANCE,
        )
        verdict = "equal the oracle's" if found.equal else f"DIFFER from the oracle's: {found.detail}"
        self.say(f"  results {verdict} ({found.expected_rows:,} rows)")
        return found

    @property
    def connection(self) -> Any:
        if self._connection is None:
            self._connection = connect()
        return self._connection

    def oracle(self, table: str, sql: str) -> float:
        seconds = materialize(self.connection, table, sql)
        self.say(f"oracle {table}: {seconds:.1f} s")
        return seconds


def _summary(measured: Measured) -> str:
    outcome = measured.outcome
    if outcome.skipped:
        return f"skipped: {outcome.skipped}"
    if outcome.error:
        return f"failed: {outcome.error}"
    if measured.rows_per_s is None:
        bound = measured.at_most_rows_per_s
        return f"no steady batch within the limit{f', at most {bound:,.0f} rows/s' if bound else ''}"
    stopped = "" if outcome.finished else f", stopped after {len(measured.batches)} batches"
    return f"{measured.rows_per_s:,.0f} rows/s, {measured.peak.pss_mb:,.0f} MB{stopped}"
