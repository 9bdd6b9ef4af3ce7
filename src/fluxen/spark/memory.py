"""What `memory_per_site="auto"` comes to: a share of the memory that executors really have beside their JVMs.

A container's limit counts, version 1 or 2 of Linux' cgroups, and the machine's memory where there is none. Executors
that see the same limit share it, with their JVMs and, if it is here, the driver's. Half of the rest is for state; a
batch's rows, and what is made of them, need the other half. `spark.executor.pyspark.memory` limits the address space of
every Python worker, in which mapped files count, so state must fit in there as well.

The setting `spark.fluxen.executor.memory` says how many bytes of state the sites of one executor may hold, and nobody
looks.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from fluxen.engine.options import parse_size

__all__ = ["SETTING", "Seen", "per_executor", "per_site"]

SETTING = "spark.fluxen.executor.memory"
SHARE = 0.5
"""Part for state of what is left beside the JVMs."""
LEAST = 0.25
"""Part of all memory that is taken to be left, whatever the JVMs could take: they seldom do."""
_GROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one Python worker sees."""

    host: str
    executor: str
    limited_by: str
    """the container whose limit it is; empty for the machine"""
    bytes: int
    addresses: int | None = None
    """bytes of address space that the worker may still use; None where it is not limited"""


def per_site(spark: SparkSession, sites: int) -> int:
    """Bytes of state that each of so many sites may hold."""
    given = spark.conf.get(SETTING, None)
    executors = max(1, spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1)
    local = _in_process(spark)
    each = -(-sites // (1 if local else executors))
    if given is not None:
        return max(1, parse_size(given, SETTING) // each)
    if local:
        return per_executor([here()], 0, _heap(spark), socket.gethostname()) // each
    heap = int(spark.sparkContext._jsc.sc().executorMemory()) << 20
    return per_executor(_everywhere(spark), heap, _heap(spark), socket.gethostname()) // each


def per_executor(seen: Sequence[Seen], heap: int, driver: int, host: str) -> int:
    """Bytes of state for the executor that has least; `driver` is the heap of the driver's JVM at `host`.

    >>> worker = Seen(host="a", executor="1", limited_by="", bytes=16 << 30)
    >>> per_executor([worker], 4 << 30, 2 << 30, "a") >> 30
    5
    >>> per_executor([worker, Seen(host="a", executor="2", limited_by="", bytes=16 << 30)], 4 << 30, 2 << 30, "b") >> 30
    2
    """
    least = _UNLIMITED
    for one in seen:
        beside = {two.executor for two in seen if (two.host, two.limited_by) == (one.host, one.limited_by)}
        taken = len(beside) * heap + (driver if one.host == host else 0)
        rest = max(one.bytes - taken, int(LEAST * one.bytes)) // len(beside)
        least = min(least, rest, _UNLIMITED if one.addresses is None else one.addresses)
    return max(1, int(SHARE * least))


def here() -> Seen:
    """What this process sees."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, name = min(_limits(_read("/proc/self/cgroup"), _GROUPS), default=(machine, ""))
    bound = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = int((_read("/proc/self/statm") or "0").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return Seen(
        host=socket.gethostname(),
        executor=str(os.getppid()),  # the daemon that forks Python workers is one per executor
        limited_by=name if limit < machine else "",
        bytes=min(limit, machine),
        addresses=None if bound == resource.RLIM_INFINITY else max(0, bound - used),
    )


def _limits(groups: str, root: Path) -> Iterator[tuple[int, str]]:
    """Every limit that holds for a process of these groups, as /proc/self/cgroup names them: its own and its parents'.

    >>> list(_limits("", Path("/nowhere")))
    []
    """
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, file = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        at = base / path.strip("/")
        for directory in (at, *at.parents):
            text = _read(directory / file).strip()
            if text.isdigit() and int(text) < _UNLIMITED:
                yield int(text), str(directory)
            if directory == base:
                break


def _read(path: Path | str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _in_process(spark: SparkSession) -> bool:
    """Whether the driver's JVM is the executor."""
    master: str = spark.sparkContext.master
    return master == "local" or master.startswith("local[")


def _heap(spark: SparkSession) -> int:
    """What the driver's JVM may take."""
    assert spark._jvm is not None
    return int(spark._jvm.java.lang.Runtime.getRuntime().maxMemory())


def _everywhere(spark: SparkSession) -> list[Seen]:
    tasks = spark.sparkContext.defaultParallelism
    found: list[Seen] = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(_look).collect()
    return found


def _look(nothing: Iterable[int]) -> Iterable[Seen]:
    return [here()]
