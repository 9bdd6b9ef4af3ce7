"""The epoch loop: restart, flush, evaluate, advance, adapt, commit.

It runs wherever stages run: a `Runtime` only evaluates one epoch's stages. What an epoch becomes is decided in
`fluxen.control`, without I/O and without a clock; files and clocks are here. Nothing adapts in the middle of a batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from fluxen.arrays import MAX_TIME, Json
from fluxen.control.adaptation import Adaptation
from fluxen.control.advance import (
    NOTHING_SEEN,
    advance,
    arrival,
    combining_pays,
    expected,
    first_epoch,
    flush_due,
    idle_due,
    rested,
)
from fluxen.control.memory.pacing import budgets
from fluxen.control.memory.spilling import cleaning_up, owes
from fluxen.control.stage import Stage
from fluxen.engine.listeners import Teller
from fluxen.engine.progress import Progress
from fluxen.engine.runtime import EpochTask, Evaluation, Runtime
from fluxen.engine.statistics import Recorder
from fluxen.errors import CheckpointError
from fluxen.policies.base import Rescale, Suggestion
from fluxen.site.context import SiteContext, SkewBuffer
from fluxen.state.claim import Claim
from fluxen.state.epoch import Epoch, EpochLog
from fluxen.state.record import SiteRecord, missing_sites, read_records
from fluxen.state.routing import Routing
from fluxen.state.sorted_run import MAX_MERGED_BYTES
from fluxen.state.store import Store

__all__ = ["Clocks", "Loop", "Settings"]

SWEEP_EVERY = 100
"""Epochs between two searches for files that failed attempts left behind."""
BETWEEN = 0.2
"""Seconds between two batches that are Spark's own work and no pause."""
_ASKED = "asked for by rescale()"
_WAITED = "asked for at the start, when the sink had part of an epoch"
Rows = TypeVar("Rows")


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """Where time comes from."""

    wall: Callable[[], float] = time.time
    """of rows without event time"""
    elapsed: Callable[[], float] = time.monotonic
    """how long inputs have been silent"""
    site: Callable[[], float] = time.perf_counter
    """how long sites work"""
    policies: Callable[[Epoch], float] = lambda _: time.time()
    """what policies count"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a query runs, beyond what its adaptations decide."""

    name: str = ""
    partitions: int
    sites: int
    """of a new query"""
    rescale_at_start: bool = False
    """whether a restart goes on with `sites`, or with as many as there were"""
    placement: tuple[float, ...] | None = None
    token: str = ""
    """of this run: what attempts are named after"""
    track_heavy: bool = False
    recency: bool = False
    """rank groups by recent results instead of all of the active generation"""
    merge_limit: int = MAX_MERGED_BYTES
    piece_bytes: int | None = None
    frugal: bool = False
    buffer: SkewBuffer | None = None
    clocks: Clocks = field(default_factory=Clocks)
    stages: tuple[Settings, ...] = ()
    """of each stage, where they differ"""

    def at(self, stage: int) -> Settings:
        return self.stages[stage] if self.stages else self


