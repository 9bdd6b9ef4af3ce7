"""Random queries as users write them with the DataFrame API, and rows for them of which none comes late.

A case builds the same DataFrame over streams and over tables, so that Spark itself, over all rows at once, is the
oracle of what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

SECOND = 1_000_000
SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("s", pa.string()),
        ("v", pa.float64()),
        ("n", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
SPAN, OVERLAP, DELAY = 8, 3, "4 seconds"
"""A batch has rows of `SPAN` seconds and `OVERLAP` more, so with a delay of more than that none is late."""
BOTH = ("left", "right", "full")


@dataclass(frozen=True, kw_only=True)
class QueryCase:
    """`tables[stream][batch]`, and what to make of the streams."""

    tables: list[list[pa.Table]]
    steps: list[str]
    """the query in words, for whoever reads a failure"""
    build: Callable[[list[Any]], Any]
    python: bool = False
    """whether a Python function has been at the rows before"""
    ansi: bool = True
    zone: str = "UTC"

    def read(self, rows: Any) -> Any:
        """A stream's rows, or a table's, as the query finds them."""
        from pyspark.sql import functions as F

        rows = rows.withColumn("at", F.col("ts").cast("timestamp_ntz"))
        same = F.udf(lambda n: n, "bigint")
        return rows.withColumn("n", same("n")) if self.python else rows

    def __repr__(self) -> str:
        return " | ".join(self.steps)


@st.composite
def rows(draw: Any, batch: int) -> pa.Table:
    start = 1_700_000_000 * SECOND + batch * SPAN * SECOND
    one = st.tuples(
        st.sampled_from([1, 2, 3, None]),
        st.sampled_from(["x", "y", None]),
        st.sampled_from([None, 1.5, -2.0, 0.0, -0.0, float("nan"), 7.25]),
        st.integers(0, 4),
        st.one_of(st.none(), *[st.integers(start, start + (SPAN + OVERLAP) * SECOND)] * 5),
    )
    found = draw(st.lists(one, max_size=7))
    return (
        pa.table([pa.array(column, kind) for column, kind in zip(zip(*found), SCHEMA.types)], schema=SCHEMA)
        if (found)
        else SCHEMA.empty_table()
    )


# ---- parts of conditions: (in words, how to make them of two aliases)

KEYS = [
    "{b}.k = {a}.k",
    "{a}.k = {b}.k AND {a}.s = {b}.s",
    "{a}.n % 3 = {b}.n % 3",
    "{a}.k <=> {b}.k AND {a}.n = {b}.n",
    "cast({a}.k as bigint) = {b}.n",
    "{a}.v = {b}.v",
]
BOUNDS = [
    "{b}.ts BETWEEN {a}.ts - INTERVAL 2 SECONDS AND {a}.ts + INTERVAL 3 SECONDS",
    "{a}.ts <= {b}.ts AND {b}.ts < {a}.ts + INTERVAL 1500 MILLISECONDS",
    "{b}.ts - {a}.ts <= INTERVAL 2 SECONDS AND {b}.ts + INTERVAL 1 SECOND > {a}.ts",
    "{b}.ts >= {a}.ts - INTERVAL 1 SECOND AND NOT ({b}.n > 100) AND {a}.ts + INTERVAL 2 SECONDS >= {b}.ts",
]
RESIDUALS = [
    "{a}.n <= {b}.n",
    "{a}.v > {b}.v OR {a}.s = {b}.s",
    "{a}.v > 0",
    "{b}.s IS NULL OR {b}.n + 1 > {a}.n",
    "NOT ({a}.v = {b}.v)",
    "{a}.at <= {b}.at",
]
FILTERS = ["n > 1", "v IS NOT NULL", "k <> 2", "s = 'x' OR n < 3", "ts IS NOT NULL"]
AGGREGATES = {
    "n": "count(1)",
    "m": "sum({a}.n) + 1",
    "low": "min({a}.v)",
    "high": "max({a}.ts)",
    "mean": "avg({a}.n)",
    "latest": "max({a}.at)",
    "some": "count({a}.v)",
    "kinds": "count(DISTINCT {a}.s)",
    "values": "count(DISTINCT {a}.v)",
    "few": "sum({a}.n) FILTER (WHERE {a}.v > 0)",
    "all": "sort_array(collect_set({a}.n))",
    "sd": "round(stddev({a}.n), 6)",
    "every": "bool_and({a}.n > 0)",
    "times": "sort_array(collect_set({a}.ts))",
}


@st.composite
def query_cases(draw: Any) -> QueryCase:
    kind = draw(st.sampled_from(["inner", "inner", "other", "one"]))
    inputs = {"inner": draw(st.integers(2, 5)), "other": 2, "one": 1}[kind]
    batches = draw(st.integers(2, 4))
    tables = [[draw(rows(batch)) for batch in range(batches)] for _ in range(inputs)]
    filters = [draw(st.one_of(st.none(), st.sampled_from(FILTERS))) for _ in range(inputs)]
    joins = [_join(draw, at, kind) for at in range(1, inputs)]
    # right rows have no event time where left ones are alone, and the other way round
    timed = {"right": 1}.get(joins[0][0] if joins else "", 0)
    groups = [] if joins and joins[0][0] == "full" else _groups(draw, timed)
    if not joins and not groups:
        groups = _groups(draw, timed, always=True)
    computed = draw(st.booleans()) and not groups
    united = bool(joins) and joins[0][0] not in ("right", "full") and draw(st.integers(0, 2)) == 0

    def build(streams: list[Any]) -> Any:
        from pyspark.sql import functions as F

        made = [
            (one if only is None else one.where(only)).alias(f"s{at}")
            for at, (one, only) in enumerate(zip(streams, filters))
        ]
        whole = made[0]
        for (how, condition), right in zip(joins, made[1:]):
            whole = whole.join(right, F.expr(condition), how)
        if united:
            names = [*SCHEMA.names, "at"]
            columns = [F.expr(f"s0.{name}") for name in names]
            whole = whole.select(*columns).union(made[-1].select(*names)).alias("s0")
        for step in groups:
            whole = step[1](whole)
        if computed:
            whole = whole.select(F.expr("s0.k + s0.n").alias("sum"), F.expr("s0.s"), F.expr("s0.ts").alias("at"))
        return whole if groups or computed else _named_apart(whole)

    steps = [f"{len(tables)} streams, {batches} batches, filters {filters}", *(f"{how}: {on}" for how, on in joins)]
    steps += ["united with the last stream"] if united else []
    settings = {name: draw(st.booleans()) for name in ("python", "ansi")}
    zone = draw(st.sampled_from(["UTC", "+09:00"]))
    steps += [*(words for words, _ in groups), str(settings), zone]
    return QueryCase(tables=tables, steps=steps, build=build, zone=zone, **settings)


def _join(draw: Any, at: int, kind: str) -> tuple[str, str]:
    how = draw(st.sampled_from([*BOTH, "left_semi", "left_anti"])) if kind == "other" else "inner"
    other = draw(st.integers(0, at - 1))
    parts = [draw(st.sampled_from(KEYS)), draw(st.sampled_from(BOUNDS))]
    if draw(st.booleans()):
        parts.append(draw(st.sampled_from(RESIDUALS)))
    text = " AND ".join(f"({part})" for part in draw(st.permutations(parts)))
    return how, text.format(a=f"s{other}", b=f"s{at}")


def _groups(draw: Any, alias: int, always: bool = False) -> list[tuple[str, Callable[[Any], Any]]]:
    """A window's aggregates, and perhaps larger windows of those."""
    if not always and draw(st.booleans()):
        return []
    a = f"s{alias}"
    size, slide = draw(st.sampled_from([("5 seconds", None), ("6 seconds", "2 seconds"), ("7 seconds", "3 seconds")]))
    by = draw(st.sampled_from([[], [f"{a}.k"], [f"{a}.n % 2"], [f"{a}.s", f"{a}.k"], [f"{a}.v"]]))
    names = draw(st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=4, unique=True))
    having = draw(st.sampled_from([None, "count > 1"]))
    again = draw(st.booleans())

    def first(whole: Any) -> Any:
        from pyspark.sql import functions as F

        window = F.window(f"{a}.ts", size, slide) if slide else F.window(f"{a}.ts", size)
        made = [F.expr(AGGREGATES[name].format(a=a)).alias(name) for name in names]
        keys = [F.expr(key).alias(f"g{at}") for at, key in enumerate(by)]
        found = whole.groupBy(*keys, window.alias("w")).agg(*made, F.count(F.lit(1)).alias("count"))
        return found if having is None else found.where(having)

    def second(whole: Any) -> Any:
        from pyspark.sql import functions as F

        larger = F.window(F.window_time("w"), "20 seconds").alias("ww")
        return whole.groupBy(larger).agg(F.sum("count").alias("total"), F.count(F.lit(1)).alias("groups"))

    steps = [(f"by {by}, window {size} {slide}: {names}, having {having}", first)]
    return [*steps, ("again by 20 seconds", second)] if again else steps


def _named_apart(whole: Any) -> Any:
    return whole.toDF(*(f"c{at}" for at in range(len(whole.columns))))
