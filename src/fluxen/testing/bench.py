"""A query without Spark: the engine's coordinator, sites and state in one process, with crashes between any two steps.

It exists for tests: thousands of histories in seconds. Rows are routed by numpy, a batch is a list of Arrow tables, a
crash is an exception raised inside a chosen file operation, and a restart is a new `Bench` on the same directory.

>>> import tempfile
>>> stage = join({"a": pa.schema([("k", pa.int64())]), "b": pa.schema([("k", pa.int64())])}, on="k")
>>> bench = Bench([stage], tempfile.mkdtemp(), sites=2, partitions=8)
>>> rows = pa.table({"k": [1, 2]})
>>> bench.step(0, [rows, rows.slice(0, 1)]).to_pylist()
[{'k': 1}]
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from fluxen.control.adaptation import Adaptation
from fluxen.control.coordinator import Stage, advance, arrival, expected, first_epoch, flush_due
from fluxen.control.pacing import budgets
from fluxen.control.rerouting import with_routing
from fluxen.control.rotation import Memory
from fluxen.control.spilling import cleaning_up
from fluxen.operators.backlog import SkewBuffer
from fluxen.operators.base import Input
from fluxen.operators.job import SiteJob
from fluxen.operators.site import run_site
from fluxen.operators.stateful import Stateful
from fluxen.operators.tracks import receives
from fluxen.partitioning import Partitioner
from fluxen.policies import Policy, Static
from fluxen.state.epoch import Epoch, EpochLog, StageState
from fluxen.state.record import CommitRecord, missing_sites, read_records
from fluxen.state.routing import Routing
from fluxen.state.runs import MAX_MERGED_BYTES
from fluxen.state.store import Store
from fluxen.typing import MAX_TIME, NO_TIME, Ints


class SimulatedCrash(BaseException):
    """The process died here. Not an Exception: nothing may catch it and carry on."""


class FaultyStore(Store):
    """A store whose process dies at the n-th file operation, a write leaving half a file behind."""

    __slots__ = ("countdown",)

    def __init__(self, root: str, countdown: int | None = None) -> None:
        super().__init__(root)
        self.countdown = countdown

    def _tick(self) -> bool:
        if self.countdown is None:
            return False
        self.countdown -= 1
        return self.countdown < 0

    def write(self, name: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        if self._tick():
            whole = data if isinstance(data, bytes) else b"".join(data)
            self._write(name, [whole[: len(whole) // 2]])
            raise SimulatedCrash(f"while writing {name}")
        super().write(name, data)

    def create(self, name: str, data: bytes, via: str | None = None) -> bool:
        made = super().create(name, data, via)
        if self._tick():
            raise SimulatedCrash(f"after creating {name}")
        return made

    def delete(self, name: str) -> None:
        if self._tick():
            raise SimulatedCrash(f"before deleting {name}")
        super().delete(name)


@dataclass(frozen=True, kw_only=True)
class BenchStage:
    """A stage and how rows of Arrow tables become its inputs."""

    stage: Stage
    encode: Callable[[int, pa.Table], Input]
    """(input number, rows) -> rows with hashes and times"""
    inputs: tuple[pa.Schema, ...]
    schema: pa.Schema
    """of the results"""


class Bench:
    """One query on one directory, stepped by hand."""

    def __init__(
        self,
        stages: Sequence[BenchStage],
        directory: str,
        *,
        sites: int = 2,
        partitions: int = 16,
        crash_after: int | None = None,
        sink: Callable[[int, pa.Table], None] | None = None,
        buffer: SkewBuffer | None = None,
        clock: Callable[[], float] = time.perf_counter,
        memory: Memory | None = None,
        policy: Callable[[], Policy] = Static,
        partitioner: Partitioner | None = None,
        piece_bytes: int | None = None,
        merge_limit: int | Sequence[int] = MAX_MERGED_BYTES,
        guarded: bool = True,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`merge_limit`: one for all sites, or one for each; the last one counts for all further sites. `guarded` as in
        `fluxen.control.repartition`."""
        self.stages = list(stages)
        self.store = FaultyStore(directory, crash_after)
        self.log = EpochLog(self.store)
        self.sink = sink
        self.buffer, self.clock, self.wall = buffer, clock, wall
        self.piece_bytes = piece_bytes
        self.merge_limits = [merge_limit] if isinstance(merge_limit, int) else list(merge_limit)
        plain = [stage.stage for stage in stages]
        self.log.identify({"stages": [stage.operator.identity() for stage in plain], "partitions": partitions})
        routing = Routing.even(partitions=partitions, sites=sites)
        self.epoch: Epoch = self.log.latest() or first_epoch(plain, [routing] * len(plain))
        self._adaptations = [
            Adaptation(
                policy=policy(),
                partitioner=partitioner,
                guarded=guarded,
                memory=memory,
                divisible=not isinstance(stage.operator, Stateful),
                operator=stage.operator,
                remote=not self.store.shared,
            )
            for stage in plain
        ]
        for adaptation, snapshot in zip(self._adaptations, self.epoch.control.get("stages", [])):
            adaptation.restore(snapshot)
        self._resumed = self.epoch.number + 1 if self.log.begun(self.epoch.number + 1) else None
        self.log.sweep(self.epoch.number)
        self._attempt = 0
        intent = self.log.intent(self.epoch.number + 1)
        if intent is not None:
            self._flush(intent["ended"], cleanup=intent.get("cleanup", False))

    def step(
        self,
        batch: int,
        inputs: Sequence[pa.Table],
        *,
        reroute: Callable[[int, Routing], Routing] | None = None,
        change: Callable[[int, StageState, int], StageState] | None = None,
        repeat: int = 1,
        seen: Sequence[int | None] = (),
        elapsed: float = 0.0,
    ) -> pa.Table:
        """Process one batch; `reroute(stage, routing)` gives the next epoch's routing, `change(stage, state, epoch)`
        any other change of a stage's state (`fluxen.control.spilling`, `fluxen.control.balance`), `repeat` runs sites
        again, `seen` are the sources' latest event times where filters hid rows, `elapsed` the seconds since the last
        batch."""
        if batch <= self.epoch.batch:
            return self.stages[-1].schema.empty_table()  # committed before the crash
        return self._run(self.epoch, inputs, batch, reroute, change, repeat, seen, elapsed)

    def flush(self, *, everything: bool = False, elapsed: float = 0.0) -> pa.Table:
        """An epoch without rows, as at the end of a finite query; with `everything`, one for each stage that ends.

        A stage ends when nothing waits for it any more, so there may be more of them when rows are buffered.
        """
        if not everything:
            return self._flush(0, elapsed=elapsed)
        parts = []
        for number in range(len(self.stages)):
            while self.flush_due():
                parts.append(self._flush(0))
            parts.append(self._flush(number + 1))
        return pa.concat_tables(parts)

    def cleanup(self) -> pa.Table:
        """An epoch without rows that emits what generations on disk owe."""
        return self._flush(0, cleanup=True)

    def _flush(self, ended: int, *, cleanup: bool = False, elapsed: float = 0.0) -> pa.Table:
        self.log.intend(self.epoch.number + 1, {"ended": ended, "cleanup": cleanup})
        before = cleaning_up(self.epoch) if cleanup else self.epoch
        closing = (replace(s, watermarks=(MAX_TIME,) * len(s.watermarks)) for s in before.stages[:ended])
        before = replace(before, stages=(*closing, *before.stages[ended:]))
        return self._run(before, None, before.batch, None, None, 1, (), elapsed)

    def flush_due(self) -> bool:
        return flush_due(self.epoch, [stage.stage for stage in self.stages])

    def _run(
        self,
        before: Epoch,
        inputs: Sequence[pa.Table] | None,
        batch: int,
        reroute: Callable[[int, Routing], Routing] | None,
        change: Callable[[int, StageState, int], StageState] | None,
        repeat: int,
        seen: Sequence[int | None],
        elapsed: float,
    ) -> pa.Table:
        number = before.number + 1
        moment = arrival(before, [stage.stage for stage in self.stages], self.wall())
        if moment is not None:
            moment = self.log.moment(number, moment)
        for _ in range(repeat):
            results = self._evaluate(before, inputs, moment)
        if self.sink is not None:
            self.sink(number, results)
        records = read_records(self.store, number)
        assert not missing_sites(records, expected(before)), "a site left no record"
        stages = [stage.stage for stage in self.stages]
        after = advance(before, stages, records, batch=batch, seen=seen, elapsed=elapsed, moment=moment)
        epoch = self._adapted(after, records)
        if reroute is not None:
            moved = tuple(with_routing(s, reroute(i, s.routing)) for i, s in enumerate(epoch.stages))
            epoch = replace(epoch, stages=moved)
        if change is not None:
            epoch = replace(epoch, stages=tuple(change(i, s, number) for i, s in enumerate(epoch.stages)))
        self.log.commit(epoch)
        self.epoch = epoch
        self.log.collect(number)
        return results

    def _adapted(self, epoch: Epoch, records: Mapping[tuple[int, int], CommitRecord]) -> Epoch:
        """What the policy makes of it; an epoch is a second to it."""
        stages, events = [], []
        for number, (adaptation, state) in enumerate(zip(self._adaptations, epoch.stages)):
            mine = [record for (stage, _), record in sorted(records.items()) if stage == number]
            stages.append(adaptation.after(state, mine, float(epoch.number), epoch=epoch.number))
            events += [{"epoch": epoch.number, "stage": number, **event} for event in adaptation.events()]
        self.log.note(epoch.number, events)
        control = {"stages": [adaptation.snapshot() for adaptation in self._adaptations]}
        return replace(epoch, stages=tuple(stages), control=control)

    def _evaluate(self, before: Epoch, inputs: Sequence[pa.Table] | None, moment: int | None) -> pa.Table:
        rows = inputs
        for number, stage in enumerate(self.stages):
            state = before.stages[number]
            tables = [schema.empty_table() for schema in stage.inputs] if rows is None else list(rows)
            encoded = [stage.encode(i, table) for i, table in enumerate(tables)]
            job = SiteJob(
                store=self.store,
                epoch=before.number + 1,
                stage=number,
                operator=stage.stage.operator,
                before=state,
                track_heavy=True,
                piece_bytes=self.piece_bytes,
                buffer=self.buffer,
                budgets=None if inputs is None else budgets(before, number),
                follow=before.number + 1 == self._resumed,
                clock=self.clock,
                moment=moment if stage.stage.on_arrival else None,
            )
            parts = [
                table
                for site in range(state.routing.sites)
                for table in run_site(self._at(job, site), _share(encoded, state, site), self._next())
            ]
            result = pa.concat_tables([stage.schema.empty_table(), *(part.cast(stage.schema) for part in parts)])
            rows = [result]
        assert rows is not None
        return rows[0]

    def _at(self, job: SiteJob, site: int) -> SiteJob:
        return replace(job, merge_limit=self.merge_limits[min(site, len(self.merge_limits) - 1)])

    def _next(self) -> str:
        self._attempt += 1
        return f"{self._attempt:x}"


