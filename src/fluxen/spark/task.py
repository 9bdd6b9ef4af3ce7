"""One stateful stage as a DataFrame: route its rows, run the sites.

`SiteTask` is what a Spark task executes; everything it does beyond reading and writing Arrow batches is
`fluxen.site.task`.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from fluxen.site.context import SiteContext
from fluxen.site.task import run_site
from fluxen.site.wire import Wire, decode, rechunk
from fluxen.spark import allocator
from fluxen.spark.deal import dealt
from fluxen.spark.route import SITE, Pins, marked_site_expression, sites_expression


@dataclass(frozen=True, slots=True)
class SiteTask:
    """The function mapInArrow runs: all rows of one site in, its results out."""

    job: SiteContext
    wire: Wire

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # the daemon that forks Python workers is one per executor, so its pid tells executors of a host apart
        where = (socket.gethostname(), str(os.getppid()))
        attempt = f"{self.job.token}{uuid.uuid4().hex[:12]}"
        # the task came as a pickle, so the store is this worker's own
        self.job.store.cache = cache_directory(os.environ, self.job.store.cache)
        for table in run_site(self.job, lambda: decode(self.wire, batches), attempt, where):
            yield from rechunk(table)
        if self.job.frugal:
            allocator.trim()


def cache_directory(environment: Mapping[str, str], otherwise: str) -> str:
    """Where an executor keeps copies of a distant checkpoint's files: its own scratch space, which ends with the job.

    >>> cache_directory({"SPARK_EXECUTOR_DIRS": "/disk1/app-1:/disk2/app-1"}, "/tmp/cache")
    '/disk1/app-1/fluxen-cache'
    >>> cache_directory({}, "/tmp/cache")
    '/tmp/cache'
    """
    # in Spark's own order: YARN, a standalone worker, what an administrator or Kubernetes has set
    for name, between in (("LOCAL_DIRS", ","), ("SPARK_EXECUTOR_DIRS", os.pathsep), ("SPARK_LOCAL_DIRS", ",")):
        first = environment.get(name, "").split(between)[0]
        if first:
            return os.path.join(first, "fluxen-cache")
    return otherwise


def run_stage(routed: DataFrame, wire: Wire, job: SiteContext, schema: st.StructType, pins: Pins) -> DataFrame:
    """The results of one stage for one micro-batch, from its rows with marker rows among them."""
    routing = job.before.routing
    routed = dealt(routed, routing, len(wire.inputs))
    site = marked_site_expression(routing)
    if job.before.tracks:  # rows of a group that moves by parallel track go to more than one site
        site, routed = SITE, routed.selectExpr("*", f"{sites_expression(job.before)} as {SITE}")
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = SiteTask(job, wire)
    return pins.route(routed, site, routing.sites).mapInArrow(task, schema)
