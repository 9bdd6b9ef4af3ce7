"""The queries of `fluxen bench adapt`, and its cluster: two executors with a core each, busy processes beside one.

Executors are real processes, pinned by the kernel; nobody waits or sleeps to be slow. ../adapt.py says what
each scenario is made of."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import fluxen as fx
from fluxen_lab.benchmarks.job import Job
from fluxen_lab.benchmarks.memory import session_pids
from fluxen_lab.benchmarks.spark.sources import stream

__all__ = ["BUILDERS", "Hogs", "beside", "builder", "session", "state_of"]

SITES, PARTITIONS = 2, 64
BUSY = 2
"""Processes that keep the second executor's core busy."""
_START_S = 120.0


def session(job: Job) -> SparkSession:
    spark = fx.session(
        master=job.master,
        spark__executor__memory="768m",
        spark__executor__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        spark__sql__shuffle__partitions=SITES,
    )
    _pin()
    return spark


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))[:SITES]


def _pin() -> None:
    """Keep each executor, and the Python workers it will start, on a core of its own."""
    end = time.monotonic() + _START_S
    while len(found := _executors()) < SITES:
        if time.monotonic() > end:
            raise RuntimeError(f"{len(found)} of {SITES} executors have come up")
        time.sleep(0.2)
    for pid, core in zip(found, cores()):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):  # a thread may end meanwhile
                os.sched_setaffinity(int(thread.name), {core})


def _executors() -> list[int]:
    found = []
    for pid in session_pids(os.getsid(0)):
        with suppress(OSError):
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return sorted(found)


class Hogs:
    """Processes that do nothing but be busy, on the second executor's core."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, wanted: bool) -> None:
        if wanted and not self._running:
            command = ["taskset", "-c", str(cores()[-1]), sys.executable, "-c", "while True: pass"]
            self._running = [subprocess.Popen(command) for _ in range(BUSY)]
        elif not wanted:
            for process in self._running:
                process.kill()
                process.wait()
            self._running = []


HOGS = Hogs()


def beside(sink: Callable[[Any, int], None], hog: tuple[int, int]) -> Callable[[Any, int], None]:
    """The sink with busy processes beside it from one batch to another."""
    HOGS.run(False)

    def watched(batch: Any, number: int) -> None:
        HOGS.run(hog[0] <= number < hog[1])
        sink(batch, number)
        if number + 1 >= hog[1]:
            HOGS.run(False)

    return watched


def _last10(spark: SparkSession, job: Job) -> Any:
    rows = stream(spark, job.data, "rows", text=False)
    return fx.aggregate(rows, by=["key"], time="ts", mean=fx.avg("value"), last=10)


def _join(names: str, **more: Any) -> Callable[[SparkSession, Job], Any]:
    def build(spark: SparkSession, job: Job) -> Any:
        inputs = {name: stream(spark, job.data, name, text=True) for name in names}
        bound = f"{(job.bound_us or 0) // 1_000} milliseconds"
        between = {(name, "a"): (f"-{bound}", bound) for name in names[1:]}
        return fx.join(inputs, on="key", time="ts", between=between, **more)

    return build


BUILDERS: dict[str, Callable[[SparkSession, Job], Any]] = {
    "hog": _last10,
    "hotkey": _join("ab"),
    "memory": _join("ab"),
    "rates": _join("abc", plan="tree"),
    "drift": _last10,
    "load": _last10,
    "mixed": _join("ab"),
}
_POLICIES: dict[str, dict[str, Any]] = {
    "static": {"policy": "static", "replan": None},
    "auto": {"policy": "auto"},
    "flux-load": {"policy": "flux-load"},
    "flux-hybrid": {"policy": "flux-hybrid"},
    "lazy-disk": {"policy": {"name": "lazy-disk", "gap": 3.0}},
    "active-disk": {"policy": {"name": "active-disk", "gap": 3.0}},
    "readj": {"policy": "static", "partitioner": "readj"},
    "replan": {"policy": "static", "replan": True},
    "replan-flux-load": {"policy": "flux-load", "replan": True},
}


def builder(scenario: str, variant: str) -> Callable[[SparkSession, Job], Any]:
    """The query of a scenario under one policy, by the name that the results have."""

    def build(spark: SparkSession, job: Job) -> Any:
        options = dict(_POLICIES[variant])
        if scenario == "rates" and options.get("replan", True) is None:
            options["replan"] = False
        sites: Any = (1, SITES) if scenario == "load" and variant == "auto" else SITES
        return BUILDERS[scenario](spark, job).adapt(
            sites=sites, partitions=PARTITIONS, memory_per_site=job.memory, **options
        )

    return build


def state_of(run: Any) -> dict[str, Any]:
    """What the run adapted, and what was promised of it."""
    done: dict[str, int] = {}
    for event in run.events:
        if event["outcome"] == "done":
            done[event["kind"]] = done.get(event["kind"], 0) + 1
    flushes = [epoch for epoch in run.epochs if epoch["batch"] is None]
    return {
        "done": done,
        "owed_seconds": sum(sum(epoch["seconds"].values()) for epoch in flushes),
        "predictions": run.predictions,
        "bytes": max((e["state_bytes"] for e in run.epochs), default=0),
    }
