"""Random queries with their data and expected results, and random histories to put them through."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, assume, event, settings
from hypothesis import strategies as st

import fluxen.testing as ft
from fluxen.control import spilling
from fluxen.control.balance import lifetime, move_by_track
from fluxen.operators import functions as fx
from fluxen.operators.backlog import SkewBuffer
from fluxen.operators.tree import TreeJoin
from fluxen.state import runs
from fluxen.state.epoch import StageState
from fluxen.state.routing import Routing
from fluxen.state.runs import MAX_MERGED_BYTES
from fluxen.state.trees import canonical, write
from fluxen.testing import oracle

TIME = pa.timestamp("us", "UTC")
SECOND = 1_000_000
KEYS: dict[str, tuple[pa.DataType, Any]] = {
    "long": (pa.int64(), st.integers(0, 6)),
    "string": (pa.string(), st.sampled_from(["", "a", "b", "ab", "é", "a\x00"])),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
    "date": (pa.date32(), st.dates().filter(lambda d: d.day < 3)),
    "boolean": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(6, 2), st.decimals(0, 1, places=1, allow_nan=False)),
}


@dataclass
class Case:
    """A query as a bench stage, its batches (per batch, one table per input), and what must come out."""

    stages: list[ft.BenchStage]
    batches: list[list[pa.Table]]
    expected_rows: Callable[[], list[dict[str, Any]]]
    query: Callable[[list[Any]], Any]
    """the same query on Spark, from one streaming DataFrame per input"""
    ends: bool = False
    """flush everything at the end"""
    time: str | None = "ts"
    sql: Callable[[], str] | None = None
    """a join in SQL, over tables named like the inputs that hold their rows without the late ones"""
    lateness: int = 0
    final: Callable[[list[list[dict[str, Any]]]], list[dict[str, Any]]] | None = None
    """what of the results, epoch by epoch, does not depend on the history; None for all of it"""

    def expected(self) -> list[str]:
        return oracle.canonical_rows(self.expected_rows())


def examples(count: int) -> settings:
    """So many random cases, times FLUXEN_HUNT."""
    return settings(
        max_examples=count * int(os.environ.get("FLUXEN_HUNT", "1")),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


class Histories:
    """Draws what happens at each batch: where it crashes, what moves, how often sites run."""

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
        kinds = ["none", "move", "rescale", "isolate", "isolate", "return"]
        kind = self.data.draw(st.sampled_from(kinds), label="adaptation")
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

    def spill(self) -> Callable[[int, StageState, int], StageState] | None:
        """Random groups to disk, cleaned up or brought back, several of these at once."""
        kinds = self.data.draw(
            st.lists(st.sampled_from(["spill", "spill", "cleanup", "unspill"]), max_size=3), label="memory"
        )
        if not kinds:
            return None
        seed = self.data.draw(st.integers(0, 2**31), label="seed of memory")

        def change(stage: int, state: StageState, epoch: int) -> StageState:
            rng = np.random.default_rng(seed + stage)
            if stage > 0:  # only a join spills, and only the first stage is one
                return state
            for kind in kinds:
                groups = rng.choice(
                    state.routing.size, size=int(rng.integers(1, state.routing.size + 1)), replace=False
                )
                if kind == "spill":
                    state = spilling.spill(state, groups.tolist(), epoch)
                elif kind == "cleanup":
                    state = spilling.cleanup(state, groups.tolist())
                else:
                    state = spilling.unspill(state, groups.tolist())
            return state

        return change

    def change(self, operator: Any) -> Callable[[int, StageState, int], StageState] | None:
        """Another tree at some sites, and groups that move without their state while new rows go to both sites."""
        kinds = ["none"]
        if isinstance(operator, TreeJoin):
            kinds += ["replan"]
        if lifetime(operator) is not None:
            kinds += ["track", "both"] if isinstance(operator, TreeJoin) else ["track"]
        kind = self.data.draw(st.sampled_from(kinds), label="change")
        if kind == "none":
            return None
        seed = self.data.draw(st.integers(0, 2**31), label="seed")

        def change(stage: int, state: StageState, epoch: int) -> StageState:
            rng = np.random.default_rng(seed)
            if stage > 0:
                return state
            if kind in ("replan", "both"):
                assert state.trees is not None
                for site in rng.choice(state.routing.sites, size=int(rng.integers(1, state.routing.sites + 1))):
                    tree = random_tree(rng, list(range(operator.inputs)))
                    state = replace(state, trees=state.trees.replanned(int(site), tree))
            if kind in ("track", "both"):
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


def random_tree(rng: np.random.Generator, inputs: list[int]) -> Any:
    """Any shape: every node splits its inputs into two or more parts at random."""
    if len(inputs) == 1:
        return inputs[0]
    parts = int(rng.integers(2, min(3, len(inputs)) + 1))
    while True:
        which = rng.integers(parts, size=len(inputs))
        if len(set(which.tolist())) == parts:
            break
    return tuple(random_tree(rng, [i for i, w in zip(inputs, which) if w == part]) for part in range(parts))


def replay(
    case: Case,
    history: Histories,
    directory: str,
    *,
    can_isolate: bool = True,
    spills: bool = False,
    **bench: Any,
) -> list[str]:
    """Run the case through a random history and give back what an idempotent sink would hold; `bench` as `ft.Bench`."""
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

    def opened(crash: int | None) -> ft.Bench:
        options = {"sites": 2, "partitions": partitions, "sink": sink, "crash_after": crash, "memory": memory}
        options["piece_bytes"] = 100 if spills else None  # a row or two at a time
        return ft.Bench(case.stages, directory, **options, **bench, **history.buffer(), **history.merging())

    def surviving(work: Callable[[ft.Bench], Any]) -> None:
        for crash in [history.crash(), history.crash(), None]:
            try:
                bench = opened(crash)
                work(bench)
                fed = bench.epoch.stats["stages"][1:]
                assert not any(site["late"] for stage in fed for site in stage["sites"]), "a result came late"
                return
            except ft.SimulatedCrash:
                continue

    for number, inputs in enumerate(case.batches):
        heavy = case.stages[0].encode(0, inputs[0]).h.tolist() if can_isolate else []
        reroute, repeat = history.reroute(heavy), history.repeat()
        change = history.spill() if spills else history.change(case.stages[0].stage.operator)
        surviving(
            lambda bench, n=number, i=inputs, r=reroute, c=change, k=repeat: bench.step(
                n, i, reroute=r, change=c, repeat=k
            )
        )

    def finish(bench: ft.Bench) -> None:
        while bench.flush_due():
            bench.flush()
        if spilling.owes(bench.epoch):
            bench.cleanup()
        if case.ends and bench.epoch.stages[-1].emitted[0] < 2**60:
            bench.flush(everything=True)

    surviving(finish)
    results = [rows for _, rows in sorted(delivered.items())]
    if case.final is not None:
        return oracle.canonical_rows(case.final(results))
    return oracle.canonical_rows(row for rows in results for row in rows)


@st.composite
def tables(draw: Any, schema: pa.Schema, keys: dict[str, str], rows: int, start: int, spread: int) -> pa.Table:
    """Rows with event times around `start`, some out of order."""
    count = draw(st.integers(0, rows))
    columns: dict[str, Any] = {}
    for field in schema:
        if field.name in keys:
            value = st.one_of(KEYS[keys[field.name]][1], st.none()) if field.nullable else KEYS[keys[field.name]][1]
        elif field.name == "ts":
            value = st.integers(start - spread, start + spread)
        elif pa.types.is_integer(field.type):
            value = st.one_of(st.integers(-5, 5), st.none())
        elif pa.types.is_floating(field.type):
            value = st.one_of(st.integers(-8, 8).map(lambda n: n / 4), st.none())
        elif pa.types.is_struct(field.type):
            value = st.fixed_dictionaries({"x": st.integers(0, 3), "y": st.lists(st.integers(0, 2), max_size=2)})
        else:
            value = st.one_of(st.sampled_from(["x", "y", "zz"]), st.none())
        values = draw(st.lists(value, min_size=count, max_size=count))
        columns[field.name] = (
            pa.array(values, pa.int64()).cast(TIME) if field.name == "ts" else pa.array(values, field.type)
        )
    return pa.table(columns, schema=schema)


@st.composite
def key_columns(draw: Any, most: int = 2) -> dict[str, str]:
    kinds = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=most))
    return {f"k{i}": kind for i, kind in enumerate(kinds)}


def schema_of(keys: dict[str, str], *rest: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*((name, KEYS[kind][0]) for name, kind in keys.items()), *rest])


def cut(
    draw: Any,
    schemas: list[pa.Schema],
    keys: dict[str, str],
    rows: int,
    least: int = 1,
    paces: tuple[int, ...] = (0, SECOND, 5 * SECOND),
) -> list[list[pa.Table]]:
    """One to five batches, or a few more, whose event times advance, with disorder."""
    spread = draw(st.sampled_from([0, 2 * SECOND, 10 * SECOND]))
    pace = draw(st.sampled_from(paces))
    return [
        [draw(tables(schema, keys, rows, number * pace, spread)) for schema in schemas]
        for number in range(draw(st.integers(least, least + 4)))
    ]


@st.composite
def join_cases(draw: Any, plan: str = "mjoin", *, steady: bool = False) -> Case:
    """A join; `steady` for a short window over many batches in which every key keeps getting rows."""
    # moves and re-plans show only in what several batches make of rows that meet often
    dense = steady or (plan == "tree" and draw(st.booleans()))
    count = draw(st.integers(2, 3) if steady else st.integers(3, 4) if dense else st.integers(2, 5))
    names = ["a", "b", "c", "d", "e"][:count]
    keys = {"k0": "boolean"} if dense else draw(key_columns())
    nested = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int64()))])
    payload = [("v", pa.int64()), ("s", pa.string()), ("n", nested), ("v", pa.float64()), ("s", pa.string())]
    schemas = [schema_of(keys, ("ts", TIME), payload[i]) for i in range(count)]
    bits = draw(st.sampled_from([64, 64, 3]))
    lateness = draw(st.sampled_from([0, SECOND] if steady else [0, 3 * SECOND, 100 * SECOND]))
    form = draw(st.sampled_from(["within", "between"] if steady else ["within", "between", "none", "untimed", "ttl"]))
    time = None if form == "untimed" else "ts"
    lateness = 0 if time is None else lateness
    limits: dict[str, Any] = {}
    fits: Callable[[Any], bool] = lambda times: True  # noqa: E731
    condition = "true"
    if form in ("within", "ttl"):
        span = draw(st.sampled_from([SECOND, 2 * SECOND] if steady else [SECOND, 4 * SECOND, 30 * SECOND]))
        limits = {form: f"{span} microseconds"}
        fits = lambda times: max(times.values()) - min(times.values()) <= span  # noqa: E731
        times = ", ".join(f"epoch_us({name}.ts)" for name in names)
        condition = f"greatest({times}) - least({times}) <= {span}"
    elif form == "between":
        limits, fits, condition = draw(pair_limits(names))
    if steady:
        lags = [draw(st.sampled_from([0, 0, 0, 4 * SECOND, 12 * SECOND]), label="lag of an input") for _ in schemas]
        batches = [
            [draw(tables(schema, keys, 3, number * SECOND - lag, SECOND)) for schema, lag in zip(schemas, lags)]
            for number in range(draw(st.integers(6, 14)))
        ]
    else:
        batches = cut(draw, schemas, keys, rows=6 if count < 4 else 4, least=3 if dense else 1)
    limits["lateness"] = f"{lateness} microseconds"
    if plan == "tree":
        seed = draw(st.integers(0, 2**31), label="tree")
        limits["plan"] = "tree"
        tree = write(canonical(random_tree(np.random.default_rng(seed), list(range(count)))))
        stage = ft.join(dict(zip(names, schemas)), list(keys), time, bits=bits, tree=tree, **limits)
    else:
        stage = ft.join(dict(zip(names, schemas)), list(keys), time, bits=bits, **limits)

    def expected() -> list[dict[str, Any]]:
        inputs = {name: [batch[i] for batch in batches] for i, name in enumerate(names)}
        times = None if time is None else dict.fromkeys(names, time)
        return oracle.join(inputs, {name: list(keys) for name in names}, times, fits, lateness)

    def query(streams: list[Any]) -> Any:
        import fluxen

        inputs = dict(zip(names, streams))
        return fluxen.join(inputs, list(keys), time, **limits)

    def sql() -> str:
        columns = [f"a.{key}" for key in keys]
        columns += [f"{n}.{f.name} as {n}_{f.name}" for n, s in zip(names, schemas) for f in s if f.name not in keys]
        equal = [f"a.{key} = {name}.{key}" for name in names[1:] for key in keys]
        return f"select {', '.join(columns)} from {', '.join(names)} where {' and '.join([*equal, condition])}"

    return Case([stage], batches, expected, query, sql=sql, lateness=lateness, time=time)


@st.composite
def pair_limits(draw: Any, names: list[str]) -> tuple[dict[str, Any], Callable[[Any], bool], str]:
    """Random pairwise bounds, some one-sided, over a random subset of the pairs."""
    pairs = [(a, b) for i, a in enumerate(names) for b in names[:i]]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=3, unique=True))
    between = {}
    for pair in chosen:
        low = draw(st.one_of(st.none(), st.integers(-6, 3)))
        high = draw(st.one_of(st.none(), st.integers((low if low is not None else -3), 8)))
        between[pair] = (low, high)

    def fits(times: Any) -> bool:
        return all(
            (low is None or times[a] - times[b] >= low * SECOND)
            and (high is None or times[a] - times[b] <= high * SECOND)
            for (a, b), (low, high) in between.items()
        )

    words = {
        pair: tuple(None if bound is None else f"{bound} seconds" for bound in bounds)
        for pair, bounds in between.items()
    }
    conditions = [
        f"epoch_us({a}.ts) - epoch_us({b}.ts) {sign} {bound * SECOND}"
        for (a, b), (low, high) in between.items()
        for sign, bound in ((">=", low), ("<=", high))
        if bound is not None
    ]
    return {"between": words}, fits, " and ".join(conditions) or "true"


AGGREGATES = {
    "n": fx.count(),
    "nv": fx.count("v"),
    "total": fx.sum("v"),
    "mean": fx.avg("x"),
    "low": fx.min("s"),
    "high": fx.max("x"),
    "sd": fx.stddev("x"),
    "head": fx.first("s"),
    "tail": fx.last("v"),
}


@st.composite
def aggregate_cases(draw: Any, forgets: bool = False) -> Case:
    """With `forgets`, few keys that come again after pauses about as long as they live."""
    keys = {"k0": "boolean"} if forgets else draw(key_columns())
    schema = schema_of(keys, ("ts", TIME), ("v", pa.int64()), ("x", pa.float64()), ("s", pa.string()))
    form = draw(st.sampled_from(["running", "last"] if forgets else ["running", "last", "tumbling"]))
    names = draw(st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=4, unique=True))
    chosen = {name: AGGREGATES[name] for name in names}
    lateness = draw(st.sampled_from([0, 3 * SECOND]))
    paused = {"least": 3, "paces": (SECOND, 5 * SECOND)} if forgets else {}
    batches = cut(draw, [schema], keys, rows=12, **paused)
    tables_ = [batch[0] for batch in batches]
    bits = draw(st.sampled_from([64, 64, 3]))
    options: dict[str, Any] = {"lateness": f"{lateness} microseconds", "bits": bits}
    options["tasks"] = draw(st.sampled_from([0, 1, 3]), label="tasks that combine rows first")
    ends = False
    lives = [SECOND, 4 * SECOND] if forgets else [None, None, SECOND, 4 * SECOND]
    ttl = draw(st.sampled_from(lives)) if form != "tumbling" else None
    if ttl is not None:
        options["ttl"] = f"{ttl} microseconds"
    if form == "last":
        n = draw(st.sampled_from([1, 2, 3, 5, 10]))
        options["last"] = n
        expected = lambda: oracle.last(  # noqa: E731
            tables_, list(keys), "ts", n, chosen, ttl=ttl, lateness=lateness
        )
    elif form == "tumbling":
        size = draw(st.sampled_from([SECOND, 3 * SECOND]))
        ends = draw(st.booleans())
        options["window"] = f"{size} microseconds"
        expected = lambda: oracle.tumbling(  # noqa: E731
            tables_, list(keys), "ts", size, lateness, chosen, everything=ends
        )
    else:
        expected = lambda: oracle.running(  # noqa: E731
            tables_, list(keys), "ts", chosen, ttl=ttl, lateness=lateness
        )
    stage = ft.aggregate(schema, list(keys), "ts", **options, **chosen)

    def query(streams: list[Any]) -> Any:
        import fluxen

        words = {name: value for name, value in options.items() if name not in ("bits", "tasks")}
        return fluxen.aggregate(streams[0], list(keys), "ts", **words, **chosen)

    return Case([stage], batches, expected, query, ends)


@st.composite
def distinct_cases(draw: Any) -> Case:
    keys = draw(key_columns())
    schema = schema_of(keys, ("ts", TIME), ("v", pa.int64()))
    lateness = draw(st.sampled_from([0, 3 * SECOND]))
    within = draw(st.sampled_from([None, SECOND, 4 * SECOND]))
    batches = cut(draw, [schema], keys, rows=12)
    options = {
        "within": None if within is None else f"{within} microseconds",
        "lateness": f"{lateness} microseconds",
    }
    stage = ft.distinct(schema, list(keys), "ts", **options, bits=draw(st.sampled_from([64, 64, 3])))

    def query(streams: list[Any]) -> Any:
        import fluxen

        return fluxen.distinct(streams[0], list(keys), "ts", **options)

    def expected() -> list[dict[str, Any]]:
        return oracle.distinct([batch[0] for batch in batches], list(keys), "ts", within, lateness)

    return Case([stage], batches, expected, query)


# ---- several stages


@st.composite
def staged_cases(draw: Any, plan: str = "mjoin") -> Case:
    """A join that feeds aggregates: what they make of its results must not depend on when these come."""
    joined = draw(join_cases(plan, steady=plan == "mjoin" and draw(st.sampled_from([False, False, True]))))
    assume(joined.time is not None)  # without event time there is nothing that results could come late by
    first, (key, *_) = joined.stages[0].schema, joined.stages[0].schema.names
    times = [name for name in first.names if name.endswith("_ts")]
    time = draw(st.sampled_from(times))
    lateness = draw(st.sampled_from(["0 seconds", "0 seconds", "2 seconds"]))
    options: dict[str, Any] = {"lateness": lateness}
    size = draw(st.sampled_from([SECOND, 3 * SECOND]))
    form = draw(st.sampled_from(["tumbling", "tumbling", "last", "running"]))
    aggregates: dict[str, Any] = {"n": fx.count()}
    if form == "tumbling":
        options["window"] = f"{size} microseconds"
        aggregates |= {"at": draw(st.sampled_from([fx.max, fx.min, fx.first, fx.last]))(time)}
    elif form == "last":
        options["last"] = 1000
    else:
        aggregates |= {"at": fx.max(time)}
    stages = [*joined.stages, ft.aggregate(first, key, time, **options, **aggregates)]
    third = form != "running" and draw(st.booleans())
    wide = 7 * SECOND
    if third:
        at = "at" if form == "tumbling" else time
        again = {"rows": fx.count(), "n": fx.sum("n")}
        window = f"{wide} microseconds"
        stages.append(ft.aggregate(stages[-1].schema, key, at, window=window, lateness=lateness, **again))

    def expected() -> list[dict[str, Any]]:
        rows = [pa.Table.from_pylist(joined.expected_rows(), schema=first)]
        if form == "tumbling":
            found = oracle.tumbling(rows, [key], time, size, 0, aggregates, everything=True)
        elif form == "last":
            found = oracle.last(rows, [key], time, 1000, aggregates)
        else:
            found = oracle.running(rows, [key], time, aggregates)
        if third:
            tables_ = [pa.Table.from_pylist(found, schema=stages[1].schema)]
            found = oracle.tumbling(tables_, [key], at, wide, 0, again, everything=True)
        return final([found])

    def final(epochs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """Of running values the last ones; of the last n rows, how many results there are per key and time."""
        rows = [row for epoch in epochs for row in epoch]
        if form == "running":
            return list({repr(oracle.canonical_rows([{key: row[key]}])): row for row in rows}.values())
        if form == "last" and not third:
            return [{name: row[name] for name in (key, time)} for row in rows]
        if form == "last":  # n counts 1, 2, 3 along a key, in the order in which its rows came
            return [{name: row[name] for name in (key, "window", "rows")} for row in rows]
        return rows

    def query(streams: list[Any]) -> Any:
        raise NotImplementedError("these run in process only")

    return Case(stages, joined.batches, expected, query, ends=True, final=final)
