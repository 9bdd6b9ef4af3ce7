"""A query in one process, without Java: the engine's own loop over Arrow tables and numpy routing.

It serves tests and notebooks: thousands of histories in seconds. A batch is a list of Arrow tables, and a restart is a
new `LocalEngine` on the same directory; `fluxen.testing.faults` has a store that crashes at any file operation.

>>> import tempfile
>>> from fluxen.local.stages import join
>>> stage = join({"a": pa.schema([("k", pa.int64())]), "b": pa.schema([("k", pa.int64())])}, on="k")
>>> engine = LocalEngine([stage], tempfile.mkdtemp(), sites=2, partitions=8)
>>> rows = pa.table({"k": [1, 2]})
>>> engine.step(0, [rows, rows.slice(0, 1)]).to_pylist()
[{'k': 1}]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fluxen.control.advance import NOTHING_SEEN, Seen
from fluxen.control.memory.rotation import Memory
from fluxen.control.moves.rerouting import with_routing
from fluxen.control.plans.optimizer import Optimizer
from fluxen.control.plans.replanning import MoveProtocol
from fluxen.control.stage import Feed, Stage
from fluxen.engine.adapting import adaptations
from fluxen.engine.loop import Clocks, Loop, Settings
from fluxen.engine.options import AdaptOptions
from fluxen.engine.runtime import EpochTask, Evaluation
from fluxen.local.dealing import dealt
from fluxen.operators.base import Input
from fluxen.partitioning import Partitioner
from fluxen.policies import Policy, Static
from fluxen.site.context import SiteContext, SkewBuffer
from fluxen.site.shares import receives
from fluxen.site.task import run_site
from fluxen.state.epoch import Epoch, EpochLog, StageState
from fluxen.state.routing import Routing
from fluxen.state.sorted_run import MAX_MERGED_BYTES
from fluxen.state.store import Store

__all__ = ["LocalEngine", "LocalStage"]

Reroute = Callable[[int, Routing], Routing]
Change = Callable[[int, StageState, int], StageState]


@dataclass(frozen=True, kw_only=True)
class LocalStage:
    """A stage and how rows of Arrow tables become its inputs."""

    stage: Stage
    encode: Callable[[int, pa.Table], Input]
    """(input number, rows) -> rows with hashes and times"""
    inputs: tuple[pa.Schema, ...]
    schema: pa.Schema
    """of the results"""
    times: tuple[str | None, ...]
    """per input: its event-time column"""

    def fed(self, *by: int | None) -> LocalStage:
        """The stage with inputs that are other stages' results, by number; None for a source."""
        feeds = (Feed() if number is None else Feed(stage=number, time=time) for number, time in zip(by, self.times))
        return replace(self, stage=replace(self.stage, feeds=tuple(feeds)))


def chained(stages: Sequence[LocalStage]) -> list[LocalStage]:
    """The stages with each one that does not say what feeds it fed by the one before."""
    return [stage if number == 0 or stage.stage.feeds else stage.fed(number - 1) for number, stage in enumerate(stages)]


class LocalRuntime:
    """Runs every site in this process, one after the other."""

    def __init__(self, stages: Sequence[LocalStage], sink: Callable[[int, pa.Table], None] | None) -> None:
        self.stages, self.sink = stages, sink
        self.merge_limits: Sequence[int] = (MAX_MERGED_BYTES,)
        """per site; the last one counts for all further sites"""
        self.repeat = 1
        """how often sites run: the last time counts"""
        self.latest: Seen = NOTHING_SEEN
        self.results: list[pa.Table] = []
        """of the epochs since somebody took them"""
        self._attempt = 0

    def evaluate(self, task: EpochTask[Sequence[pa.Table]]) -> Evaluation:
        for _ in range(self.repeat):
            results = self._evaluate(task)
        if self.sink is not None:
            self.sink(task.number, results)
        self.results.append(results)
        return Evaluation(finish=lambda stage: None)

    def delivering(self, epoch: int, sites: int) -> bool:
        return False

    def seen(self, rows: Sequence[pa.Table]) -> Seen:
        return self.latest

    def next_attempt(self) -> str:
        self._attempt += 1
        return f"{self._attempt:x}"

    def _evaluate(self, task: EpochTask[Sequence[pa.Table]]) -> pa.Table:
        sources = iter(task.rows or ())
        results: list[pa.Table] = []
        for stage, context in zip(self.stages, task.contexts):
            encoded = []
            for number, (feed, schema) in enumerate(zip(stage.stage.inputs, stage.inputs)):
                given = next(sources, None) if feed.stage is None else results[feed.stage]
                encoded.append(stage.encode(number, schema.empty_table() if given is None else given))
            encoded = dealt(encoded, context.before.routing)
            parts = [
                table
                for site in range(context.before.routing.sites)
                for table in run_site(
                    self._at(context, site), _share(encoded, context.before, site), self.next_attempt()
                )
            ]
            results.append(pa.concat_tables([stage.schema.empty_table(), *(part.cast(stage.schema) for part in parts)]))
        return results[-1]

    def _at(self, context: SiteContext, site: int) -> SiteContext:
        return replace(context, merge_limit=self.merge_limits[min(site, len(self.merge_limits) - 1)])


