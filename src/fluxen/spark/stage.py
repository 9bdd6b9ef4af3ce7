"""One stateful stage as a DataFrame: route, pin, run the sites.

`SiteTask` is what a Spark task executes; everything it does beyond reading and writing Arrow batches is
`fluxen.operators.site`.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.operators.job import SiteJob
from fluxen.operators.site import rechunk, run_site
from fluxen.operators.wire import Wire, decode
from fluxen.spark import allocator
from fluxen.spark.split import SITE, marked_site_expression, site_values, sites_expression


@dataclass(frozen=True, slots=True)
class SiteTask:
    """The function mapInArrow runs: all rows of one site in, its results out."""

    job: SiteJob
    wire: Wire

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # the daemon that forks Python workers is one per executor, so its pid tells executors of a host apart
        where = (socket.gethostname(), str(os.getppid()))
        attempt = f"{self.job.token}{uuid.uuid4().hex[:12]}"
        # the task came as a pickle, so the store is this worker's own
        self.job.store.cache = cache_directory(os.environ, self.job.store.cache)
        for table in run_site(self.job, lambda: decode(self.wire, batches), attempt, where):
            yield from rechunk(table)
        if self.job.piece_bytes is not None:
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


ANCHORS = 4
"""Numbers of sites for which blocks are kept: stages may differ while one of them waits for its rescale."""


class Pins:
    """Keeps each site on one executor.

    A tiny cached DataFrame with one row per site is joined to every batch; the join's tasks run where the cached
    block is. When an executor is lost its sites move to a survivor; a fresh set of blocks spreads them again.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        master = spark.sparkContext.master
        self.needed = not (master.startswith("local[") or master == "local")
        self._anchors: dict[int, DataFrame] = {}
        self._site = "", F.lit(None)
        self._executors: frozenset[str] = frozenset()

    def route(self, df: DataFrame, site: str, sites: int) -> DataFrame:
        """`df` in as many partitions as there are sites, each row in that of `site`, a SQL expression."""
        if not self.needed:
            if site != self._site[0]:  # parsed once per routing table
                self._site = site, F.expr(site)
            return df.repartition(sites, self._site[1])
        named = df if site == SITE else df.selectExpr("*", f"{site} as {SITE}")
        return named.join(self._anchor(sites).hint("shuffle_hash"), SITE)

    def _anchor(self, sites: int) -> DataFrame:
        executors = self.executors()
        if executors != self._executors:
            self.release()
            self._executors = executors
        if sites not in self._anchors:
            rows = [(value,) for value in site_values(sites)]
            anchor = self.spark.createDataFrame(rows, f"{SITE} int").repartition(sites, SITE).persist()
            anchor.count()
            for earlier in list(self._anchors)[: 1 - ANCHORS]:  # a rescale leaves blocks that nobody joins any more
                self._anchors.pop(earlier).unpersist()
            self._anchors[sites] = anchor
        return self._anchors[sites]

    def executors(self) -> frozenset[str]:
        """The executors there are now, by address: one that replaces another within a batch is a change, too."""
        known: str = self.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keySet().mkString(",")
        return frozenset(known.split(","))

    def release(self) -> None:
        for anchor in self._anchors.values():
            anchor.unpersist()
        self._anchors.clear()


def run_stage(routed: DataFrame, wire: Wire, job: SiteJob, schema: st.StructType, pins: Pins) -> DataFrame:
    """The results of one stage for one micro-batch, from its rows with marker rows among them."""
    routing = job.before.routing
    site = marked_site_expression(routing)
    if job.before.tracks:  # rows of a group that moves by parallel track go to more than one site
        site, routed = SITE, routed.selectExpr("*", f"{sites_expression(job.before)} as {SITE}")
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = SiteTask(job, wire)
    return pins.route(routed, site, routing.sites).mapInArrow(task, schema)
