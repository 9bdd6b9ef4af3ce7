"""The runtime on Spark: an epoch's stages as one chain of DataFrames, evaluated by the sink."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from fluxen.control.advance import NOTHING_SEEN, Seen
from fluxen.engine.runtime import EpochTask, Evaluation
from fluxen.site.context import SiteContext
from fluxen.site.wire import IN
from fluxen.spark import allocator
from fluxen.spark.plan.sources import Watched, latest, watched
from fluxen.spark.query import Query
from fluxen.spark.route import Pins, markers, marking
from fluxen.spark.sinks.base import FormatSink, Sink
from fluxen.spark.task import run_stage

__all__ = ["SparkRuntime"]

STAGE = "_stage"


class SparkRuntime:
    """Evaluates the epochs of one query."""

    def __init__(self, query: Query, sink: Sink) -> None:
        self.query, self.sink = query, sink
        self.pins = Pins(query.spark)
        self.session: SparkSession | None = None
        """the one batches run in, with the settings they need"""
        self._in_batches = False
        self._fed = [at for at, inputs in enumerate(query.inputs) if any(df is not None for df in inputs)]
        """stages that sources feed"""
        self._watched: dict[tuple[int, int], Watched] = {}
        self._stream: StreamingQuery | None = None
        self._launched = threading.Event()
        self._markers: dict[tuple[int, int], DataFrame] = {}
        self._marking: dict[int, Column] = {}
        self._consumers = _consumers(query)

    # ---- the stream

    def rows(self) -> DataFrame:
        """All sources' rows as one stream: what a batch of it is, `evaluate` takes apart again."""
        parts = [self._of_sources(at) for at in self._fed]
        if len(parts) == 1:
            return parts[0]
        tagged = [
            part.select(F.lit(at).alias(STAGE), F.struct("*").alias(_rows_of(at))) for at, part in zip(self._fed, parts)
        ]
        whole = tagged[0]
        for part in tagged[1:]:
            whole = whole.unionByName(part, allowMissingColumns=True)
        return whole

    def _of_sources(self, stage: int) -> DataFrame:
        plan = self.query.plans[stage]
        frames: list[DataFrame | None] = []
        for number, (df, time_column) in enumerate(zip(self.query.inputs[stage], plan.times)):
            seen = None if df is None else watched(df, time_column, f"fluxen_{stage}_{number}")
            if seen is not None:
                self._watched[stage, number] = seen
            frames.append(df if seen is None else seen.df)
        return plan.project(frames)

    def relaunching(self) -> None:
        """The stream has ended and another one goes on with its checkpoint: in a session of its own."""
        self._stream, self._in_batches = None, False
        self._launched.clear()

    def launched(self, stream: StreamingQuery) -> None:
        """Spark has started the stream."""
        self._stream = stream
        self._launched.set()

    def seen(self, rows: DataFrame) -> Seen:
        if not self._watched:
            return NOTHING_SEEN
        self._launched.wait()  # the first batch may be here before Spark has handed over its query
        assert self._stream is not None
        known = list(self._watched)
        return dict(zip(known, latest(self._stream, self.query.spark, [self._watched[key] for key in known])))

    def delivering(self, epoch: int, sites: int) -> bool:
        return isinstance(self.sink, FormatSink) and self.sink.delivering(epoch, sites)

    # ---- one epoch

    def evaluate(self, task: EpochTask[DataFrame]) -> Evaluation:
        started = time.perf_counter()
        if task.rows is not None and not self._in_batches:  # PySpark wraps the query's session anew for every batch
            self._prepare(task.rows.sparkSession)
            self._in_batches = True
        elif self.session is None:
            self._prepare(self.query.spark.newSession())
        made, shared = self._stages(task)
        results = self.query.shape(made[-1])
        planned = time.perf_counter()
        try:
            self.sink(results, task.number)
        except BaseException:
            _release(shared)
            raise

        def finish(stage: int) -> None:
            made[stage].write.format("noop").mode("overwrite").save()

        seconds = {"plan": planned - started, "run": time.perf_counter() - planned}
        return Evaluation(finish=finish, close=lambda: _release(shared), seconds=seconds)

    def _prepare(self, spark: SparkSession) -> None:
        # partitions are sites here: nothing may coalesce or split them
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200000")
        spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
        if self._repeatable():
            # a map task that runs again gives the same rows, so nothing is learned from checksums that compare them
            for name in ("enabled", "enableFullRetryOnMismatch"):
                spark.conf.set(f"spark.sql.shuffle.orderIndependentChecksum.{name}", "false")
        if self.query.options.frugal:
            allocator.lean(spark.sparkContext)
        self.session = spark
        self._markers.clear()

    def _repeatable(self) -> bool:
        """Whether the rows that come to the only shuffle there is are determined by the sources."""
        sources = [df for inputs in self.query.inputs for df in inputs if df is not None]
        plans = [source._jdf.queryExecution().analyzed() for source in sources]
        return len(self.query.plans) == 1 and all(plan.deterministic() for plan in plans)

    def _stages(self, task: EpochTask[DataFrame]) -> tuple[list[DataFrame], list[DataFrame]]:
        """The stages' results, and what several stages read of them and of the sources, which is kept for them."""
        made: list[DataFrame] = []
        shared: list[DataFrame] = []
        rows = task.rows
        if rows is not None and len(self._fed) > 1:  # to Spark a batch is a whole: each stage would read all sources
            rows = rows.persist()
            shared.append(rows)
        for at, (plan, context) in enumerate(zip(self.query.plans, task.contexts)):
            frame = self._input(rows, at, made)
            if frame is not None:
                frame = plan.prepare(frame, task.combine[at])
            frame = run_stage(self._marked(frame, context), plan.wire, context, plan.schema, self.pins)
            if self._consumers[at] > 1:
                frame = frame.persist()
                shared.append(frame)
            made.append(frame)
        return made, shared

    def _input(self, rows: DataFrame | None, at: int, made: Sequence[DataFrame]) -> DataFrame | None:
        """A stage's rows, from the sources and from other stages; None if there cannot be any."""
        plan = self.query.plans[at]
        fed = [None if feed.stage is None else made[feed.stage] for feed in plan.stage.inputs]
        parts = []
        if rows is not None and at in self._fed:
            one = len(self._fed) == 1
            parts.append(rows if one else rows.where(F.col(STAGE) == at).select(f"{_rows_of(at)}.*"))
        if any(frame is not None for frame in fed):
            parts.append(plan.project(fed))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])

    def _marked(self, rows: DataFrame | None, context: SiteContext) -> DataFrame:
        """A stage's rows with marker rows among them. Markers only, for a flush epoch."""
        assert self.session is not None
        sites = context.before.routing.sites
        if rows is not None and len(self.query.plans) == 1:
            if sites not in self._marking:
                self._marking = {sites: marking(sites)}
            return rows.withColumn(IN, self._marking[sites])
        # a stage that another one feeds must run even if it is fed nothing; built once, being the same in every batch
        key = (context.stage, sites)
        if key not in self._markers:
            self._markers = {known: df for known, df in self._markers.items() if known[0] != context.stage}
            self._markers[key] = markers(self.session, sites, self.query.plans[context.stage].wire_schema)
        alone = self._markers[key]
        return alone if rows is None else rows.unionAll(alone)


def _rows_of(stage: int) -> str:
    return f"_rows_{stage}"


def _consumers(query: Query) -> list[int]:
    """How many stages, or the sink, read each stage's results."""
    feeds = [feed.stage for plan in query.plans for feed in plan.stage.inputs]
    return [feeds.count(at) + (at == len(query.plans) - 1) for at in range(len(query.plans))]


def _release(shared: Sequence[DataFrame]) -> None:
    for frame in shared:
        frame.unpersist()