def _share(encoded: list[Input], before: StageState, site: int) -> Callable[[], tuple[int, list[Input]]]:
    """What Spark's shuffle would bring to one site."""
    return lambda: (site, [rows.take(receives(before, site, rows.h)) for rows in encoded])


class LocalEngine:
    """One query on one directory, stepped by hand."""

    def __init__(
        self,
        stages: Sequence[LocalStage],
        store: Store | str,
        *,
        sites: int = 2,
        partitions: int = 16,
        sink: Callable[[int, pa.Table], None] | None = None,
        buffer: SkewBuffer | None = None,
        clock: Callable[[], float] = time.perf_counter,
        memory: Memory | None = None,
        policy: Callable[[], Policy] = Static,
        partitioner: Partitioner | None = None,
        piece_bytes: int | None = None,
        merge_limit: int | Sequence[int] = MAX_MERGED_BYTES,
        guarded: bool = True,
        move_protocol: MoveProtocol = "auto",
        replan: bool | Optimizer | None = None,
        own: Mapping[int, Mapping[str, Any]] | None = None,
        wall: Callable[[], float] = time.time,
        name: str = "",
    ) -> None:
        """`merge_limit`: one for all sites, or one for each. `guarded` as in `fluxen.control.keys.repartition`. `own`
        are options of single stages, as `stages` in `Query.adapt`."""
        self.stages = chained(stages)
        self.store = Store(store) if isinstance(store, str) else store
        self.runtime = LocalRuntime(self.stages, sink)
        self.runtime.merge_limits = [merge_limit] if isinstance(merge_limit, int) else list(merge_limit)
        self._now = 0.0
        plain = [stage.stage for stage in self.stages]
        options = AdaptOptions(
            sites=sites,
            partitions=partitions,
            policy=policy(),
            partitioner=partitioner,
            memory_per_site=memory,
            move_protocol=move_protocol,
            replan=replan,
            stages=own,
        )
        decided = adaptations(plain, options, remote=not self.store.shared, guarded=guarded)
        clocks = Clocks(wall=wall, elapsed=lambda: self._now, site=clock, policies=lambda epoch: float(epoch.number))
        settings = Settings(
            name=name,
            partitions=partitions,
            sites=sites,
            track_heavy=True,
            piece_bytes=piece_bytes,
            frugal=piece_bytes is not None,
            buffer=buffer,
            clocks=clocks,
        )
        if own is not None:
            each = options.by_stage([stage.operator for stage in plain])
            settings = replace(settings, stages=tuple(replace(settings, buffer=one.buffer or buffer) for one in each))
        self.loop = Loop(plain, self.store, self.runtime, decided, settings)
        self.loop.identify()
        self.loop.open()
        self._taken()

    @property
    def epoch(self) -> Epoch:
        return self.loop.epoch

    @epoch.setter
    def epoch(self, epoch: Epoch) -> None:
        self.loop.epoch = epoch

    @property
    def log(self) -> EpochLog:
        return self.loop.log

    def step(
        self,
        batch: int,
        inputs: Sequence[pa.Table],
        *,
        reroute: Reroute | None = None,
        change: Change | None = None,
        repeat: int = 1,
        seen: Sequence[int | None] = (),
        elapsed: float = 0.0,
    ) -> pa.Table:
        """Process one batch: a table for each input that is a source.

        `reroute(stage, routing)` gives the next epoch's routing, `change(stage, state, epoch)` any other change of a
        stage's state, `repeat` runs sites again, `seen` are the first stage's latest event times where filters hid
        rows, `elapsed` the seconds since the last batch.
        """
        self._now += elapsed
        self.runtime.repeat = repeat
        self.runtime.latest = {(0, side): latest for side, latest in enumerate(seen)}
        self.loop.amend = lambda epoch: _amended(epoch, reroute, change)
        try:
            self.loop.batch(list(inputs), batch)
        finally:
            self.runtime.repeat = 1
            self.loop.amend = lambda epoch: epoch
        return self._taken()

    def flush(self, *, everything: bool = False, elapsed: float = 0.0) -> pa.Table:
        """An epoch without rows; with `everything`, as many as it takes until no stage holds or owes anything."""
        self._now += elapsed
        if everything:
            self.loop.drain(end_of_input=True)
        else:
            self.loop.flush()
        return self._taken()

    def cleanup(self) -> pa.Table:
        """An epoch without rows that emits what generations on disk owe."""
        self.loop.flush(cleanup=True)
        return self._taken()

    def flush_due(self) -> bool:
        return self.loop.flush_due()

    def close(self) -> None:
        """The end of the run: its last statistics are written."""
        self.loop.close()

    def _taken(self) -> pa.Table:
        """The results since the last call."""
        results, self.runtime.results = self.runtime.results, []
        return pa.concat_tables([self.stages[-1].schema.empty_table(), *results])


def _amended(epoch: Epoch, reroute: Reroute | None, change: Change | None) -> Epoch:
    if reroute is not None:
        moved = tuple(with_routing(state, reroute(at, state.routing)) for at, state in enumerate(epoch.stages))
        epoch = replace(epoch, stages=moved)
    if change is not None:
        epoch = replace(epoch, stages=tuple(change(at, s, epoch.number) for at, s in enumerate(epoch.stages)))
    return epoch
