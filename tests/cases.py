"""Random queries with their data and expected results. Histories to put them through are in tests/histories.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import assume
from hypothesis import strategies as st

import fluxen.testing as ft
from fluxen.operators.aggregate import functions as fx
from fluxen.state.trees import canonical, write
from fluxen.testing import oracle
from tests.values import Pick, between, one_of, or_null, table, times

TIME = pa.timestamp("us", "UTC")
SECOND = 1_000_000
KEYS: dict[str, tuple[pa.DataType, Pick]] = {
    "long": (pa.int64(), between(0, 6)),
    "string": (pa.string(), one_of("", "a", "b", "ab", "é", "a\x00")),
    "double": (pa.float64(), one_of(0.0, -0.0, 1.5, float("nan"))),
    "date": (pa.date32(), one_of(date(2000, 1, 1), date(1, 1, 1), date(1969, 12, 2), date(9999, 12, 2))),
    "boolean": (pa.bool_(), one_of(False, True)),
    "decimal": (pa.decimal128(6, 2), lambda number: Decimal(number % 11) / 10),
}


@dataclass
class Case:
    """A query as a bench stage, its batches (per batch, one table per input), and what must come out."""

    stages: list[ft.LocalStage]
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


def tables(schema: pa.Schema, keys: dict[str, str], rows: int, start: int, spread: int) -> Any:
    """Rows with event times around `start`, some out of order."""
    return table(schema, {field.name: _pick(field, keys, start, spread) for field in schema}, rows)


def _pick(field: pa.Field, keys: dict[str, str], start: int, spread: int) -> Pick:
    if field.name in keys:
        return or_null(KEYS[keys[field.name]][1], 2) if field.nullable else KEYS[keys[field.name]][1]
    if field.name == "ts":
        return times(start, spread)
    if pa.types.is_struct(field.type):
        return lambda number: {"x": number % 4, "y": [number // 12 % 3, number // 36 % 3][: number // 4 % 3]}
    if pa.types.is_integer(field.type):
        return or_null(between(-5, 5), 2)
    if pa.types.is_floating(field.type):
        return or_null(lambda number: (number % 17 - 8) / 4, 2)
    if pa.types.is_boolean(field.type):
        return or_null(one_of(False, True), 2)
    if pa.types.is_decimal(field.type):
        unit = Decimal(1).scaleb(-field.type.scale)
        return or_null(lambda number: number % int(18 / unit + 1) * unit - 9, 2)
    return or_null(one_of("x", "y", "zz"), 2)


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
    limits, fits, condition = draw(time_limits(form, names, steady))
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
def time_limits(
    draw: Any, form: str, names: list[str], steady: bool
) -> tuple[dict[str, Any], Callable[[Any], bool], str]:
    """How far apart rows that are joined may be: as options, as a test of their times, and in SQL."""
    if form == "between":
        return draw(pair_limits(names))
    if form not in ("within", "ttl"):
        return {}, lambda times: True, "true"
    span = draw(st.sampled_from([SECOND, 2 * SECOND] if steady else [SECOND, 4 * SECOND, 30 * SECOND]))
    times = ", ".join(f"epoch_us({name}.ts)" for name in names)
    return (
        {form: f"{span} microseconds"},
        lambda times: max(times.values()) - min(times.values()) <= span,
        f"greatest({times}) - least({times}) <= {span}",
    )


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


@st.composite
def deduplicated_cases(draw: Any) -> Case:
    """dropDuplicates and dropDuplicatesWithinWatermark; some rows have no event time."""
    keys = draw(key_columns())
    schema = schema_of(keys, ("ts", TIME), ("v", pa.int64()))
    expiry = draw(st.sampled_from(["never", "time", "watermark", "watermark"]))
    by = [*keys, "ts"] if expiry == "time" else list(keys)
    lateness = draw(st.sampled_from([0, 3 * SECOND]))
    batches = [[sometimes_untimed(table) for table in batch] for batch in cut(draw, [schema], keys, rows=12)]
    options = {"lateness": f"{lateness} microseconds"}
    bits = draw(st.sampled_from([64, 64, 3]))
    stage = ft.deduplicated(schema, by, "ts", expiry, **options, bits=bits)

    def query(streams: list[Any]) -> Any:
        import fluxen
        from fluxen.engine.options import AdaptOptions
        from fluxen.spark.plan.base import Given
        from fluxen.spark.plan.rows import deduplicated_stage

        built = deduplicated_stage(Given(df=streams[0]), by, "ts", expiry, **options)
        return fluxen.Query(last=built, options=AdaptOptions())

    def expected() -> list[dict[str, Any]]:
        delay = lateness if expiry == "watermark" else None
        return oracle.deduplicated([batch[0] for batch in batches], by, "ts", delay=delay, lateness=lateness)

    return Case([stage], batches, expected, query)


def sometimes_untimed(table: pa.Table) -> pa.Table:
    """The rows, without event time where v is 0, and with times on the half second so that some are equal."""
    at, half = table.column_names.index("ts"), SECOND // 2
    times = pc.multiply(pc.divide(table.column("ts").cast(pa.int64()), half), half)
    gone = pc.equal(pc.fill_null(table.column("v"), 1), 0)
    return table.set_column(at, "ts", pc.if_else(gone, pa.scalar(None, pa.int64()), times).cast(TIME))


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
