"""Every operator of the registry, and each of them wrapped, meets the same contract (tests/contracts/operators.py)."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest

import fluxen as fx
import fluxen.operators
import fluxen.testing as ft
from fluxen.operators.base import Operator
from fluxen.operators.join.outer import HOWS
from fluxen.operators.registry import OPERATORS
from fluxen.operators.wrapped import Wrapped
from fluxen.testing import oracle
from tests.cases import SECOND, Case
from tests.contracts.operators import (
    LATENESS,
    SCHEMA,
    Maker,
    case_of,
    check_results,
    check_times,
    check_traits,
    dense,
    having,
    operator_of,
    trials,
)

LATE = f"{LATENESS} microseconds"


def joined(plan: str, inputs: int, rows: int) -> Maker:
    names = ["a", "b", "c"][:inputs]

    def make(seed: int) -> Case:
        batches = dense(seed, inputs, rows=rows)
        stage = ft.join(dict.fromkeys(names, SCHEMA), "k", "ts", within="3 seconds", lateness=LATE, plan=plan)

        def expected() -> list[dict[str, Any]]:
            given = {name: [batch[i] for batch in batches] for i, name in enumerate(names)}
            close = lambda times: max(times.values()) - min(times.values()) <= 3 * SECOND  # noqa: E731
            return oracle.join(given, {name: ["k"] for name in names}, dict.fromkeys(names, "ts"), close, LATENESS)

        return case_of(stage, batches, expected)

    return make


def outer(seed: int) -> Case:
    """Every kind in turn, punctual and not."""
    how, batches, ends = HOWS[seed // 2 % len(HOWS)], dense(seed, 2), seed % 3 == 0
    between = {("b", "a"): ("-1 second", "2 seconds")}
    stage = ft.join(dict.fromkeys("ab", SCHEMA), "k", "ts", between=between, lateness=LATE, how=how)

    def expected() -> list[dict[str, Any]]:
        given = {name: [batch[i] for batch in batches] for i, name in enumerate("ab")}
        keys, times = {name: ["k"] for name in "ab"}, dict.fromkeys("ab", "ts")
        bounds = (-SECOND, 2 * SECOND)
        return oracle.outer(how, given, keys, times, bounds, lateness=LATENESS, everything=ends)

    return case_of(stage, batches, expected, ends=ends)


AGGREGATES = {"n": fx.count(), "total": fx.sum("v"), "high": fx.max("v"), "since": fx.min("ts")}


def running(seed: int) -> Case:
    batches = dense(seed)
    tables = [batch[0] for batch in batches]
    stage = ft.aggregate(SCHEMA, "k", "ts", lateness=LATE, ttl="2 seconds", tasks=2, **AGGREGATES)
    return case_of(
        stage, batches, lambda: oracle.running(tables, ["k"], "ts", AGGREGATES, ttl=2 * SECOND, lateness=LATENESS)
    )


def last(seed: int) -> Case:
    batches = dense(seed)
    tables = [batch[0] for batch in batches]
    stage = ft.aggregate(SCHEMA, "k", "ts", lateness=LATE, last=3, **AGGREGATES)
    return case_of(stage, batches, lambda: oracle.last(tables, ["k"], "ts", 3, AGGREGATES, lateness=LATENESS))


def windowed(seed: int) -> Case:
    batches = dense(seed)
    tables, ends = [batch[0] for batch in batches], seed % 3 == 0
    stage = ft.aggregate(SCHEMA, "k", "ts", lateness=LATE, window="2 seconds", tasks=2, **AGGREGATES)
    return case_of(
        stage,
        batches,
        lambda: oracle.tumbling(tables, ["k"], "ts", 2 * SECOND, LATENESS, AGGREGATES, everything=ends),
        ends=ends,
    )


def hopping(seed: int) -> Case:
    batches = dense(seed)
    tables, ends = [batch[0] for batch in batches], seed % 3 == 0
    update = seed % 5 > 2
    words: dict[str, Any] = {"window": "3 seconds", "slide": "2 seconds", "emit": "update" if update else "append"}
    stage = ft.aggregate(SCHEMA, "k", "ts", lateness=LATE, tasks=2, **words, **AGGREGATES)
    asked: dict[str, Any] = {"ends": (3 * SECOND, 2 * SECOND), "update": update, "everything": ends}
    return case_of(
        stage,
        batches,
        lambda: oracle.windowed(tables, ["k"], "ts", AGGREGATES, lateness=LATENESS, **asked),
        ends=ends,
    )


def sessions(seed: int) -> Case:
    batches = dense(seed, keys=3, rows=4)
    tables, ends = [batch[0] for batch in batches], seed % 3 == 0
    gap = (SECOND // 2, SECOND)[seed // 2 % 2]
    stage = ft.aggregate(SCHEMA, "k", "ts", lateness=LATE, session=f"{gap} microseconds", tasks=2, **AGGREGATES)
    return case_of(
        stage,
        batches,
        lambda: oracle.sessions(tables, ["k"], "ts", gap, AGGREGATES, lateness=LATENESS, everything=ends),
        ends=ends,
    )


def updated(seed: int) -> Case:
    batches = dense(seed)
    tables = [batch[0] for batch in batches]
    stage = ft.aggregate(SCHEMA, "k", "ts", lateness=LATE, window="2 seconds", emit="update", tasks=2, **AGGREGATES)
    asked: dict[str, Any] = {"ends": (2 * SECOND, 2 * SECOND), "update": True, "lateness": LATENESS}
    return case_of(stage, batches, lambda: oracle.windowed(tables, ["k"], "ts", AGGREGATES, **asked))


def by_time(seed: int) -> Case:
    """Groups by a moment itself, some of which are null and stay until the end."""
    batches = [[_on_the_second(batch[0], missing=7)] for batch in dense(seed)]
    tables, ends = [batch[0] for batch in batches], seed % 3 == 0
    stage = ft.aggregate(SCHEMA, ["k", "ts"], "ts", lateness=LATE, closes="ts", tasks=2, **AGGREGATES)
    asked: dict[str, Any] = {"ends": "ts", "lateness": LATENESS, "everything": ends}
    return case_of(stage, batches, lambda: oracle.windowed(tables, ["k", "ts"], "ts", AGGREGATES, **asked), ends=ends)


def _on_the_second(table: pa.Table, missing: int) -> pa.Table:
    times = [None if row["v"] == missing else row["ts"].replace(microsecond=0) for row in table.to_pylist()]
    return table.set_column(1, SCHEMA.field("ts"), pa.array(times, SCHEMA.field("ts").type))


def firsts(batches: list[list[pa.Table]]) -> Callable[[], list[dict[str, Any]]]:
    return lambda: oracle.distinct([batch[0] for batch in batches], ["k"], "ts", SECOND, LATENESS)


def distinct(seed: int) -> Case:
    batches = dense(seed)
    return case_of(ft.distinct(SCHEMA, "k", "ts", within="1 second", lateness=LATE), batches, firsts(batches))


def deduplicated(seed: int) -> Case:
    """As Spark's dropDuplicatesWithinWatermark; some rows have no event time."""
    batches = [[_on_the_second(batch[0], missing=7)] for batch in dense(seed, keys=30)]
    tables = [batch[0] for batch in batches]
    stage = ft.deduplicated(SCHEMA, "k", "ts", "watermark", lateness=LATE)
    return case_of(stage, batches, lambda: oracle.deduplicated(tables, ["k"], "ts", delay=LATENESS, lateness=LATENESS))


