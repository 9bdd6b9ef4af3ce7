"""Random histories to put a random query (tests/cases.py) through: moves, spills, re-plans, crashes."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import event
from hypothesis import strategies as st

import fluxen.testing as ft
from fluxen.control.memory import spilling
from fluxen.control.moves import dealing
from fluxen.control.moves.parallel_track import move_by_track
from fluxen.operators.base import Operator
from fluxen.site.context import SkewBuffer
from fluxen.state import sorted_run as runs
from fluxen.state.epoch import StageState
from fluxen.state.routing import Routing
from fluxen.state.sorted_run import MAX_MERGED_BYTES
from fluxen.testing import oracle
from tests.cases import Case, random_tree

Change = Callable[[int, StageState, int], StageState]


class Histories:
    """Draws what happens at each batch: where it crashes, what moves, how often sites run."""

    routes: tuple[str, ...] = ("none", "move", "rescale", "isolate", "isolate", "return")
    changes: tuple[str, ...] = ("none", "replan", "track", "both", "deal")
    """of what the operator's traits allow"""

    def __init__(self, data: Any) -> None:
        self.data = data

    def crash(self) -> int | None:
        return self.data.draw(st.one_of(st.none(), st.integers(0, 25)), label="crash after")

    def repeat(self) -> int:
        return self.data.draw(st.sampled_from([1, 1, 1, 2]), label="runs of the sites")

    def buffer(self) -> dict[str, Any]:
        """Whether sites leave rows for later, under a clock that nobody can foresee."""
        size = self.data.draw(st.sampled_from([None, 1, 300, 10_000, 10_000, 10_000]), label="bytes of the skew buffer")
        if size is None:
            return {}
        rng = np.random.default_rng(self.data.draw(st.integers(0, 2**31), label="clock"))
        times = itertools.accumulate(rng.choice([0.0, 0.1, 5.0], p=[0.3, 0.3, 0.4]) for _ in itertools.count())
        # with a time budget, or until the others are expected to be done
        seconds = self.data.draw(st.sampled_from([1.0, None]), label="time budget")
        limit = SkewBuffer(seconds=seconds, bytes=size, piece_rows=1)
        return {"buffer": limit, "clock": lambda: float(next(times))}

    def memory(self) -> int | None:
        """Bytes of state that operators whose groups take turns may have in memory."""
        return self.data.draw(st.sampled_from([None, None, 1, 3_000, 6_000]), label="memory of a site")

    def merging(self) -> dict[str, Any]:
        """Which sites merge their runs in this batch: where not all do, groups leave shared segments one by one."""
        limits = [MAX_MERGED_BYTES, MAX_MERGED_BYTES, (1, MAX_MERGED_BYTES), (MAX_MERGED_BYTES, 1), 1]
        return {"merge_limit": self.data.draw(st.sampled_from(limits), label="bytes that sites merge")}

    def partitions(self) -> int:
        """Few of them, so that keys share one."""
        return self.data.draw(st.sampled_from([4, 4, 8]), label="partitions")

    def fan_in(self) -> int:
        """Runs that are merged into one; with two, merges are frequent."""
        return self.data.draw(st.sampled_from([2, 4]), label="fan-in")

    def reroute(self, heavy: list[int]) -> Callable[[int, Routing], Routing] | None:
        kind = self.data.draw(st.sampled_from(self.routes), label="adaptation")
        if kind == "none":
            return None
        seed = self.data.draw(st.integers(0, 2**31), label="seed")

        def change(stage: int, routing: Routing) -> Routing:
            rng = np.random.default_rng(seed + stage)
            if kind == "rescale":
                return routing.rescaled(int(rng.integers(1, 5)))
            if kind == "isolate" and heavy:
                for h in rng.choice(heavy, size=int(rng.integers(1, 3))).tolist():
                    routing = routing.isolated(h, int(rng.integers(routing.sites)))
                return routing
            if kind == "return" and len(routing.explicit):
                for h in rng.choice(routing.explicit, size=int(rng.integers(1, 3))).tolist():
                    routing = routing.returned(h)
                # others may come at the same time, at ids that have just become free, and be one that left
                return routing.isolated(int(rng.choice(heavy)), 0) if heavy and rng.random() < 0.3 else routing
            groups = rng.choice(routing.size, size=int(rng.integers(1, routing.size)), replace=False)
            return routing.moved(groups.astype(np.int32), int(rng.integers(routing.sites)))

        return change

    def spill(self, operators: Sequence[Operator], heavy: Sequence[int]) -> Change | None:
        """Random groups of stages that spill to disk, cleaned up or brought back, several of these at once."""
        kinds = self.data.draw(
            st.lists(st.sampled_from(["spill", "spill", "cleanup", "unspill", "deal"]), max_size=3), label="memory"
        )
        if not kinds:
            return None
        seed = self.data.draw(st.integers(0, 2**31), label="seed of memory")

        def change(stage: int, state: StageState, epoch: int) -> StageState:
            rng = np.random.default_rng(seed + stage)
            if not operators[stage].spills:
                return state
            for kind in kinds:
                groups = rng.choice(
                    state.routing.size, size=int(rng.integers(1, state.routing.size + 1)), replace=False
                )
                if kind == "deal":
                    deals = stage == 0 and heavy and "deal" in self.changes
                    state = dealing_anew(state, operators[stage], rng, heavy) if deals else state
                elif kind == "spill":
                    state = spilling.spill(state, groups.tolist(), epoch)
                elif kind == "cleanup":
                    state = spilling.cleanup(state, groups.tolist())
                else:
                    state = spilling.unspill(state, groups.tolist())
            return state

        return change

    def after(self, bench: ft.LocalEngine) -> None:
        """Called after each batch."""

    def change(self, operators: Sequence[Operator], heavy: Sequence[int]) -> Change | None:
        """Another tree at some sites, groups that move without their state while new rows go to both sites, and keys
        dealt over several sites."""
        kinds = ["none", "deal"] if heavy and any(one.deals for one in operators) else ["none"]
        plans, tracks = (operators[0].plans is not None), any(one.lifetime() is not None for one in operators)
        if plans:
            kinds += ["replan"]
        if tracks:
            kinds += ["track", "both"] if plans else ["track"]
        kind = self.data.draw(st.sampled_from([kind for kind in kinds if kind in self.changes]), label="change")
        if kind == "none":
            return None
        seed = self.data.draw(st.integers(0, 2**31), label="seed")

        def change(stage: int, state: StageState, epoch: int) -> StageState:
            rng, operator = np.random.default_rng(seed + stage), operators[stage]
            if kind == "deal" and stage == 0:
                return dealing_anew(state, operator, rng, heavy)
            if kind in ("replan", "both") and state.trees is not None:
                for site in rng.choice(state.routing.sites, size=int(rng.integers(1, state.routing.sites + 1))):
                    tree = random_tree(rng, list(range(operator.inputs)))
                    state = replace(state, trees=state.trees.replanned(int(site), tree))
            if kind in ("track", "both") and operator.lifetime() is not None:
                copies = {track.group for track in state.tracks}
                real = [*range(state.routing.partitions), *state.routing.explicit_groups.tolist()]
                assert copies.isdisjoint(real)
                for group in rng.choice(real, size=int(rng.integers(1, 4)), replace=False):
                    receiver = int(rng.integers(state.routing.sites))
                    if any(track.of == group for track in state.tracks):
                        event("a group moves again while its first move is under way")
                    state = move_by_track(operator, state, int(group), receiver, epoch=epoch)
            return state

        return change


