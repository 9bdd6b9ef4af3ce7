"""Runs one job in a fresh process with its own JVM and watches it from outside.

job.py is what passes between the two; spark/worker.py is the other end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fluxen.errors import PlatformError
from fluxen_lab.benchmarks.job import Batch, Job, Outcome
from fluxen_lab.benchmarks.memory import Footprint, Sampler, session_pids

__all__ = ["WARM_UP_BATCHES", "Measured", "await_report", "end_session", "execute", "last_line", "launch"]

WARM_UP_BATCHES = 2
_START_UP_S = 120.0  # for the JVM and the imports, beyond the job's own limit
_DRIVER_MEMORY = "4g"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A finished run. `rows_per_batch` is known from the files: Spark counts a row again when a sink reads twice."""

    job: Job
    outcome: Outcome
    rows_per_batch: int
    data_batches: int
    peak: Footprint = field(default_factory=Footprint)

    @property
    def batches(self) -> tuple[Batch, ...]:
        """Batches with data; the empty one that Spark appends to move the watermark is left out."""
        return tuple(batch for batch in self.outcome.batches if batch.number < self.data_batches)

    @property
    def steady(self) -> tuple[Batch, ...]:
        return tuple(batch for batch in self.batches if batch.number >= WARM_UP_BATCHES)

    @property
    def steady_seconds(self) -> tuple[float, ...]:
        return tuple(batch.seconds for batch in self.steady)

    @property
    def warm_up_seconds(self) -> tuple[float, ...]:
        return tuple(batch.seconds for batch in self.batches if batch.number < WARM_UP_BATCHES)

    @property
    def rows_per_s(self) -> float | None:
        """Rows of the steady batches over their seconds; None without a steady batch."""
        seconds = sum(self.steady_seconds)
        return len(self.steady) * self.rows_per_batch / seconds if seconds else None

    @property
    def wall_rows_per_s(self) -> float | None:
        """The same over the wall clock from the first steady batch's start to the last one's end."""
        if not self.steady:
            return None
        last = self.steady[-1]
        return len(self.steady) * self.rows_per_batch / (last.started + last.seconds - self.steady[0].started)

    @property
    def at_most_rows_per_s(self) -> float | None:
        """An upper bound for a run that was stopped inside its first steady batch: as if it had ended then.

        It says something only once that batch has taken longer than every batch before it.
        """
        if self.steady or len(self.batches) < WARM_UP_BATCHES:
            return None
        if self.outcome.in_flight_s <= max(batch.seconds for batch in self.batches):
            return None
        return self.rows_per_batch / self.outcome.in_flight_s

    def percentiles(self) -> dict[str, float] | None:
        if not self.steady:
            return None
        seconds = np.array(self.steady_seconds)
        return {
            "p50": round(float(np.percentile(seconds, 50)), 4),
            "p99": round(float(np.percentile(seconds, 99)), 4),
            "max": round(float(seconds.max()), 4),
        }

    def phase_medians_ms(self) -> dict[str, float]:
        """Where a steady batch's time goes, in the streaming engine's own words."""
        names = sorted({name for batch in self.steady for name in batch.phases_ms})
        return {name: float(np.median([batch.phases_ms.get(name, 0) for batch in self.steady])) for name in names}


def execute(job: Job, *, rows_per_batch: int, data_batches: int) -> Measured:
    """Run `job` to its end or its limit. Spark's log goes to `worker.log` in the job's folder."""
    shutil.rmtree(job.work, ignore_errors=True)
    job.work.mkdir(parents=True)
    job.save(job.work / "job.json")
    report = job.work / "outcome.json"
    process = launch(job, str(job.work / "job.json"), str(report))
    sampler = Sampler(process.pid, period_s=job.sample_s)
    sampler.start()
    try:
        await_report(process, report, job)
    finally:
        peak = sampler.stop()
        end_session(process)
    outcome = Outcome.load(report) if report.exists() else Outcome(error=last_line(job.work / "worker.log"))
    return Measured(job=job, outcome=outcome, rows_per_batch=rows_per_batch, data_batches=data_batches, peak=peak)


def launch(job: Job, *arguments: str) -> subprocess.Popen[bytes]:
    """A worker in a session of its own, its Spark set up for `job`, its log in the job's folder."""
    with (job.work / "worker.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "fluxen_lab.benchmarks.spark.worker", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(job),
            start_new_session=True,
        )


def _environment(job: Job) -> dict[str, str]:
    arguments = [
        f"--master {job.master}",
        f"--driver-memory {_DRIVER_MEMORY}",
        "--conf spark.ui.enabled=false",
        "--conf spark.sql.session.timeZone=UTC",
        "--conf spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS",
        "--conf spark.sql.streaming.numRecentProgressUpdates=1000",
        *([f"--jars {','.join(job.jars)}"] if job.jars else []),
        "pyspark-shell",
    ]
    # inherited settings would make two machines' numbers incomparable
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    cluster = _cluster(job) if job.master.startswith("local-cluster") else {}
    return (
        inherited
        | cluster
        | {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": " ".join(arguments),
            "SPARK_LOCAL_DIRS": str(job.work / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
    )


def _cluster(job: Job) -> dict[str, str]:
    """Where a cluster on this machine finds Spark, and where its executors work."""
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise PlatformError("pyspark is not installed; run pip install fluxen")
    return {"SPARK_HOME": str(Path(spark.origin).parent), "SPARK_WORKER_DIR": str(job.work / "executors")}


def await_report(process: subprocess.Popen[bytes], report: Path, job: Job) -> None:
    """Until the report is there or the process gone, and no longer than the job may take."""
    rehearsal_s = job.rehearsal_s if job.rehearsal is not None else 0.0
    end = time.monotonic() + job.limit_s + job.grace_s + rehearsal_s + _START_UP_S
    while time.monotonic() < end and process.poll() is None and not report.exists():
        time.sleep(0.1)


def end_session(process: subprocess.Popen[bytes]) -> None:
    # the JVM and Spark's Python workers outlive the driver for a moment and would slow the next run down
    for _ in range(50):
        pids = session_pids(process.pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        if not pids:
            break
        time.sleep(0.1)
    process.wait()


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"the run ended without a report; its log ends: {lines[-1] if lines else '(empty)'}"
