"""A running query: Spark's micro-batches on one side, epochs on the other.

For each micro-batch the coordinator builds the stages' DataFrames from the last committed epoch, hands the results to
the sink, makes sure every site has left its record, and commits the next epoch. Nothing adapts in the middle of a
batch. What an epoch becomes is decided in `fluxen.control.coordinator`; this module only carries it out.
"""

from __future__ import annotations

import copy
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from fluxen import errors
from fluxen.control.adaptation import Adaptation
from fluxen.control.coordinator import (
    advance,
    arrival,
    combining_pays,
    expected,
    first_epoch,
    flush_due,
    idle_due,
    rested,
)
from fluxen.control.latency import mean_latency
from fluxen.control.optimizer import Optimizer
from fluxen.control.pacing import budgets
from fluxen.control.replanning import Planning
from fluxen.control.spilling import cleaning_up, owes
from fluxen.errors import CheckpointError, ConfigError, FluxenError
from fluxen.operators.job import SiteJob
from fluxen.operators.stateful import Stateful
from fluxen.operators.wire import IN
from fluxen.policies.base import Rescale, Suggestion
from fluxen.spark import allocator
from fluxen.spark.checks import check_sites
from fluxen.spark.query import Query
from fluxen.spark.sinks import Sink, SparkSink
from fluxen.spark.sources import Watched, latest, watched
from fluxen.spark.split import markers, marking
from fluxen.spark.stage import Pins, run_stage
from fluxen.state import claim as claims
from fluxen.state.claim import Claim
from fluxen.state.epoch import Epoch, EpochLog
from fluxen.state.record import CommitRecord, missing_sites, read_records
from fluxen.state.routing import Routing
from fluxen.typing import MAX_TIME, Json

SWEEP_EVERY = 100
"""Epochs between two searches for files that failed attempts left behind."""
IDLE_SECONDS = 1.0
"""How long a query waits without input before it emits what the watermark has closed."""
_ASKED = "asked for by rescale()"
_ERROR = re.compile(r"fluxen\.errors\.(\w+): (.*)")


