"""A running query, with the methods of PySpark's StreamingQuery.

Spark's stream delivers micro-batches to the engine's loop (`fluxen.engine.loop`), which evaluates them through
`fluxen.spark.runtime`.
"""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from fluxen import errors
from fluxen.arrays import Json
from fluxen.control.memory.rotation import Memory
from fluxen.dashboard import Shown, show
from fluxen.dashboard.notebook import keep_showing, table, text
from fluxen.dashboard.plot import timeline
from fluxen.dashboard.source import Source
from fluxen.engine.adapting import adaptations
from fluxen.engine.keeper import ClaimKeeper
from fluxen.engine.loop import Loop
from fluxen.engine.progress import shown
from fluxen.errors import CheckpointError, ConfigError, FluxenError
from fluxen.spark.limits import Sizing
from fluxen.spark.query import Query
from fluxen.spark.runtime import SparkRuntime
from fluxen.spark.settings import cores, settings, with_memory
from fluxen.spark.sinks.base import FormatSink, Sink
from fluxen.spark.watch import planned_batch, watch

_REPORTED = 100
"""Progress reports that are kept of streams that have ended for another one."""
_ERROR = re.compile(r"fluxen\.errors\.(\w+): (.*)")


class Run:
    """A started query.

    Example::

        run = query.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint).start()
        run.processAllAvailable()
        run.epochs[-1]["rows_in"], run.epoch["stages"][0]["sites"], run.events
        run.finish()
    """

    def __init__(
        self,
        query: Query,
        sink: Sink,
        *,
        checkpoint: str,
        trigger: dict[str, Any],
        name: str | None,
        end_of_input: bool = False,
    ) -> None:
        self._query, self._sink, self._trigger, self.name = query, sink, trigger, name
        self.checkpoint = checkpoint
        self._end_of_input = end_of_input
        store, stages = query.store(checkpoint), [plan.stage for plan in query.plans]
        self._runtime = SparkRuntime(query, sink)
        options = with_memory(query)
        self._loop = Loop(
            stages,
            store,
            self._runtime,
            adaptations(stages, options, cores=cores(query), remote=not store.shared),
            settings(query, options, name or ""),
        )
        self._failure: BaseException | None = None
        self._stopped, self._done = threading.Event(), threading.Event()
        self._sizing: Sizing | None = None
        self._switching = threading.Lock()
        self._reported: list[Json] = []  # Spark's progress of streams that have been started again since
        self._keeper: ClaimKeeper
        self._spark_query: StreamingQuery | None = None

    # ---- life

    def start(self) -> Run:
        # to begin may mean to repeat a flush, which takes its time: the claim is renewed from the start
        self._keeper = ClaimKeeper(self._loop.store, self.name or "claim", self._lost)
        try:
            stream = self._begin()
        except BaseException:
            self._keeper.release()
            raise
        end = threading.Thread(target=self._end, args=(stream,), name=f"fluxen-{self.name or 'query'}", daemon=True)
        end.start()
        return self

    def _begin(self) -> StreamingQuery:
        checkpoint_id = self._loop.identify(self._keeper.claim)
        if isinstance(self._sink, FormatSink):
            self._sink.opened(self._keeper.claim, checkpoint_id)
        self._loop.open()
        rows, target = self._runtime.rows(), self._query.options.batch_seconds
        if target is not None:
            self._sizing = Sizing(self._query.spark, rows, target)
            rows = self._sizing.rows()
        return self._launch(rows)

    def _launch(self, rows: DataFrame) -> StreamingQuery:
        writer = rows.writeStream.foreachBatch(self._on_batch).option(
            "checkpointLocation", f"{self._loop.store.root.rstrip('/')}/spark"
        )
        if self.name:
            writer = writer.queryName(self.name)
        if self._trigger:
            writer = writer.trigger(**self._trigger)
        self._spark_query = writer.start()
        self._runtime.launched(self._spark_query)
        return self._spark_query

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        sizing = self._sizing
        if sizing is None:
            self._loop.batch(rows, batch)
            return
        if sizing.due is not None:  # Spark has begun another batch before it heard that it is to stop
            raise RuntimeError("this batch is begun again with other limits")
        began = time.perf_counter()
        if self._loop.batch(rows, batch) and sizing.after(self._loop.progress.last, began, time.perf_counter()):
            threading.Thread(target=self._halt, args=(self._stream,), daemon=True).start()

    def _halt(self, stream: StreamingQuery) -> None:
        with suppress(Exception):  # what ends a stream is reported by whoever waits for it
            stream.stop()

    def _again(self, stream: StreamingQuery) -> StreamingQuery | None:
        """Spark's query on the same checkpoint with other limits; None if it has not ended for that."""
        with self._switching:
            sizing = self._sizing
            if sizing is None or sizing.due is None or self._stopped.is_set() or self._failure is not None:
                return None
            self._halt(stream)
            self._reported = [*self._reported, *map(dict, stream.recentProgress)][-_REPORTED:]
            self._runtime.relaunching()
            resize, now = sizing.due, self._loop.settings.clocks.policies(self._loop.epoch)
            self._loop.adaptations[0].manager.log_step(
                kind="resize", what=f"limits of sources: {sizing.shown}", why=resize.why, now=now, detail={}
            )
            sizing.starting()
            try:
                following = self._launch(sizing.rows())
            except Exception as error:
                self._failure = error  # and not what the stream before ended with
                raise
            sizing.started()
            return following

    def _lost(self, error: CheckpointError) -> None:
        """Another driver has taken the claim over: end the query, which can commit nothing any more."""
        self._failure = error
        if self._spark_query is not None:
            self._spark_query.stop()

    def _end(self, stream: StreamingQuery) -> None:
        finite = "availableNow" in self._trigger or "once" in self._trigger
        try:
            stream = self._followed(stream, finite)
            if stream.exception() is None and finite and not self._stopped.is_set():
                self._loop.drain(end_of_input=self._end_of_input)
        except BaseException as error:
            # what ended the Spark query is reported by exception(); anything else is ours
            if stream.exception() is None:
                self._failure = error
                stream.stop()
        finally:
            self._keeper.stop()
            try:
                self._runtime.pins.release()
            finally:
                try:
                    self._keeper.release()
                    self._loop.close(self.exception())
                finally:
                    self._done.set()

    def _followed(self, stream: StreamingQuery, finite: bool) -> StreamingQuery:
        """Wait for the end of the query, over all starts with other limits; the last one."""
        while True:
            try:
                watch(stream, self._loop, finite=finite)
            except Exception:
                if not self._resizing or self._stopped.is_set():
                    raise
            following = self._again(stream)
            if following is None:
                return stream
            stream = following

    # ---- what users ask

    @property
    def _stream(self) -> StreamingQuery:
        assert self._spark_query is not None, "the query has not been started"
        return self._spark_query

    @property
    def id(self) -> str:
        return str(self._stream.id)

    @property
    def isActive(self) -> bool:
        return not self._done.is_set()

    @property
    def status(self) -> Json:
        return dict(self._stream.status)

    @property
    def recentProgress(self) -> list[Json]:
        """Spark's progress of recent batches, each with what fluxen has to say under "fluxen"."""
        ours = {entry["batch"]: entry for entry in self.epochs if entry["batch"] is not None}
        reported = [*self._reported, *map(dict, self._stream.recentProgress)]
        return [{**entry, "fluxen": ours.get(entry["batchId"], {})} for entry in reported]

    @property
    def lastProgress(self) -> Json | None:
        """Spark's last progress, with the newest epoch's rows, bytes, times and watermarks under "fluxen"."""
        last = self._stream.lastProgress
        return None if last is None else {**dict(last), "fluxen": self._loop.progress.last}

    @property
    def epochs(self) -> list[Json]:
        """What fluxen reported of recent epochs, flushes included."""
        return self._loop.progress.entries

    @property
    def epoch(self) -> Json:
        """The last committed epoch: routing table, sites, bytes and rows per partition group, watermark."""
        epoch = self._loop.epoch  # immutable: a batch under way will put another one in its place
        whole, seen = epoch.to_json(), shown(epoch, self._loop.stages)
        stages = [{**stored, **stage} for stored, stage in zip(whole["stages"], seen["stages"])]
        return {**whole, **seen, "stages": stages or whole["stages"]}

    @property
    def events(self) -> list[Json]:
        """Every adaptation so far, refusals included."""
        return self._loop.log.events()

    @property
    def memory_per_site(self) -> list[Memory | None]:
        """Bytes of state that a site may hold in memory, stage by stage; None where there is no limit."""
        return [adaptation.memory for adaptation in self._loop.adaptations]

    @property
    def predictions(self) -> list[Json]:
        """What `fx.Auto()` promised of its last actions, in seconds a batch, and what was found, stage by stage."""
        return [
            {"stage": number, **shown}
            for number, adaptation in enumerate(self._loop.adaptations)
            for shown in adaptation.manager.policy.predictions
        ]

    def dashboard(self, *, host: str = "127.0.0.1", port: int | None = None, token: str | None = None) -> Shown:
        """Show this query in a browser, live, and its metrics to Prometheus: gives the address.

        Runs of one process share a page. Beyond this machine (`host="0.0.0.0"`) every request needs the token that is
        part of the address. The page stays when the query ends, until `stop()` or the end of the process.
        """
        return show(self._loop.store, self.name or "", host=host, port=port, token=token)

    def plot(self) -> Any:
        """Rows, time by phase, balance and state over time with every adaptation, as a matplotlib figure."""
        self._loop.statistics.flush()
        return timeline(self._source)

    @property
    def _source(self) -> Source:
        return Source(self._loop.store, self.name or "")

    def __repr__(self) -> str:
        return f"<Run {text(self._source)}>"

    def _repr_html_(self) -> str:
        return table(self._source)

    def _ipython_display_(self) -> None:
        keep_showing(self._source, lambda: self.isActive)

    def rescale(self, sites: int) -> None:
        """Run on another number of sites, from the batch after the next commit on; no restart.

        Moves that are under way end first. The newest request counts, also after a restart.
        """
        if not self.isActive:
            raise ConfigError(f"the query has ended; start it again with adapt(sites={sites})")
        self._loop.rescale(sites)

    def cleanup(self) -> None:
        """Emit what spilled generations still owe, now, between two batches; does nothing if they owe nothing."""
        self._await_commit()
        if self.isActive:
            self._loop.cleanup()

    def _await_commit(self) -> None:
        """Wait for the batch under way, if there is one."""
        planned = planned_batch(self._loop.store)
        while self.isActive and self._loop.epoch.batch < planned:  # a batch under way has its epoch's number already
            self._done.wait(0.05)

    def exception(self) -> BaseException | None:
        """What ended the query, as a FluxenError where fluxen raised it; None while it runs or after a good end."""
        error = self._failure
        if error is None and not self._resizing:  # a stream that makes way for another one may end with an error
            error = self._stream.exception()
        return None if error is None else (_ours(str(error)) or error)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for the end and raise what caused it; with a timeout, whether the query has ended."""
        ended = self._done.wait(timeout)
        if ended:
            error = self.exception()
            if error is not None:
                raise error
        return None if timeout is None else ended

    def processAllAvailable(self) -> None:
        """Wait until all rows that are there now have been processed; for tests."""
        while True:
            stream = self._stream
            try:
                stream.processAllAvailable()
            except Exception as error:
                if not self._replaced(stream):
                    raise (_ours(str(error)) or error) from None
            if not self._replaced(stream):
                return
            self._done.wait(0.05)

    @property
    def _resizing(self) -> bool:
        """Whether the stream ends only to go on with other limits."""
        return self._sizing is not None and self._sizing.due is not None

    def _replaced(self, stream: StreamingQuery) -> bool:
        """Whether another stream goes on, or will, where this one has ended."""
        with self._switching:
            return self.isActive and not self._stopped.is_set() and (self._resizing or stream is not self._stream)

    def stop(self) -> None:
        """Stop after the running batch's last committed epoch; a later start continues there."""
        with self._switching:
            self._stopped.set()
            self._stream.stop()
        self._done.wait(60)

    def finish(self) -> None:
        """Stop when the batch under way is committed, so that a later start has nothing to repeat."""
        self._stopped.set()
        self._await_commit()
        self.stop()


def _ours(text: str) -> FluxenError | None:
    """The FluxenError whose text Spark wrapped."""
    for kind, message in reversed(_ERROR.findall(text)):
        found = getattr(errors, kind, None)
        if isinstance(found, type) and issubclass(found, FluxenError):
            return found(message.strip())
    return None