class Loop(Generic[Rows]):
    """One query on one checkpoint."""

    epoch: Epoch
    """the last one committed"""

    def __init__(
        self,
        stages: Sequence[Stage],
        store: Store,
        runtime: Runtime[Rows],
        adaptations: Sequence[Adaptation],
        settings: Settings,
    ) -> None:
        self.stages, self.store, self.runtime, self.settings = list(stages), store, runtime, settings
        self.adaptations = list(adaptations)
        self.log = EpochLog(store)
        self.progress = Progress(self.stages)
        self.statistics = Recorder(store, self.stages, self.adaptations, settings.name)
        self.teller = Teller(name=settings.name, checkpoint=store.root)
        self.lock = threading.RLock()
        self.amend: Callable[[Epoch], Epoch] = lambda epoch: epoch
        """the last word on an epoch before it is committed; tests decide things here"""
        self._asking = threading.Lock()
        self._rescale: Rescale | None = None  # asked for since the last epoch was adapted
        self._resumed: int | None = None
        self._began = settings.clocks.elapsed()
        self._ended: float | None = None

    # ---- start

    def identify(self, claim: Claim | None = None) -> str:
        """Make sure that the checkpoint is this query's; gives the checkpoint's own id."""
        self.log.claim = claim
        feeds = [[[feed.stage, feed.time] for feed in stage.feeds] for stage in self.stages]
        identity: Json = {
            "stages": [stage.operator.identity() for stage in self.stages],
            "partitions": self.settings.partitions,
            **({"feeds": feeds} if any(feeds) else {}),
        }
        self.log.identify(identity)
        self.teller.id = self.log.unique_id()
        return self.teller.id

    def open(self) -> None:
        """Continue where the checkpoint ends; a flush that was interrupted is finished first."""
        self.teller.started()
        found = self.log.latest() or self._first()
        for adaptation, snapshot in zip(self.adaptations, found.control.get("stages", [])):
            adaptation.restore(snapshot)
        self._resumed = found.number + 1 if self.log.begun(found.number + 1) else None
        self.log.sweep(found.number)
        asked = self.log.asked()
        partly = self.runtime.delivering(found.number + 1, found.stages[-1].routing.sites)
        other = any(stage.routing.sites != self.settings.sites for stage in found.stages)
        rescaled = self.settings.rescale_at_start and other
        self.epoch = self._rescaled_at_start(found) if rescaled and not partly else found
        if rescaled and partly:
            self._rescale = Rescale(sites=self.settings.sites, why=_WAITED)
        elif rescaled:
            for adaptation in self.adaptations:
                adaptation.forget_rescale()
        elif asked is not None:
            self._rescale = Rescale(sites=asked, why=_ASKED)
        intent = self.log.intent(self.epoch.number + 1)
        if intent is not None:
            self.flush(ended=intent["ended"], cleanup=intent.get("cleanup", False))

    def _first(self) -> Epoch:
        settings = self.settings
        even = Routing.even(partitions=settings.partitions, sites=settings.sites)
        routings = []
        for number, adaptation in enumerate(self.adaptations):
            shares = settings.at(number).placement
            routings.append(adaptation.first(even if shares is None else even.shared(shares)))
        return first_epoch(self.stages, routings)

    def _rescaled_at_start(self, epoch: Epoch) -> Epoch:
        """A restart with another number of sites: a new table, made as while running, and the same state."""
        stages = tuple(
            stage if stage.routing.sites == self.settings.sites else adaptation.resumed(stage, self.settings.sites)
            for adaptation, stage in zip(self.adaptations, epoch.stages)
        )
        return replace(epoch, stages=stages)

    def close(self, error: BaseException | None = None) -> None:
        """The run has ended: tell those who listen, and write the statistics that wait."""
        self.statistics.close(error)
        self.teller.ended(error)

    # ---- epochs

    def batch(self, rows: Rows, batch: int) -> bool:
        """Process one batch of the sources; False if it was committed before."""
        with self.lock:
            if batch <= self.epoch.batch:
                return False  # committed before a crash that came between our commit and the source's
            if batch > self.epoch.batch + 1:
                raise CheckpointError(
                    f"Spark goes on with batch {batch}, but the newest epoch of {self.store.root} ends with batch "
                    f"{self.epoch.batch}: epoch files are missing; restore them from a copy of the checkpoint, or "
                    "start with a new checkpoint location"
                )
            before = [stage.watermarks for stage in self.epoch.stages]
            ran = self._run(rows, batch, self.epoch)
            # rows that a filter has hidden may have closed windows although no site ran
            if not ran and [stage.watermarks for stage in self.epoch.stages] != before and self.flush_due():
                self.flush()
            return True

    def flush(self, *, ended: int = 0, cleanup: bool = False) -> None:
        """An epoch without rows: emit what the watermark closed, and all that the first `ended` stages still hold.

        With `cleanup`, also what generations on disk owe.
        """
        with self.lock:
            self.log.intend(self.epoch.number + 1, {"ended": ended, "cleanup": cleanup})
            before = cleaning_up(self.epoch) if cleanup else self.epoch
            closing = (
                replace(stage, watermarks=(MAX_TIME,) * len(stage.watermarks)) for stage in before.stages[:ended]
            )
            self._run(None, before.batch, replace(before, stages=(*closing, *before.stages[ended:])))

    def drain(self, *, end_of_input: bool = False) -> None:
        """Process rows that wait, emit closed windows and what generations on disk owe, until there is nothing left.

        At the end of the input stages end one after the other: each one's last results are the input of later ones.
        """
        for ended in range(len(self.stages) + 1 if end_of_input else 1):
            if ended:
                self.flush(ended=ended)
            while self.flush_due():
                self.flush()
            if owes(self.epoch):
                self.flush(cleanup=True)
            while self.flush_due():  # what was owed may have held a later stage's windows open
                self.flush()

    def cleanup(self) -> None:
        """Emit what generations on disk owe, if they owe anything."""
        with self.lock:
            if owes(self.epoch):
                self.flush(cleanup=True)

    def flush_due(self) -> bool:
        """Whether a flush would process rows that wait or emit closed windows."""
        return flush_due(self.epoch, self.stages)

    def due(self) -> bool:
        """Whether an epoch without rows would do something, the release of idle inputs included."""
        waited = self.settings.clocks.elapsed() - self._began
        return self.flush_due() or idle_due(self.epoch, self.stages, waited)

    def _run(self, rows: Rows | None, batch: int, before: Epoch) -> bool:
        """Process and commit one epoch; whether there was anything for the sites to do."""
        number, clocks = before.number + 1, self.settings.clocks
        # silence is counted from batch to batch: rows that come while one runs are in the next
        began = clocks.elapsed()
        elapsed = began - self._began
        started = time.perf_counter()
        moment = arrival(before, self.stages, clocks.wall())
        if moment is not None:
            moment = self.log.moment(number, moment)
        evaluation = self.runtime.evaluate(self._task(rows, before, moment))
        try:
            records = self._records(evaluation, before, whole=rows is None)
        finally:
            evaluation.close()
        evaluated = time.perf_counter()
        seen = NOTHING_SEEN if rows is None else self.runtime.seen(rows)
        events: list[Json] = []
        if records:
            epoch = advance(before, self.stages, records, batch=batch, seen=seen, elapsed=elapsed, moment=moment)
            waited = 0.0 if self._ended is None else max(0.0, began - self._ended - BETWEEN)
            epoch, events = self._adapted(epoch, records, sum(evaluation.seconds.values()), waited)
        else:  # not one row in the whole batch
            epoch = rested(before, self.stages, batch=batch, seen=seen, elapsed=elapsed)
        self._commit(self.amend(epoch), adapted=bool(records))
        self._began, self._ended = began, clocks.elapsed()
        phases = {**evaluation.seconds, "commit": time.perf_counter() - evaluated}
        lasted = time.perf_counter() - started
        entry = self.progress.note(self.epoch, None if rows is None else batch, phases, lasted)
        self.statistics.note(self.epoch, entry, lasted, events)
        self.teller.committed(entry, events, lasted)
        return bool(records)

    def _task(self, rows: Rows | None, before: Epoch, moment: int | None) -> EpochTask[Rows]:
        number = before.number + 1
        contexts = [
            SiteContext(
                store=self.store,
                epoch=number,
                stage=at,
                operator=stage.operator,
                before=state,
                token=settings.token,
                track_heavy=settings.track_heavy or self.adaptations[at].asks_for_keys,
                recency=settings.recency,
                merge_limit=settings.merge_limit,
                piece_bytes=settings.piece_bytes,
                frugal=settings.frugal,
                buffer=settings.buffer,
                moment=moment if stage.on_arrival else None,
                budgets=None if rows is None else budgets(before, at),
                follow=number == self._resumed,
                clock=settings.clocks.site,
            )
            for at, (stage, state) in enumerate(zip(self.stages, before.stages))
            for settings in (self.settings.at(at),)
        ]
        combine = [combining_pays(before, at) for at in range(len(self.stages))]
        return EpochTask(number=number, rows=rows, contexts=contexts, combine=combine)

    def _records(self, evaluation: Evaluation, before: Epoch, *, whole: bool) -> Mapping[tuple[int, int], SiteRecord]:
        """One record of every site, or none at all if no site had anything to do and not the `whole` was asked for."""
        number, token = before.number + 1, self.settings.token
        records = read_records(self.store, number, token)
        asked = len(self.stages)
        while absent := missing_sites(records, expected(before)):
            # the sink read only part of the results, or Spark saw that a filter lets none of them through: the state
            # needs all of them, so the last stage that lacks some runs again, and with it those that feed it
            latest = max(stage for stage, _ in absent)
            if latest >= asked:
                if records or whole:
                    raise CheckpointError(f"epoch {number} is incomplete: no record of (stage, site) {absent}")
                break
            evaluation.finish(latest)
            asked, records = latest, read_records(self.store, number, token)
        return records

    def _adapted(
        self, epoch: Epoch, records: Mapping[tuple[int, int], SiteRecord], seconds: float, waited: float
    ) -> tuple[Epoch, list[Json]]:
        """Decide what the next epoch does differently, and note it; the epoch with it, and the events."""
        now = self.settings.clocks.policies(epoch)
        with self._asking:
            requests: list[Suggestion] = [] if self._rescale is None else [self._rescale]
            self._rescale = None
        stages, events = [], list[Json]()
        for number, (adaptation, state) in enumerate(zip(self.adaptations, epoch.stages)):
            mine = [records[number, site] for site in range(state.routing.sites)]
            stages.append(
                adaptation.after(state, mine, now, requests, seconds=seconds, waited=waited, epoch=epoch.number)
            )
            events += [{"epoch": epoch.number, "stage": number, **event} for event in adaptation.events()]
        self.log.note(epoch.number, events)
        control = {"stages": [adaptation.snapshot() for adaptation in self.adaptations]}
        return replace(epoch, stages=tuple(stages), control=control), events

    def _commit(self, epoch: Epoch, *, adapted: bool) -> None:
        self.log.commit(epoch)
        self.epoch = epoch
        with self._asking:
            if adapted and self._rescale is None:
                self.log.ask(None)  # the epoch has it
        self.log.collect(epoch.number)
        if epoch.number % SWEEP_EVERY == 0:
            self.log.sweep(epoch.number)

    # ---- what users ask

    def rescale(self, sites: int) -> None:
        """Run on another number of sites once moves under way have ended; the newest request counts."""
        Routing.even(partitions=self.settings.partitions, sites=sites)
        with self._asking:
            self.log.ask(sites)
            self._rescale = Rescale(sites=sites, why=_ASKED)


def event_time(epoch: Epoch) -> float:
    """The latest watermark in seconds: what policies count in replays."""
    return max((w for stage in epoch.stages for w in stage.watermarks if abs(w) < MAX_TIME), default=0) / 1e6