class Run:
    """A started query, with the methods of PySpark's StreamingQuery."""

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
        check_sites(query.options, self._sites())
        self._store = query.store(checkpoint)
        self._log = EpochLog(self._store)
        self._stages = [plan.stage for plan in query.plans]
        self._pins = Pins(query.spark)
        self._lock = threading.RLock()
        self._progress: deque[Json] = deque(maxlen=100)
        self._failure: BaseException | None = None
        self._stopped = threading.Event()
        self._ending = threading.Event()
        """from here on the claim is not renewed any more"""
        self._done = threading.Event()
        self._session: SparkSession | None = None
        self._token = uuid.uuid4().hex[:8]
        self._asking = threading.Lock()
        self._rescale: Rescale | None = None  # asked for since the last epoch was adapted
        self._in_batches = False
        self._watched: list[Watched | None] = []
        self._launched = threading.Event()
        self._began = time.monotonic()
        self._markers: dict[tuple[int, int], DataFrame] = {}
        self._marking: dict[int, Column] = {}
        adapt = self._options = query.options.shared_by(len(self._stages))
        self._adaptations = [
            Adaptation(
                policy=copy.deepcopy(adapt.policy),
                partitioner=adapt.partitioner,
                memory=adapt.memory,
                divisible=not isinstance(stage.operator, Stateful),
                operator=stage.operator,
                remote=not self._store.shared,
                planning=Planning(stage.operator, balance=adapt.balance, replan=_replan(adapt.replan)),
            )
            for stage in self._stages
        ]
        self._claim: Claim
        self._epoch: Epoch
        self._resumed: int | None = None
        self._spark_query: StreamingQuery

    # ---- life

    def start(self) -> Run:
        self._claim = self._log.claim = claims.take(self._store)
        self._in_background(self._keep_claim, "claim")  # to begin may mean to repeat a flush, which takes its time
        try:
            self._begin()
        except BaseException:
            self._ending.set()
            self._claim.release()
            raise
        self._in_background(self._watch, "query")
        return self

    def _in_background(self, work: Callable[[], None], what: str) -> None:
        threading.Thread(target=work, name=f"fluxen-{self.name or what}", daemon=True).start()

    def _begin(self) -> None:
        self._log.identify(self._identity())
        if isinstance(self._sink, SparkSink):
            self._sink.checkpoint_id = self._log.unique_id()
        self._epoch = self._log.latest() or self._first()
        for adaptation, snapshot in zip(self._adaptations, self._epoch.control.get("stages", [])):
            adaptation.restore(snapshot)
        self._resumed = self._epoch.number + 1 if self._log.begun(self._epoch.number + 1) else None
        self._log.sweep(self._epoch.number)
        asked, found = self._log.asked(), self._epoch
        self._epoch = self._rescaled_at_start(self._epoch)
        if [stage.routing.sites for stage in found.stages] != [stage.routing.sites for stage in self._epoch.stages]:
            for adaptation in self._adaptations:
                adaptation.forget_rescale()
        elif asked is not None:
            self._rescale = Rescale(sites=asked, why=_ASKED)
        intent = self._log.intent(self._epoch.number + 1)
        if intent is not None:
            self._flush(ended=intent["ended"], cleanup=intent.get("cleanup", False))
        plan = self._query.plans[0]
        given = list(enumerate(zip(self._query.sources, plan.times)))
        self._watched = [watched(source, when, f"fluxen_{number}") for number, (source, when) in given]
        writer = (
            plan.project([source if seen is None else seen.df for (_, (source, _)), seen in zip(given, self._watched)])
            .writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", f"{self._store.root.rstrip('/')}/spark")
        )
        if self.name:
            writer = writer.queryName(self.name)
        if self._trigger:
            writer = writer.trigger(**self._trigger)
        self._spark_query = writer.start()
        self._launched.set()

    def _keep_claim(self) -> None:
        """Renew the claim while the query runs; end the query if another driver has taken it over."""
        while not self._ending.wait(claims.RENEWAL):
            try:
                self._claim.renew()
            except CheckpointError as error:
                if not self._ending.is_set():
                    self._failure = error
                    if self._launched.is_set():  # before that, nothing it does can be committed
                        self._spark_query.stop()
                return
            except (FluxenError, OSError):
                continue  # a filesystem that answers again before the lease is over has done no harm

    def _identity(self) -> Json:
        return {
            "stages": [stage.operator.identity() for stage in self._stages],
            "partitions": self._query.options.partitions,
        }

    def _first(self) -> Epoch:
        options = self._query.options
        routing = Routing.even(partitions=options.partitions, sites=self._sites())
        if options.placement is not None:
            routing = routing.shared(options.placement)
        return first_epoch(self._stages, [adaptation.first(routing) for adaptation in self._adaptations])

    def _sites(self) -> int:
        wanted = self._query.options.sites
        if wanted is not None:
            return wanted
        cores: int = self._query.spark.sparkContext.defaultParallelism
        return min(cores, self._query.options.partitions)

    def _rescaled_at_start(self, epoch: Epoch) -> Epoch:
        """A restart with another number of sites: a new table, made as while running, and the same state."""
        wanted = self._query.options.sites
        if wanted is None:
            return epoch
        stages = tuple(
            stage if stage.routing.sites == wanted else adaptation.resumed(stage, wanted)
            for adaptation, stage in zip(self._adaptations, epoch.stages)
        )
        return replace(epoch, stages=stages)

    def _watch(self) -> None:
        """Wait for the end; meanwhile emit what closed windows owe when input pauses."""
        finite = "availableNow" in self._trigger or "once" in self._trigger
        planned = self._planned()
        idle_since: float | None = None
        try:
            while self._spark_query.isActive:
                if self._spark_query.awaitTermination(0.5):
                    break
                # a batch that Spark planned before the start may have been delivered under the next epoch's number
                idle = not self._spark_query.status["isDataAvailable"] and self._epoch.batch >= planned
                if not idle or not self._due():
                    idle_since = None
                elif idle_since is None:
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > IDLE_SECONDS and not finite:
                    self._flush()
            if self._spark_query.exception() is None and finite and not self._stopped.is_set():
                self._drain()
                if self._end_of_input:
                    for number in range(len(self._stages)):  # each stage's last results are the next one's input
                        self._flush(ended=number + 1)
                        self._drain()
        except BaseException as error:
            # what ended the Spark query is reported by exception(); anything else is ours
            if self._spark_query.exception() is None:
                self._failure = error
                self._spark_query.stop()
        finally:
            self._ending.set()
            try:
                self._pins.release()
            finally:
                try:
                    self._claim.release()
                finally:
                    self._done.set()

    def _drain(self) -> None:
        """Process rows that wait, emit closed windows and what generations on disk owe, until there is nothing left."""
        while flush_due(self._epoch, self._stages):
            self._flush()
        if owes(self._epoch):
            self._flush(cleanup=True)
        while flush_due(self._epoch, self._stages):  # what was owed may have held a later stage's windows open
            self._flush()

    def _due(self) -> bool:
        """Whether an epoch without rows would do something."""
        waited = time.monotonic() - self._began
        return flush_due(self._epoch, self._stages) or idle_due(self._epoch, self._stages, waited)

    def _planned(self) -> int:
        """The newest batch in Spark's own log."""
        return max((int(name) for name in self._store.list("spark/offsets") if name.isdigit()), default=-1)

    # ---- one micro-batch

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        with self._lock:
            if batch <= self._epoch.batch:
                return  # committed before a crash that came between our commit and Spark's
            if batch > self._epoch.batch + 1:
                raise CheckpointError(
                    f"Spark goes on with batch {batch}, but the newest epoch of {self._store.root} ends with batch "
                    f"{self._epoch.batch}: epoch files are missing; restore them from a copy of the checkpoint, or "
                    "start with a new checkpoint location"
                )
            if not self._in_batches:  # PySpark wraps the query's session anew for every batch
                self._prepare_session(rows.sparkSession)
                self._in_batches = True
            before = self._epoch.stages[0].watermarks
            ran = self._run_epoch(rows, batch, self._epoch)
            # rows that a filter has hidden may have closed windows although no site ran
            if not ran and self._epoch.stages[0].watermarks != before and flush_due(self._epoch, self._stages):
                self._flush()

    def _prepare_session(self, spark: SparkSession) -> None:
        # partitions are sites here: nothing may coalesce or split them
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200000")
        spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
        if self._repeatable():
            # a map task that runs again gives the same rows, so nothing is learned from checksums that compare them
            for name in ("enabled", "enableFullRetryOnMismatch"):
                spark.conf.set(f"spark.sql.shuffle.orderIndependentChecksum.{name}", "false")
        if self._query.options.memory is not None:
            allocator.lean(spark.sparkContext)
        self._session = spark
        self._markers.clear()

    def _repeatable(self) -> bool:
        """Whether the rows that come to the only shuffle there is are determined by the sources."""
        plans = [source._jdf.queryExecution().analyzed() for source in self._query.sources]
        return len(self._stages) == 1 and all(plan.deterministic() for plan in plans)

    def _flush(self, *, ended: int = 0, cleanup: bool = False) -> None:
        """An epoch without a Spark batch: emit what the watermark closed, and all that `ended` stages still hold.

        With `cleanup`, also what generations on disk owe.
        """
        with self._lock:
            self._log.intend(self._epoch.number + 1, {"ended": ended, "cleanup": cleanup})
            if self._session is None:
                self._prepare_session(self._query.spark.newSession())
            before = cleaning_up(self._epoch) if cleanup else self._epoch
            closing = (
                replace(stage, watermarks=(MAX_TIME,) * len(stage.watermarks)) for stage in before.stages[:ended]
            )
            before = replace(before, stages=(*closing, *before.stages[ended:]))
            self._run_epoch(None, before.batch, before)

    def _run_epoch(self, rows: DataFrame | None, batch: int, before: Epoch) -> bool:
        """Process and commit one epoch; whether there was anything for the sites to do."""
        number = before.number + 1
        # silence is counted from batch to batch: rows that come while one runs are in the next
        began, elapsed = time.monotonic(), time.monotonic() - self._began
        started = time.perf_counter()
        moment = arrival(before, self._stages, time.time())
        if moment is not None:
            moment = self._log.moment(number, moment)
        results = self._results(rows, before, moment)
        planned = time.perf_counter()
        self._sink(results, number)
        ran = time.perf_counter()
        records = read_records(self._store, number, self._token)
        if missing_sites(records, expected(before)):
            # the sink read only part of the results, or none: the state needs all of them
            results.write.format("noop").mode("overwrite").save()
            records = read_records(self._store, number, self._token)
            absent = missing_sites(records, expected(before))
            if absent and (records or rows is None):
                raise CheckpointError(f"epoch {number} is incomplete: no record of (stage, site) {absent}")
        seen = self._seen(rows)
        if records:
            after = advance(before, self._stages, records, batch=batch, seen=seen, elapsed=elapsed, moment=moment)
            epoch = self._adapted(after, records, ran - started)
        else:  # not one row in the whole batch
            epoch = rested(before, self._stages, batch=batch, seen=seen, elapsed=elapsed)
        self._log.commit(epoch)
        self._epoch, self._began = epoch, began
        with self._asking:
            if records and self._rescale is None:
                self._log.ask(None)  # the epoch has it
        self._log.collect(number)
        if number % SWEEP_EVERY == 0:
            self._log.sweep(number)
        finished = time.perf_counter()
        shown = _shown(epoch)
        lasted = [sum(entry["seconds"].values()) for entry in self._progress] + [finished - started]
        delays = (delay for stage in shown["stages"] for site in stage["sites"] for delay in site["delays"])
        self._progress.append(
            {
                "epoch": number,
                "batch": batch if rows is not None else None,
                "seconds": {
                    "plan": round(planned - started, 4),
                    "run": round(ran - planned, 4),
                    "commit": round(finished - ran, 4),
                },
                "latency_seconds": mean_latency(delays, lasted),
                **shown,
            }
        )
        return bool(records)

    def _seen(self, rows: DataFrame | None) -> list[int | None]:
        """The latest event times of the sources' rows, where filters may have hidden them from the sites."""
        if rows is None or not any(self._watched):
            return []
        self._launched.wait()  # the first batch may be here before Spark has handed over its query
        return latest(self._spark_query, self._query.spark, self._watched)

    def _adapted(self, epoch: Epoch, records: Mapping[tuple[int, int], CommitRecord], seconds: float) -> Epoch:
        """Decide what the next epoch does differently, and note it."""
        now = time.time() if self._query.options.clock == "wall" else self._event_time(epoch)
        with self._asking:
            requests: list[Suggestion] = [] if self._rescale is None else [self._rescale]
            self._rescale = None
        stages, events = [], []
        for number, (adaptation, state) in enumerate(zip(self._adaptations, epoch.stages)):
            mine = [records[number, site] for site in range(state.routing.sites)]
            stages.append(adaptation.after(state, mine, now, requests, seconds=seconds, epoch=epoch.number))
            events += [{"epoch": epoch.number, "stage": number, **event} for event in adaptation.events()]
        self._log.note(epoch.number, events)
        control = {"stages": [adaptation.snapshot() for adaptation in self._adaptations]}
        return replace(epoch, stages=tuple(stages), control=control)

    def _event_time(self, epoch: Epoch) -> float:
        return max((w for stage in epoch.stages for w in stage.watermarks if abs(w) < MAX_TIME), default=0) / 1e6

    def _results(self, rows: DataFrame | None, before: Epoch, moment: int | None) -> DataFrame:
        """The stages' DataFrames, chained: each stage's results are the next one's rows."""
        assert self._session is not None
        frame = rows
        for number, (plan, state) in enumerate(zip(self._query.plans, before.stages)):
            if number > 0:
                assert frame is not None
                frame = plan.project([frame])
            if frame is not None:
                frame = plan.prepare(frame, combining_pays(before, number))
            job = SiteJob(
                store=self._store,
                epoch=before.number + 1,
                stage=number,
                operator=plan.stage.operator,
                before=state,
                token=self._token,
                track_heavy=self._query.options.partitioner is not None,
                recency=getattr(self._query.options.policy, "recency", False),
                merge_limit=self._options.merge_limit,
                piece_bytes=self._options.piece_bytes,
                buffer=self._query.options.buffer,
                moment=moment if plan.stage.on_arrival else None,
                budgets=None if rows is None else budgets(before, number),
                follow=before.number + 1 == self._resumed,
            )
            frame = run_stage(self._marked(frame, number, state.routing.sites), plan.wire, job, plan.schema, self._pins)
        assert frame is not None
        return frame

    def _marked(self, rows: DataFrame | None, stage: int, sites: int) -> DataFrame:
        """A stage's rows with marker rows among them; those alone if this epoch is no batch."""
        assert self._session is not None
        if rows is not None and len(self._query.plans) == 1:
            if sites not in self._marking:
                self._marking = {sites: marking(sites)}
            return rows.withColumn(IN, self._marking[sites])
        # a stage that another one feeds must run even if it is fed nothing; built once, being the same in every batch
        if (stage, sites) not in self._markers:
            self._markers = {key: made for key, made in self._markers.items() if key[0] != stage}
            self._markers[stage, sites] = markers(self._session, sites, self._query.plans[stage].wire_schema)
        alone = self._markers[stage, sites]
        return alone if rows is None else rows.unionAll(alone)

    # ---- what users ask

    @property
    def id(self) -> str:
        return str(self._spark_query.id)

    @property
    def isActive(self) -> bool:
        return not self._done.is_set()

    @property
    def status(self) -> Json:
        return dict(self._spark_query.status)

    @property
    def recentProgress(self) -> list[Json]:
        """Spark's progress of recent batches, each with what fluxen has to say under "fluxen"."""
        ours = {entry["batch"]: entry for entry in self._progress if entry["batch"] is not None}
        return [{**dict(entry), "fluxen": ours.get(entry["batchId"], {})} for entry in self._spark_query.recentProgress]

    @property
    def lastProgress(self) -> Json | None:
        """Spark's last progress, with the newest epoch's rows, bytes, times and watermarks under "fluxen"."""
        last = self._spark_query.lastProgress
        newest = self._progress[-1] if self._progress else {}
        return None if last is None else {**dict(last), "fluxen": newest}

    @property
    def epochs(self) -> list[Json]:
        """What fluxen reported of recent epochs, flushes included."""
        return list(self._progress)

    @property
    def epoch(self) -> Json:
        """The last committed epoch: routing table, sites, bytes and rows per partition group, watermark."""
        epoch = self._epoch  # immutable: a batch under way will put another one in its place
        whole, shown = epoch.to_json(), _shown(epoch)
        stages = [{**stored, **seen} for stored, seen in zip(whole["stages"], shown["stages"])]
        return {**whole, **shown, "stages": stages or whole["stages"]}

    @property
    def events(self) -> list[Json]:
        """Every adaptation so far, refusals included."""
        return self._log.events()

    def rescale(self, sites: int) -> None:
        """Run on another number of sites, from the batch after the next commit on; no restart.

        Moves that are under way end first. The newest request counts, also after a restart.
        """
        Routing.even(partitions=self._query.options.partitions, sites=sites)
        if not self.isActive:
            raise ConfigError(f"the query has ended; start it again with adapt(sites={sites})")
        with self._asking:
            self._log.ask(sites)
            self._rescale = Rescale(sites=sites, why=_ASKED)

    def cleanup(self) -> None:
        """Emit what spilled generations still owe, now, between two batches; does nothing if they owe nothing."""
        planned = self._planned()
        while self.isActive and self._epoch.batch < planned:  # a batch under way has its epoch's number already
            self._done.wait(0.05)
        with self._lock:
            if self.isActive and owes(self._epoch):
                self._flush(cleanup=True)

    def exception(self) -> BaseException | None:
        """What ended the query, as a FluxenError where fluxen raised it; None while it runs or after a good end."""
        if self._failure is not None:
            return _ours(str(self._failure)) or self._failure
        error = self._spark_query.exception()
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
        try:
            self._spark_query.processAllAvailable()
        except Exception as error:
            raise (_ours(str(error)) or error) from None

    def stop(self) -> None:
        """Stop after the running batch's last committed epoch; a later start continues there."""
        self._stopped.set()
        self._spark_query.stop()
        self._done.wait(60)