ORDER = [("v", "desc"), ("ts", "asc")]


def top(seed: int) -> Case:
    batches = dense(seed)
    tables = [batch[0] for batch in batches]
    stage = ft.top(SCHEMA, "k", 3, ORDER, "ts", ttl="2 seconds", lateness=LATE)
    return case_of(stage, batches, lambda: oracle.top(tables, ["k"], 3, ORDER, "ts", ttl=2 * SECOND, lateness=LATENESS))


def top_by_time(seed: int) -> Case:
    batches = [[_on_the_second(batch[0], missing=7)] for batch in dense(seed, keys=2)]
    tables = [batch[0] for batch in batches]
    stage = ft.top(SCHEMA, ["k", "ts"], 2, ORDER, "ts", closes="ts", lateness=LATE)
    return case_of(
        stage, batches, lambda: oracle.top(tables, ["k", "ts"], 2, ORDER, "ts", closes="ts", lateness=LATENESS)
    )


def union(seed: int) -> Case:
    """Rows that are late are there as well; some have no event time."""
    batches = [[_on_the_second(table, missing=7) for table in batch] for batch in dense(seed, 3)]

    def expected() -> list[dict[str, Any]]:
        return [row for batch in batches for table in batch for row in table.to_pylist()]

    return case_of(ft.union(3, SCHEMA, "ts", lateness=LATE), batches, expected)


def own_operator(seed: int) -> Case:
    batches = dense(seed)
    mine = ft.distinct(SCHEMA, "k", "ts", within="1 second").stage.operator
    return case_of(ft.stateful(SCHEMA, "k", mine, SCHEMA, "ts", lateness=LATE), batches, firsts(batches))