def _share(encoded: list[Input], before: StageState, site: int) -> Callable[[], tuple[int, list[Input]]]:
    """What Spark's shuffle would bring to one site."""
    return lambda: (site, [rows.take(receives(before, site, rows.h)) for rows in encoded])


def hashes(table: pa.Table, keys: Sequence[str], *, bits: int = 64) -> tuple[Ints, Ints]:
    """Two stable 64-bit hashes of each row's key; with few `bits`, the first one collides often."""
    known: dict[str, tuple[int, int]] = {}
    first, second = [], []
    for key in zip(*(table.column(name).to_pylist() for name in keys)):
        text = repr([value + 0.0 if isinstance(value, float) else value for value in key])
        if text not in known:
            digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
            spread = int.from_bytes(digest[:8], "big") >> (64 - bits) << (64 - bits)
            known[text] = (spread - 2**63, int.from_bytes(digest[8:], "big", signed=True))
        h, h2 = known[text]
        first.append(h)
        second.append(h2)
    return np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)


def times(table: pa.Table, time: str | None, default: int) -> Ints:
    """Event times in microseconds, `default` where null."""
    if time is None:
        return np.full(table.num_rows, NO_TIME, dtype=np.int64)
    column: Any = table.column(time).cast(pa.int64()).fill_null(default)
    values: Ints = column.to_numpy()
    return values