def dealing_anew(state: StageState, operator: Operator, rng: np.random.Generator, heavy: Sequence[int]) -> StageState:
    """Families that end, and others that begin, of the same key perhaps and with another input dealt."""
    for family in state.routing.families:
        if rng.random() < 0.6:
            if why := dealing.cannot_end(state, family.h):
                event(f"a family cannot end: {re.sub('[0-9-]+', '#', why)}")
                continue
            event("a family ends")
            state = dealing.end(state, operator, family.h)
    for h in rng.choice(heavy, size=2).tolist():
        sites = rng.permutation(state.routing.sites)[: int(rng.integers(2, 4))].tolist()
        dealt = int(rng.choice(operator.deals)) if operator.deals else 0
        if not dealing.cannot_begin(state, operator, h, dealt, sites):
            event("a family begins")
            state = dealing.begin(state, operator, h, dealt, sites)
    return dealing.tidied(state) if rng.random() < 0.7 else state


def replay(
    case: Case,
    history: Histories,
    directory: str,
    *,
    can_isolate: bool = True,
    spills: bool = False,
    **bench: Any,
) -> list[str]:
    """Run the case through a random history and give back what an idempotent sink would hold; `bench` as
    `ft.LocalEngine`."""
    with patch.object(runs, "FAN_IN", history.fan_in()):
        return _replay(case, history, directory, can_isolate, spills, bench)