def _replan(given: bool | Optimizer | None) -> bool | Optimizer:
    return True if given is None else copy.deepcopy(given)


def _ours(text: str) -> FluxenError | None:
    """The FluxenError whose text Spark wrapped."""
    for kind, message in reversed(_ERROR.findall(text)):
        found = getattr(errors, kind, None)
        if isinstance(found, type) and issubclass(found, FluxenError):
            return found(message.strip())
    return None


def _shown(epoch: Epoch) -> Json:
    """An epoch's statistics, summed up for people."""
    stages = epoch.stats.get("stages", [])
    sites = [site for stage in stages for site in stage["sites"]]
    return {
        "stages": [
            {
                "sites": stage["sites"],
                "sides": stage["sides"],
                "watermarks": [None if abs(w) >= MAX_TIME else w for w in state.watermarks],
                "groups": stage["groups"],
            }
            for stage, state in zip(stages, epoch.stages)
        ],
        "rows_in": sum(site["rows_in"] for site in (stages[0]["sites"] if stages else [])),
        "results": sum(site["rows_out"] for site in (stages[-1]["sites"] if stages else [])),
        "results_owed": sum(site["rows_owed"] for site in sites),
        "spilled_bytes": int(sum(state.history.spilled.sum() for state in epoch.stages if state.history is not None)),
        "late": sum(site["late"] for site in sites),
        "state_rows": sum(site["state_rows"] for site in sites),
        "state_bytes": sum(site["state_bytes"] for site in sites),
        "waiting_rows": sum(site["waiting_rows"] for site in sites),
    }