class Numbered:
    """User code: numbers the rows of each key."""

    schema = "k long, v long, n long"

    def __init__(self) -> None:
        self.seen: dict[int, dict[int, int]] = {}

    def install(self, group: int, state: pa.Table | None) -> None:
        self.seen[group] = {} if state is None else dict(zip(*(column.to_pylist() for column in state.columns)))

    def process(self, group: int, rows: pa.Table) -> pa.Table:
        found = []
        for row in rows.to_pylist():
            n = self.seen[group][row["k"]] = self.seen[group].get(row["k"], 0) + 1
            found.append({"k": row["k"], "v": row["v"], "n": n})
        return pa.Table.from_pylist(found)

    def extract(self, group: int) -> pa.Table:
        seen = self.seen.pop(group)
        return pa.table({"k": list(seen), "n": list(seen.values())})

    def info(self, group: int) -> Mapping[str, int]:
        return {"rows": len(self.seen[group])}


def user_code(seed: int) -> Case:
    batches = dense(seed)
    results = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("n", pa.int64())])

    def expected() -> list[dict[str, Any]]:
        seen: dict[int, int] = {}
        found = []
        for (table,) in batches:
            for row in sorted(table.to_pylist(), key=lambda row: (row["ts"], row["v"])):
                seen[row["k"]] = seen.get(row["k"], 0) + 1
                found.append({"k": row["k"], "v": row["v"], "n": seen[row["k"]]})
        return found

    return case_of(ft.stateful(SCHEMA, "k", Numbered(), results, "ts"), batches, expected)


CASES: dict[str, Maker] = {
    "join": joined("mjoin", 2, 9),
    "join tree": joined("tree", 3, 6),
    "outer join": outer,
    "running": running,
    "windowed": windowed,
    "sessions": sessions,
    "last": last,
    "distinct": distinct,
    "top": top,
    "union": union,
    "user code": user_code,
    "own operator": own_operator,
}
VARIANTS: dict[str, Maker] = {
    "hopping": hopping,
    "updated": updated,
    "by time": by_time,
    "top by time": top_by_time,
    "forgotten by watermark": deduplicated,
}
"""Further forms of operators that are above."""
WRAPPED = {f"wrapped {name}": having(make, lambda inner: Wrapped(operator=inner)) for name, make in CASES.items()}


def discovered() -> set[type[Operator]]:
    found = set()
    for module in pkgutil.walk_packages(fluxen.operators.__path__, "fluxen.operators."):
        for _, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(cls, Operator) and not inspect.isabstract(cls) and cls is not Wrapped:
                found.add(cls)
    return found


def test_every_operator_is_registered_and_under_contract() -> None:
    assert discovered() == set(OPERATORS.values())
    assert {name: type(operator_of(make)) for name, make in CASES.items()} == OPERATORS


def members(cls: type) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_")} - {field.name for field in fields(Wrapped)}


def test_a_wrapped_operator_keeps_every_trait() -> None:
    assert members(Wrapped) == members(Operator)
    for name, make in CASES.items():
        inner, wrapped = operator_of(make), operator_of(WRAPPED[f"wrapped {name}"])
        assert trials(wrapped) == trials(inner)
        for trait in members(Operator):
            said = inspect.getattr_static(Operator, trait)
            if isinstance(said, property):
                assert getattr(wrapped, trait) == getattr(inner, trait), trait


def test_all_kinds_of_traits_occur() -> None:
    operators = [operator_of(make) for make in CASES.values()]
    for trait in ("spills", "flushes", "divisible", "shadows"):
        assert {getattr(operator, trait) for operator in operators} == {True, False}, trait
    assert {operator.division for operator in operators if operator.lifetime()} == {"results", "windows", "keys"}
    assert {operator.emits for operator in operators} == {"append", "update"}
    assert {operator.plans is None for operator in operators} == {True, False}


@pytest.mark.parametrize("name", [*CASES, *VARIANTS, *WRAPPED])
def test_what_it_says_about_itself_makes_sense(name: str) -> None:
    check_traits(operator_of((CASES | VARIANTS | WRAPPED)[name]))


@pytest.mark.parametrize("name", [*CASES, *VARIANTS])
def test_no_result_is_older_than_it_promised(name: str) -> None:
    check_times((CASES | VARIANTS)[name])


@pytest.mark.parametrize(
    ("name", "trial"),
    [(name, trial) for name, make in (CASES | VARIANTS).items() for trial in trials(operator_of(make))],
)
def test_results_equal_the_oracle(name: str, trial: str) -> None:
    check_results((CASES | VARIANTS)[name], trial)


@pytest.mark.parametrize("name", WRAPPED)
def test_results_of_a_wrapped_operator_equal_the_oracle(name: str) -> None:
    operator = operator_of(WRAPPED[name])
    check_results(WRAPPED[name], "all at once, and spills" if operator.spills else "all at once")
