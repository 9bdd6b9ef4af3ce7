"""Every line of docs/mechanisms/together.md is run: two mechanisms in one query, and the results are the oracle's."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import fluxen as fx
import fluxen.testing as ft
from fluxen.control.keys import hotkeys
from fluxen.control.memory import spilling
from fluxen.control.moves import copying
from fluxen.engine.checks import check_complete
from fluxen.engine.options import AdaptOptions
from fluxen.errors import ConfigError
from fluxen.policies import Stats
from fluxen.site.context import SkewBuffer
from fluxen.state.epoch import StageState
from fluxen.state.routing import Routing
from fluxen.testing import oracle
from tests.cases import SECOND, random_tree
from tests.contracts.operators import SCHEMA, dense
from tests.operators.test_partitioners_property import HASTY

PAGE = (Path(__file__).parents[2] / "docs/mechanisms/together.md").read_text(encoding="utf-8")
CLAIMS = re.findall(r"^\| (\w+), (\w+) \| ([\w ]+) \|", PAGE, re.MULTILINE)
NAMES = ("moves", "tracks", "rescale", "keys", "trees", "spills", "turns", "waiting", "copies")
BATCHES, WINDOW = 14, 2 * SECOND
ASKED = 3
"""The batch before which the first rescale is asked for."""
EAGER = [*HASTY, (hotkeys, "COOL", 0.005)]
COUNT = {"n": fx.count()}
Seen = Callable[[StageState, StageState], bool]


def moved(before: StageState, after: StageState) -> bool:
    groups = range(before.routing.partitions)
    tracked = {track.of for track in after.tracks}
    return before.routing.sites == after.routing.sites and any(
        before.routing.table[group] != after.routing.table[group] for group in groups if group not in tracked
    )


SEEN: dict[str, Seen] = {
    "moves": moved,
    "tracks": lambda before, after: bool(after.tracks),
    "rescale": lambda before, after: before.routing.sites != after.routing.sites,
    "keys": lambda before, after: len(after.routing.explicit) > 0,
    "trees": lambda before, after: before.trees is not None and before.trees != after.trees,
    "spills": lambda before, after: any(ref.kind == "generation" for ref in after.segments),
    "turns": lambda before, after: after.residence is not None and bool(after.residence.on_disk.any()),
    "waiting": lambda before, after: bool(after.buffer),
    "copies": lambda before, after: bool(after.arriving),
}
"""Whether a mechanism is at work at the boundary between two batches."""


class Later(fx.Random):
    """Random moves from some moment on."""

    def __init__(self, *, since: float, **settings: Any) -> None:
        super().__init__(**settings)
        self.since = since

    def suggest(self, stats: Stats, now: float) -> Any:
        return super().suggest(stats, now) if now >= self.since else ()


@dataclass
class Ran:
    """What came of a query."""

    found: list[str]
    expected: list[str]
    states: list[tuple[StageState, ...]] = field(default_factory=list)
    moves: list[tuple[float, float]] = field(default_factory=list)
    """from when to when"""
    rescales: list[float] = field(default_factory=list)

    def together(self, first: str, second: str, stages: tuple[int, int] = (0, 0)) -> bool:
        return any(
            SEEN[first](before[stages[0]], after[stages[0]]) and SEEN[second](before[stages[1]], after[stages[1]])
            for before, after in itertools.pairwise(self.states)
        )

    def ever(self, name: str) -> bool:
        return self.together(name, name)


def query(on: set[str]) -> tuple[list[ft.LocalStage], int, Callable[[list[list[pa.Table]]], list[dict[str, Any]]]]:
    """Stages for these mechanisms, how many sources they read, and what must come out."""
    names = ["a", "b", "c"] if "trees" in on else ["a", "b"]
    plan = "tree" if "trees" in on else "mjoin"
    joined = ft.join(dict.fromkeys(names, SCHEMA), "k", "ts", within="3 seconds", lateness="2 seconds", plan=plan)

    def windows(schema: pa.Schema, time: str) -> ft.LocalStage:
        return ft.aggregate(schema, "k", time, window=f"{WINDOW} microseconds", lateness="2 seconds", **COUNT)

    def join_rows(batches: list[list[pa.Table]]) -> list[dict[str, Any]]:
        given = {name: [batch[i] for batch in batches] for i, name in enumerate(names)}
        close = lambda times: max(times.values()) - min(times.values()) <= 3 * SECOND  # noqa: E731
        return oracle.join(given, {name: ["k"] for name in names}, dict.fromkeys(names, "ts"), close, 2 * SECOND)

    def window_rows(tables: list[pa.Table], time: str, lateness: int) -> list[dict[str, Any]]:
        return oracle.tumbling(tables, ["k"], time, WINDOW, lateness, COUNT, everything=True)

    if "turns" not in on:
        return [joined], len(names), join_rows
    if not on & {"trees", "spills"}:
        alone = windows(SCHEMA, "ts")
        return [alone], 1, lambda batches: window_rows([batch[0] for batch in batches], "ts", 2 * SECOND)
    both = [joined, windows(joined.schema, "a_ts")]
    return (
        both,
        len(names),
        lambda batches: window_rows([pa.Table.from_pylist(join_rows(batches), schema=joined.schema)], "a_ts", 0),
    )


def options(on: set[str]) -> dict[str, Any]:
    """Of a `LocalEngine` on which these mechanisms are at work."""
    several = on in ({"moves", "copies"}, {"tracks", "spills"})  # of which one batch does both
    made: dict[str, Any] = {"sites": 4 if several else 2, "partitions": 8}
    if on & {"moves", "tracks", "copies"}:
        # the next partitioning function waits until moves that take several batches have ended
        made["policy"] = lambda: Later(seed=3, period=0.5, moves=made["sites"] // 2, since=4.0 if "keys" in on else 0.0)
    made["move_protocol"] = "ptlb" if "tracks" in on else "mslb"
    if "keys" in on:
        made |= {"partitioner": fx.Readj(alpha=1.0), "guarded": False}
    if "waiting" in on:
        rng = np.random.default_rng(5)
        times = itertools.accumulate(rng.choice([0.0, 0.1, 5.0]) for _ in itertools.count())
        made |= {
            "buffer": SkewBuffer(seconds=1.0, bytes=10_000, piece_rows=1),
            "clock": lambda: float(next(times)),
        }
    memory = {"spills": "12000b", "turns": "1500b"}
    limited = [name for name in memory if name in on]
    if len(limited) == 2:
        made["own"] = {1: {"memory_per_site": memory["spills"]}, 2: {"memory_per_site": memory["turns"]}}
    elif "turns" in on and "trees" in on:
        made["own"] = {2: {"memory_per_site": memory["turns"]}}
    elif limited:
        made["memory"] = int(memory[limited[0]][:-1])
    return made


def by_hand(on: set[str], number: int) -> dict[str, Any]:
    """What happens after a batch without being asked for by a policy."""
    rng, made = np.random.default_rng(number), {}
    if "trees" in on:

        def replanned(stage: int, state: StageState, epoch: int) -> StageState:
            if state.trees is None:
                return state
            return replace(state, trees=state.trees.replanned(int(rng.integers(2)), random_tree(rng, [0, 1, 2])))

        made["change"] = replanned
    if on == {"moves", "tracks"}:

        def rerouted(stage: int, routing: Routing) -> Routing:
            return routing.moved(rng.choice(routing.partitions, 1).astype(np.int32), int(rng.integers(routing.sites)))

        made["reroute"] = rerouted
    return made


def run(on: set[str], directory: Path) -> Ran:
    """A query of `BATCHES` batches with these mechanisms."""
    stages, inputs, expected = query(on)
    batches = dense(4, inputs, keys=12, batches=BATCHES, rows=14)
    delivered: dict[int, list[dict[str, Any]]] = {}
    store = ft.FaultyStore(str(directory / "checkpoint"))
    with ExitStack() as patched:
        for module, name, value in EAGER:
            patched.enter_context(patch.object(module, name, value))
        if "copies" in on:
            patched.enter_context(patch.object(copying, "LEAST", 1))
            patched.enter_context(patch.object(ft.FaultyStore, "local", property(lambda self: False)))
            patched.enter_context(patch("tempfile.tempdir", str(directory / "cache")))
        bench = ft.LocalEngine(
            stages, store, sink=lambda epoch, rows: delivered.update({epoch: rows.to_pylist()}), **options(on)
        )
        states = [bench.epoch.stages]
        for number, tables in enumerate(batches):
            if "rescale" in on and number in (ASKED, 7):
                bench.loop.rescale(3 if number == ASKED else 2)
            bench.step(number, tables, **by_hand(on, number))
            states.append(bench.epoch.stages)
        while bench.flush_due():
            bench.flush()
        if spilling.owes(bench.epoch):
            bench.cleanup()
        if "turns" in on:
            bench.flush(everything=True)
        done = [event for event in bench.loop.adaptations[0].manager.events if event.outcome == "done"]
    return Ran(
        found=oracle.canonical_rows(row for _, rows in sorted(delivered.items()) for row in rows),
        expected=oracle.canonical_rows(expected(batches)),
        states=states,
        moves=[(event.when, event.last) for event in done if event.kind == "move"],
        rescales=[event.when for event in done if event.kind == "rescale"],
    )


def test_the_page_says_something_about_every_pair() -> None:
    assert [(first, second) for first, second, _ in CLAIMS] == list(itertools.combinations(NAMES, 2))


@pytest.mark.parametrize(("first", "second", "claim"), CLAIMS, ids=lambda word: word.replace(" ", "-"))
def test_two_mechanisms_do_to_each_other_what_the_page_says(
    first: str, second: str, claim: str, tmp_path: Path
) -> None:
    ran = run({first, second}, tmp_path)
    assert ran.found == ran.expected
    if claim == "together":
        assert ran.together(first, second)
    elif claim == "beside each other":
        assert ran.together(first, second, (0, 1))
    elif claim == "one after the other":
        assert {first, second} & {"rescale"}
        assert len(ran.rescales) == 2
        assert ran.moves
        assert ran.rescales[0] > ASKED or first == "moves", "a rescale waits for what takes several batches"
        for when in ran.rescales:
            assert not any(since < when < until or since == when for since, until in ran.moves)
    else:
        assert claim == "instead"
        assert ran.ever(first)
        assert not ran.ever(second)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    '`move_protocol="ptlb"` for state that never expires': ({"move_protocol": "ptlb"}, "only joins, windows"),
    "a partitioner and `RiverDQ`": ({"partitioner": "readj", "policy": "river-dq"}, "both decide which site"),
    "a partitioner and `placement`": ({"partitioner": "readj", "sites": 1, "placement": (1.0,)}, "both say where"),
    "a policy that spills where every stage takes turns": (
        {"policy": "lazy-disk", "memory_per_site": "1m"},
        "take turns in memory: use FluxMemory",
    ),
    "a skew buffer without a time budget at one site": ({"skew_buffer": "1m", "sites": 1}, "there is sites=1"),
}


def test_the_page_names_what_is_refused() -> None:
    lines = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", PAGE.split("## What is refused")[1], re.MULTILINE)
    assert lines == ["asked for", *REFUSED]


@pytest.mark.parametrize("asked", REFUSED)
def test_what_makes_no_sense_is_refused_with_a_reason(asked: str) -> None:
    given, message = REFUSED[asked]
    running = ft.aggregate(SCHEMA, "k", n=fx.count()).stage.operator
    with pytest.raises(ConfigError, match=message):
        check_complete([running], AdaptOptions(**given))
