"""Random outer, semi and anti joins with their data and expected results; tests/cases.py has the other queries."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import fluxen.testing as ft
from fluxen.operators.aggregate import functions as fx
from fluxen.operators.join.matching import AllOf, AnyOf, Compare, Holds, IsNull, Matching, Not, Of
from fluxen.operators.join.outer import HOWS
from fluxen.testing import oracle
from tests.cases import KEYS, SECOND, TIME, Case, key_columns, schema_of
from tests.values import Pick, between, one_of, or_null, table, times

NAMES = ("a", "b")
COLUMNS = {"v": pa.int64(), "x": pa.float64(), "s": pa.string(), "f": pa.bool_()}
VALUES = {
    "v": between(-2, 2),
    "x": one_of(-1.0, -0.0, 0.0, 1.5, math.nan, math.inf),
    "s": one_of("", "x", "é"),
    "f": one_of(False, True),
}


@st.composite
def matchings(draw: Any, depth: int = 2) -> Matching:
    """An expression over columns of either side."""
    kinds = ["compare", "compare", "holds", "null", "time"] + (["not", "and", "or"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    of = lambda name: Of(side=draw(st.integers(0, 1)), column=name)  # noqa: E731
    if kind in ("compare", "time"):
        name = "ts" if kind == "time" else draw(st.sampled_from(sorted(COLUMNS)))
        op = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]))
        return Compare(left=of(name), op=op, right=of(name))
    if kind == "holds":
        return Holds(column=of("f"))
    if kind == "null":
        return IsNull(column=of(draw(st.sampled_from(sorted(COLUMNS)))))
    if kind == "not":
        return Not(part=draw(matchings(depth - 1)))
    parts = tuple(draw(st.lists(matchings(depth - 1), min_size=1, max_size=3)))
    return AllOf(parts=parts) if kind == "and" else AnyOf(parts=parts)


def truth(data: dict[str, Any], *rows: dict[str, Any]) -> bool | None:
    """What SQL says of an expression, written down as JSON, about a pair of rows."""
    of = lambda operand: rows[operand[0]][operand[1]]  # noqa: E731
    if "compare" in data:
        return _compared(data["compare"], of(data["left"]), of(data["right"]))
    if "holds" in data:
        return of(data["holds"])
    if "is null" in data:
        return of(data["is null"]) is None
    if "not" in data:
        inner = truth(data["not"], *rows)
        return None if inner is None else not inner
    decisive = "or" in data
    parts = [truth(part, *rows) for part in data["or" if decisive else "and"]]
    return decisive if decisive in parts else None if None in parts else not decisive


def _compared(op: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return (left is None and right is None) if op == "<=>" else None
    a, b = ((math.isnan(v), 0.0 if math.isnan(v) else v) if isinstance(v, float) else v for v in (left, right))
    return {"=": a == b, "<=>": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def outer_tables(schema: pa.Schema, keys: dict[str, str], middle: int, spread: int, nulls: bool) -> Any:
    """At most five rows with event times around `middle`."""

    def pick(name: str) -> Pick:
        if name not in keys and name != "ts":
            return or_null(VALUES[name], 4)
        value = times(middle, spread) if name == "ts" else KEYS[keys[name]][1]
        return or_null(value, 4) if nulls else value

    return table(schema, {field.name: pick(field.name) for field in schema}, 5)


@st.composite
def limits(draw: Any, how: str) -> tuple[dict[str, Any], tuple[int | None, int | None]]:
    """Bounds on b.ts - a.ts as options and as numbers; open where that kind of join allows it."""
    if draw(st.booleans()):
        span = draw(st.sampled_from([SECOND, 3 * SECOND, 20 * SECOND]))
        return {"within": f"{span} microseconds"}, (-span, span)
    low = draw(st.integers(-6, 4))
    high = draw(st.integers(low, 8))
    opens = {"left": ["low"], "anti": ["low"], "right": ["high"], "full": [], "semi": ["low", "high", "both"]}[how]
    opened = draw(st.sampled_from(["none", "none", *opens]))
    ends = (None if opened in ("low", "both") else low, None if opened in ("high", "both") else high)
    words = tuple(None if end is None else f"{end} seconds" for end in ends)
    if draw(st.booleans()) or ends == (None, None):
        options: dict[str, Any] = {"between": {("b", "a"): words}}
    else:  # the same, seen from the other side
        turned = tuple(None if end is None else f"{-end} seconds" for end in ends[::-1])
        options = {"between": {("a", "b"): turned}}
    return options, (ends[0] and ends[0] * SECOND, ends[1] and ends[1] * SECOND)


@st.composite
def outer_cases(draw: Any, hows: tuple[str, ...] = HOWS, *, nulls: bool = True, dense: bool | None = None) -> Case:
    """A join with any `how`; without `nulls`, keys and times are all there."""
    how = draw(st.sampled_from(hows))
    dense = draw(st.booleans()) if dense is None else dense
    keys = {"k0": "boolean"} if dense else draw(key_columns())
    schema = schema_of(keys, ("ts", TIME), *COLUMNS.items())
    timed = draw(st.sampled_from([False, False, False, True])) if not nulls or how != "semi" else False
    on = [*keys, "ts"] if timed else list(keys)
    options, bounds = ({}, (0, 0)) if timed else draw(limits(how))
    if how == "semi" and not timed and draw(st.sampled_from([False, False, True])):
        options, bounds = {}, (None, None)
    lateness = draw(st.sampled_from([0, 2 * SECOND, 50 * SECOND]))
    spread, pace = draw(st.sampled_from([0, SECOND, 8 * SECOND])), draw(st.sampled_from([0, SECOND, 4 * SECOND]))
    lags = [draw(st.sampled_from([0, 0, 5 * SECOND])) for _ in NAMES]
    batches = [
        [draw(outer_tables(schema, keys, number * pace - lag, spread, nulls)) for lag in lags]
        for number in range(draw(st.integers(2, 8) if dense else st.integers(1, 5)))
    ]
    matching = draw(st.one_of(st.none(), matchings()))
    options |= {"how": how, "lateness": f"{lateness} microseconds"}
    bits = draw(st.sampled_from([64, 64, 3]))
    stage = ft.join(dict.fromkeys(NAMES, schema), on, "ts", bits=bits, matching=matching, **options)

    case = Case([stage], batches, list, list, ends=draw(st.booleans()), lateness=lateness)

    def expected() -> list[dict[str, Any]]:
        said = None if matching is None else matching.to_json()
        return oracle.outer(
            how,
            {name: [batch[i] for batch in batches] for i, name in enumerate(NAMES)},
            dict.fromkeys(NAMES, on),
            dict.fromkeys(NAMES, "ts"),
            bounds,
            matches=lambda left, right: said is None or truth(said, left, right) is True,
            lateness=lateness,
            everything=case.ends,
        )

    def query(streams: list[Any]) -> Any:
        import fluxen

        assert matching is None
        return fluxen.join(dict(zip(NAMES, streams)), on, "ts", **options)

    case.expected_rows, case.query = expected, query
    return case


@st.composite
def staged_outer_cases(draw: Any) -> Case:
    """Such a join that feeds windows over one of its times: rows that come out alone come late, but not too late."""
    joined = draw(outer_cases(nulls=False))
    joined.ends = True
    first = joined.stages[0].schema
    key, time = first.names[0], draw(st.sampled_from([name for name in first.names if name.endswith("ts")]))
    size = draw(st.sampled_from([SECOND, 3 * SECOND]))
    counted = {"n": fx.count(), "at": draw(st.sampled_from([fx.max, fx.min]))(time)}
    windows = ft.aggregate(first, key, time, window=f"{size} microseconds", **counted)

    def expected() -> list[dict[str, Any]]:
        rows = [pa.Table.from_pylist(joined.expected_rows(), schema=first)]
        return oracle.tumbling(rows, [key], time, size, 0, counted, everything=True)

    return Case([*joined.stages, windows], joined.batches, expected, joined.query, ends=True)