def _replay(
    case: Case, history: Histories, directory: str, can_isolate: bool, spills: bool, bench: dict[str, Any]
) -> list[str]:
    delivered: dict[int, list[dict[str, Any]]] = {}

    def sink(epoch: int, results: pa.Table) -> None:
        rows = results.to_pylist()
        if epoch in delivered:
            assert oracle.canonical_rows(rows, 17) == oracle.canonical_rows(delivered[epoch], 17), "a rerun differs"
        delivered[epoch] = rows

    memory, partitions = history.memory(), history.partitions()
    waited = False

    def opened(crash: int | None) -> ft.LocalEngine:
        options = {"sites": 2, "partitions": partitions, "sink": sink, "memory": memory}
        options["piece_bytes"] = 100 if spills else None  # a row or two at a time
        return ft.LocalEngine(
            case.stages, ft.FaultyStore(directory, crash), **options, **bench, **history.buffer(), **history.merging()
        )

    def surviving(work: Callable[[ft.LocalEngine], Any]) -> None:
        nonlocal waited
        for crash in [history.crash(), history.crash(), None]:
            try:
                bench = opened(crash)
                work(bench)
                waited |= any(stage.buffer for stage in bench.epoch.stages)
                fed = bench.epoch.stats["stages"][1:]
                assert not any(site["late"] for stage in fed for site in stage["sites"]), "a result came late"
                return
            except ft.SimulatedCrash:
                continue

    for number, inputs in enumerate(case.batches):
        heavy = case.stages[0].encode(0, inputs[0]).h.tolist() if can_isolate else []
        reroute, repeat = history.reroute(heavy), history.repeat()
        operators = [stage.stage.operator for stage in case.stages]
        change = both(history.spill(operators, heavy) if spills else None, history.change(operators, heavy))

        def step(bench: ft.LocalEngine, n=number, i=inputs, r=reroute, c=change, k=repeat) -> None:
            bench.step(n, i, reroute=r, change=c, repeat=k)
            history.after(bench)

        surviving(step)

    def finish(bench: ft.LocalEngine) -> None:
        while bench.flush_due():
            bench.flush()
        if spilling.owes(bench.epoch):
            bench.cleanup()
        if case.ends and bench.epoch.stages[-1].emitted[0] < 2**60:
            bench.flush(everything=True)

    surviving(finish)
    results = [rows for _, rows in sorted(delivered.items())]
    return settled(case, results, waited)


def both(first: Change | None, second: Change | None) -> Change | None:
    """One change of a stage's state after the other."""
    if first is None or second is None:
        return first or second
    return lambda stage, state, epoch: second(stage, first(stage, state, epoch), epoch)


def settled(case: Case, results: list[list[dict[str, Any]]], waited: bool) -> list[str]:
    """What is to equal the oracle's, of the rows each epoch delivered.

    Where rows `waited`, a batch may bring the last of several updates of a key. Then the others are put back, if each
    update is one of the oracle's and the last of each key is the one it has when nothing waits.
    """
    key = case.stages[-1].stage.operator.result_key
    for rows in results:
        keys = _keys(rows, key)
        assert not key or len(keys) == len(set(keys)), "a batch has two results for one key"
    if case.final is not None:
        return oracle.canonical_rows(case.final(results))
    found = oracle.canonical_rows(row for rows in results for row in rows)
    if not key or not waited or found == (expected := case.expected()):
        return found
    with tempfile.TemporaryDirectory() as directory:
        calm: list[list[dict[str, Any]]] = []
        bench = ft.LocalEngine(case.stages, directory, sites=1, sink=lambda _, table: calm.append(table.to_pylist()))
        for number, inputs in enumerate(case.batches):
            bench.step(number, inputs)
    event("updates took the place of others of their batch")
    right = Counter(found) <= Counter(expected) and _newest(results, key) == _newest(calm, key)
    return expected if right else found


def _keys(rows: list[dict[str, Any]], key: tuple[str, ...]) -> list[str]:
    return [oracle.canonical_rows([{name: row[name] for name in key}])[0] for row in rows] if key else []


def _newest(results: list[list[dict[str, Any]]], key: tuple[str, ...]) -> dict[str, str]:
    return {one: oracle.canonical_rows([row])[0] for rows in results for one, row in zip(_keys(rows, key), rows)}
