"""Random aggregates with their data and expected results: all functions and forms. Other queries: tests/cases.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

import fluxen.testing as ft
from fluxen.operators.aggregate import functions as fx
from fluxen.testing import oracle
from tests.cases import SECOND, TIME, Case, cut, key_columns, schema_of

WINDOW = pa.struct([("start", TIME), ("end", TIME)])
COLUMNS = (
    ("v", pa.int64()),
    ("x", pa.float64()),
    ("s", pa.string()),
    ("m", pa.decimal128(7, 3)),
    ("p", pa.bool_()),
    ("y", pa.float64()),
)
"""y has NaN and both zeros among its values."""
NUMBERS, ORDERED, ANY = ["v", "x", "m"], ["v", "x", "s", "m", "y", "ts"], ["v", "x", "s", "m", "p", "y", "ts"]
Drawn = Callable[[Any, "str | None"], fx.Aggregate]


def of(word: Callable[..., fx.Aggregate], columns: list[str], **options: Any) -> Drawn:
    return lambda draw, where: word(draw(st.sampled_from(columns)), where=where, **options)


def by(word: Callable[..., fx.Aggregate]) -> Drawn:
    return lambda draw, where: word(draw(st.sampled_from(ANY)), draw(st.sampled_from(ORDERED)), where=where)


FUNCTIONS: dict[str, Drawn] = {
    "n": lambda draw, where: fx.count(where=where),
    "present": of(fx.count, ANY),
    "different": of(fx.count, ANY, distinct=True),
    "total": of(fx.sum, NUMBERS),
    "total_once": of(fx.sum, NUMBERS, distinct=True),
    "mean": of(fx.avg, NUMBERS),
    "mean_once": of(fx.avg, NUMBERS, distinct=True),
    "low": of(fx.min, ANY),
    "high": of(fx.max, ANY),
    "sd": of(fx.stddev, NUMBERS),
    "sd_pop": of(fx.stddev_pop, NUMBERS),
    "var": of(fx.variance, NUMBERS),
    "var_pop": of(fx.var_pop, NUMBERS),
    "head": of(fx.first, ANY),
    "tail": of(fx.last, ANY),
    "of_least": by(fx.min_by),
    "of_most": by(fx.max_by),
    "every": of(fx.collect_list, ANY),
    "some": of(fx.collect_set, ANY),
    "all_true": of(fx.bool_and, ["p"]),
    "one_true": of(fx.bool_or, ["p"]),
}
NOT_OF_LAST = ("different", "total_once", "mean_once", "of_least", "of_most", "every", "some")
FORMS = ("running", "last", "tumbling", "hopping", "sessions", "by time", "by window")


@st.composite
def functions(draw: Any, last: bool) -> dict[str, fx.Aggregate]:
    """One to five functions, some of which count only rows where p is true; `last`: those the last rows know."""
    names = sorted(set(FUNCTIONS) - set(NOT_OF_LAST if last else ()))
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True))
    filters = [None] if last else [None, None, "p"]
    return {name: FUNCTIONS[name](draw, draw(st.sampled_from(filters))) for name in chosen}


def prepared(table: pa.Table, form: str, size: int) -> pa.Table:
    """With NaN and zeros of both signs; with a window as a column, or rows without time, where they make groups."""
    special = {0.25: float("nan"), 0.5: 0.0, 0.75: -0.0}
    y = [special.get(value, value) for value in table.column("y").to_pylist()]
    table = table.set_column(table.column_names.index("y"), "y", pa.array(y, pa.float64()))
    t = table.column("ts").cast(pa.int64())
    if form == "by window":
        start = [None if value is None or value % 7 == 3 else value // size * size for value in t.to_pylist()]
        bounds = [pa.array([None if s is None else s + more for s in start], TIME) for more in (0, size)]
        gone = pa.array([s is None for s in start], pa.bool_())
        return table.append_column("w", pa.StructArray.from_arrays(bounds, names=["start", "end"], mask=gone))
    if form == "by time":
        seconds = pc.multiply(pc.divide(t, SECOND), SECOND)
        shown = pc.if_else(pc.equal(pc.fill_null(table.column("v"), 1), 0), pa.scalar(None, pa.int64()), seconds)
        return table.set_column(table.column_names.index("ts"), "ts", shown.cast(TIME))
    return table


def ending(draw: Any, form: str, keys: list[str]) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """How groups end: in the engine's words, in the oracle's, and what they are grouped by."""
    size = draw(st.sampled_from([SECOND, 3 * SECOND]))
    update = draw(st.booleans())
    words: dict[str, Any] = {"emit": "update" if update else "append"}
    asked: dict[str, Any] = {"update": update}
    if form in ("by time", "by window"):
        closes = "ts" if form == "by time" else "w"
        words["closes"] = asked["ends"] = closes
        alone = draw(st.booleans(), label="grouped by nothing else")
        return words, asked, [closes] if alone else draw(st.permutations([*keys, closes]))
    if form == "sessions":
        return {"session": f"{size} microseconds"}, {"ends": (size, size)}, keys
    words["window"], slide = f"{size} microseconds", size
    if form == "hopping":
        slide = draw(st.sampled_from([SECOND // 2, 700_000, SECOND]))
        words["slide"] = f"{slide} microseconds"
    asked["ends"] = (size, slide)
    return words, asked, keys


@st.composite
def aggregate_cases(draw: Any, forgets: bool = False) -> Case:
    """With `forgets`, few keys that come again after pauses about as long as they live."""
    keys = {"k0": "boolean"} if forgets else draw(key_columns())
    form = draw(st.sampled_from(FORMS[:2] if forgets else FORMS))
    schema, grouped = schema_of(keys, ("ts", TIME), *COLUMNS), list(keys)
    chosen = draw(functions(last=form == "last"))
    lateness = draw(st.sampled_from([0, 3 * SECOND]))
    paused = {"least": 3, "paces": (SECOND, 5 * SECOND)} if forgets else {}
    batches = cut(draw, [schema], keys, rows=12, **paused)
    options: dict[str, Any] = {"lateness": f"{lateness} microseconds", "bits": draw(st.sampled_from([64, 64, 3]))}
    options["tasks"] = draw(st.sampled_from([0, 1, 3]), label="tasks that combine rows first")
    if form in ("running", "last"):
        lives = [SECOND, 4 * SECOND] if forgets else [None, None, SECOND, 4 * SECOND]
        ttl = draw(st.sampled_from(lives))
        options |= {} if ttl is None else {"ttl": f"{ttl} microseconds"}
        options |= {"last": draw(st.sampled_from([1, 2, 3, 5, 10]))} if form == "last" else {}
        asked: dict[str, Any] = {"ttl": ttl, "lateness": lateness}
        ends, size = False, SECOND
    else:
        words, asked, grouped = ending(draw, form, list(keys))
        ends, size = draw(st.booleans()), 2 * SECOND if isinstance(asked["ends"], str) else asked["ends"][0]
        options |= words
        asked |= {"lateness": lateness, "everything": ends}
    batches = [[prepared(batch[0], form, size)] for batch in batches]
    stage = ft.aggregate(batches[0][0].schema, grouped, "ts", **options, **chosen)

    def expected() -> list[dict[str, Any]]:
        tables = [batch[0] for batch in batches]
        if form == "last":
            return oracle.last(tables, grouped, "ts", options["last"], chosen, **asked)
        if form == "running":
            return oracle.running(tables, grouped, "ts", chosen, **asked)
        if form == "sessions":
            told = {name: value for name, value in asked.items() if name != "ends"}
            return oracle.sessions(tables, grouped, "ts", size, chosen, **told)
        return oracle.windowed(tables, grouped, "ts", chosen, **asked)

    def query(streams: list[Any]) -> Any:
        told = {name: value for name, value in options.items() if name not in ("bits", "tasks")}
        return on_spark(streams[0], grouped, told, chosen)

    return Case([stage], batches, expected, query, ends)


def on_spark(stream: Any, grouped: list[str], words: dict[str, Any], chosen: dict[str, fx.Aggregate]) -> Any:
    """The same query on Spark; `closes` is no word of users."""
    import fluxen
    from fluxen.engine.options import AdaptOptions
    from fluxen.spark.plan.aggregate import AggregateWords, aggregate_stage
    from fluxen.spark.plan.base import Given

    if "closes" not in words:
        return fluxen.aggregate(stream, grouped, "ts", **words, **chosen)
    built = aggregate_stage(Given(df=stream), AggregateWords(by=grouped, time="ts", **words), chosen)
    return fluxen.Query(last=built, options=AdaptOptions())
