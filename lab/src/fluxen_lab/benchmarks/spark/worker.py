"""The process of one measured run: `python -m fluxen_lab.benchmarks.spark.worker JOB REPORT`.

Started by ../runner.py, which also watches its memory and ends it; ../job.py is what passes between the two. With
`--turns FOLDER` it runs one job after the other as ../turns.py puts them there, in one warm session.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from fluxen_lab.benchmarks.job import Batch, Job, Outcome
from fluxen_lab.benchmarks.memory import footprint, session_pids

_POLL_S = 0.05
_REHEARSAL_S = 60.0  # at most, if the job does not ask for more


def main(first: str, second: str) -> None:
    threading.Thread(target=_follow_parent, args=(os.getppid(),), daemon=True).start()
    if first == "--turns":
        _take_turns(Path(second))
    _report(Job.load(Path(first)), Path(second))


def _take_turns(folder: Path) -> NoReturn:
    """Run the jobs 0, 1, 2, ... as they come, until whoever waits for them ends this process."""
    done = sum(1 for _ in folder.glob("*.outcome"))
    for turn in count(done):
        while not (folder / f"{turn}.job").exists():
            time.sleep(_POLL_S)
        _report(Job.load(folder / f"{turn}.job"), folder / f"{turn}.outcome", stays=True)
    raise AssertionError("there is always a next turn")


def _report(job: Job, report: Path, *, stays: bool = False) -> None:
    try:
        outcome = _run(job, stays)
    except ImportError as error:
        outcome = Outcome(skipped=str(error).splitlines()[0])
    except Exception as error:
        traceback.print_exc()
        outcome = Outcome(error=f"{type(error).__name__}: {_first_line(error)}")
    outcome.save(report)


def _follow_parent(parent: int) -> None:
    """End the whole session when the benchmark is gone, however it went: no JVM stays behind."""
    while os.getppid() == parent:
        time.sleep(1.0)
    own = os.getpid()
    for pid in [pid for pid in session_pids(os.getsid(0)) if pid != own] + [own]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _run(job: Job, stays: bool) -> Outcome:
    """Run a job; if the process `stays` for another one, what is not finished at the limit is stopped."""
    session, build, state = _find(job.query)
    spark = session(job)
    if job.rehearsal is not None:
        _rehearse(build, spark, replace(job, data=job.rehearsal, work=job.work / "rehearsal"))
    query = build(spark, job)
    # the driver and its JVM exist and are idle: what a run adds to this is its own
    idle = footprint(os.getsid(0))
    started = time.monotonic()
    run = _start(query, job)
    while run.isActive and not _over(job, run, time.monotonic() - started):
        time.sleep(_POLL_S)
    finished = not run.isActive
    problem = run.exception()
    if finished and problem is not None:
        return Outcome(error=_first_line(problem))
    batches = batches_of(run)
    found = state(run)
    if stays and not finished:
        run.stop()
    last_end = batches[-1].started + batches[-1].seconds if batches else time.time()
    return Outcome(
        batches=batches,
        finished=finished,
        idle_rss_mb=idle.rss_mb,
        idle_workers_mb=idle.workers_mb,
        in_flight_s=0.0 if finished else max(0.0, time.time() - last_end),
        state=found,
    )


def _rehearse(build: Callable[[Any, Job], Any], spark: Any, job: Job) -> None:
    started = time.monotonic()
    end = started + max(job.rehearsal_s, _REHEARSAL_S)
    while True:
        run = _start(build(spark, job), job)
        if not run.awaitTermination(max(0.1, end - time.monotonic())):
            run.stop()
        shutil.rmtree(job.work, ignore_errors=True)
        if time.monotonic() - started >= job.rehearsal_s:
            return


def _start(query: Any, job: Job) -> Any:
    from fluxen_lab.benchmarks.spark import adapt
    from fluxen_lab.benchmarks.spark.sources import sink

    writer = query.writeStream.trigger(availableNow=True)
    if job.sink == "kafka":
        writer = writer.format("kafka").option("kafka.bootstrap.servers", job.servers).option("topic", "out")
    else:
        writer = writer.foreachBatch(sink(job) if job.hog is None else adapt.beside(sink(job), job.hog))
    if job.mode != "append":
        writer = writer.outputMode(job.mode)
    return writer.option("checkpointLocation", str(job.work / "checkpoint")).start()


def _over(job: Job, run: Any, elapsed_s: float) -> bool:
    """Whether to stop: at the limit if some steady batch is known, else when the grace ends or one becomes known."""
    if elapsed_s < job.limit_s:
        return False
    from fluxen_lab.benchmarks.runner import WARM_UP_BATCHES

    return elapsed_s >= job.limit_s + job.grace_s or len(run.recentProgress) > WARM_UP_BATCHES


def _find(query: str) -> tuple[Callable[[Job], Any], Callable[[Any, Job], Any], Callable[[Any], dict[str, Any]]]:
    from fluxen_lab.benchmarks.spark import sources

    if query.startswith("fluxen-skew-"):
        from fluxen_lab.benchmarks.spark import ours, skew

        return skew.session, skew.QUERIES[query], ours.state_of
    if query.startswith("fluxen-move-"):
        from fluxen_lab.benchmarks.spark import move, skew

        return skew.session, move.QUERIES[query], move.state_of
    if query.startswith("fluxen-adapt-"):
        from fluxen_lab.benchmarks.spark import adapt

        scenario, _, variant = query.removeprefix("fluxen-adapt-").partition("-")
        return adapt.session, adapt.builder(scenario, variant), adapt.state_of
    if query.startswith("fluxen-latency-"):
        from fluxen_lab.benchmarks.spark import latency, ours

        return ours.session, latency.builder(query.removeprefix("fluxen-latency-")), latency.state_of
    kind, _, part = query.removeprefix("fluxen-").partition("-")
    if kind == "kafka":
        from fluxen_lab.benchmarks.spark import kafka, ours

        if query.startswith("fluxen-"):
            return ours.session, kafka.QUERIES[query], ours.state_of
        return sources.native_session, kafka.QUERIES[query], _native_state
    if kind in ("query", "nexmark"):
        from fluxen_lab.benchmarks.spark import nexmark, ours, queries

        builders = queries if kind == "query" else nexmark
        if query.startswith("fluxen-"):
            return ours.session, builders.on_fluxen(part), ours.state_of
        return sources.native_session, builders.native(part), _native_state
    if query.startswith("fluxen-"):
        from fluxen_lab.benchmarks.spark import ours

        return ours.session, ours.QUERIES[query], ours.state_of
    if query.startswith("empty"):
        from fluxen_lab.benchmarks.spark import native, ours

        # under fluxen's settings only the operator differs; under its own Spark is as it comes
        return ours.session if query == "empty" else sources.plain_session, native.empty, lambda run: {}
    from fluxen_lab.benchmarks.spark import last10, native

    baselines = {"native-tumbling": native.tumbling, "native-join": native.join} | last10.QUERIES
    return sources.native_session, baselines[query], _native_state


def _native_state(run: Any) -> dict[str, Any]:
    operators = dict(run.lastProgress or {}).get("stateOperators", [])
    return {
        "rows": sum(operator["numRowsTotal"] for operator in operators),
        "bytes": sum(operator["memoryUsedBytes"] for operator in operators),
    }


def batches_of(run: Any) -> tuple[Batch, ...]:
    found: dict[int, Batch] = {}
    for progress in run.recentProgress:
        phases = {name: int(value) for name, value in dict(progress["durationMs"]).items()}
        # a trigger that found nothing to do reports too, without having run a batch
        if "addBatch" not in phases:
            continue
        started = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
        found[progress["batchId"]] = Batch(
            number=progress["batchId"],
            seconds=phases["triggerExecution"] / 1_000,
            started=started,
            phases_ms=phases,
        )
    return tuple(found[number] for number in sorted(found))


def _first_line(problem: Any) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    # a failed Python worker's own words are deep inside the JVM's message
    own = [line for line in lines if "Error" in line and "org.apache" not in line]
    return (own or lines or ["unknown"])[-1 if own else 0][:300]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
