"""How much state a site may hold where nobody says: a share of what its process really has.

Asked of the executors themselves, in one small job when a query starts; in local mode of this machine. A process has
what its control group allows, or the machine's memory, less the JVM's heap beside it. Where Spark limits the address
space of Python workers (`spark.executor.pyspark.memory`) that counts, as mapped files are part of it. `FLUXEN_MEMORY`
says it instead, for all sites of an executor together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from fluxen.engine.options import parse_size

__all__ = ["VARIABLE", "available", "memory_per_site", "share"]

VARIABLE = "FLUXEN_MEMORY"
SHARE = 0.5
"""Of what an executor's process has left beside the JVM: the rest is for batches, libraries and the page cache."""
LIBRARIES = 1 << 30
"""Address space of a Python worker without any state."""
LEAST = 64 << 20
"""Bytes below which a site is not limited: there would be no room to work in."""
_GROUPS = ("memory.max", "memory/memory.limit_in_bytes")
"""Where control groups, of either version, say what they allow."""


def memory_per_site(spark: SparkSession, sites: int) -> int | None:
    """Bytes of state that each of so many sites may hold; None where that cannot be told."""
    context = spark.sparkContext
    given = os.environ.get(VARIABLE)
    local = context.master.startswith("local[") or context.master == "local"
    executors = 1 if local else max(1, _executors(context))
    together = -(-sites // executors)
    if given is not None:
        return max(1, parse_size(given, VARIABLE) // together)
    heap = int(context._jvm.java.lang.Runtime.getRuntime().maxMemory())
    if local:
        return share(available() - heap, together)
    limit = context.getConf().get("spark.executor.pyspark.memory")
    if limit is not None:  # Spark gives each worker its part of it
        cores = int(context.getConf().get("spark.executor.cores") or 1)
        worker = parse_size(limit if limit[-1].isalpha() else f"{limit}m", "spark.executor.pyspark.memory") // cores
        return share(worker - LIBRARIES, 1)
    heap = parse_size(context.getConf().get("spark.executor.memory") or "1g", "spark.executor.memory")
    seen = context.parallelize(range(executors), executors).mapPartitions(_ask).collect()
    return share(min(seen) - heap, together)


def share(left: int, sites: int) -> int | None:
    """What each of the sites of a process may take of what it has left.

    >>> share(8 << 30, 4) == 1 << 30
    True
    """
    each = int(SHARE * left) // sites
    return each if each >= LEAST else None


def available(root: str = "/sys/fs/cgroup", machine: str = "/proc/meminfo") -> int:
    """Bytes that this process may use: its control group's, or the machine's."""
    found = [_machine(machine)]
    for name in _GROUPS:
        try:
            text = (Path(root) / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    return min(found)


def _machine(path: str) -> int:
    try:
        line = next(line for line in Path(path).read_text().splitlines() if line.startswith("MemTotal:"))
        return int(line.split()[1]) << 10
    except (OSError, StopIteration):  # not Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _ask(_: Iterator[int]) -> Iterator[int]:
    yield available()


def _executors(context: SparkContext) -> int:
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is among them
