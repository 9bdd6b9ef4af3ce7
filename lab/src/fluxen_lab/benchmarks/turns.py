"""Two engines by turns: each in a process of its own that stays warm, one of them running at a time.

A machine's speed changes from minute to minute; runs that alternate see the same of it. spark/worker.py is the other
end: it runs the jobs of a folder one after the other.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field, replace
from types import TracebackType

from fluxen_lab.benchmarks.job import Job, Outcome
from fluxen_lab.benchmarks.memory import Sampler
from fluxen_lab.benchmarks.runner import Measured, await_report, end_session, last_line, launch

__all__ = ["Engine"]


@dataclass(slots=True)
class Engine:
    """One process that runs a job, and variants of it, whenever it is its turn. It starts with its first turn."""

    job: Job
    data_batches: int
    turns: int = field(default=0, init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            end_session(self._process)

    def turn(self, job: Job, rows_per_batch: int) -> Measured:
        """Run `job`, of the same session as all others, to its end or its limit. Only the first one rehearses."""
        process = self._started()
        folder = self.job.work
        job = replace(job, rehearsal=job.rehearsal if self.turns == 0 else None, work=folder / f"turn-{self.turns}")
        report = folder / f"{self.turns}.outcome"
        sampler = Sampler(process.pid, period_s=job.sample_s)
        sampler.start()
        try:
            job.save(folder / f"{self.turns}.job")
            await_report(process, report, job)
        finally:
            peak = sampler.stop()
        self.turns += 1
        if not report.exists():
            # a process that died, or does not answer, must not take the turns that follow with it
            end_session(process)
            self._process = None
            Outcome(error=last_line(folder / "worker.log")).save(report)
        outcome = Outcome.load(report)
        return Measured(
            job=job, outcome=outcome, rows_per_batch=rows_per_batch, data_batches=self.data_batches, peak=peak
        )

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            if self.turns == 0:
                shutil.rmtree(self.job.work, ignore_errors=True)
            self.job.work.mkdir(parents=True, exist_ok=True)
            self._process = launch(self.job, "--turns", str(self.job.work))
        return self._process
