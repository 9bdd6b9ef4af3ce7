"""Random first rows of keys with their data and expected results. Other queries: tests/cases.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import fluxen.testing as ft
from fluxen.testing import oracle
from tests.aggregate_cases import COLUMNS, prepared
from tests.cases import SECOND, TIME, Case, cut, key_columns, schema_of

DIRECTIONS = ["asc", "desc", "asc_nulls_last", "desc_nulls_first"]


@st.composite
def top_cases(draw: Any) -> Case:
    """One to four rows per key, ordered by any columns, NaN and nulls among their values; with and without an end."""
    keys = draw(key_columns())
    form = draw(st.sampled_from(["ever", "ever", "ttl", "by time", "by window"]))
    schema, grouped = schema_of(keys, ("ts", TIME), *COLUMNS), list(keys)
    lateness = draw(st.sampled_from([0, 3 * SECOND]))
    batches = [[prepared(batch[0], form, SECOND)] for batch in cut(draw, [schema], keys, rows=12)]
    named = draw(st.lists(st.sampled_from(["v", "x", "s", "m", "p", "y", "ts"]), min_size=1, max_size=3, unique=True))
    order = [(name, draw(st.sampled_from(DIRECTIONS))) for name in named]
    n = draw(st.integers(1, 4))
    words: dict[str, Any] = {}
    asked: dict[str, Any] = {"lateness": lateness}
    if form == "ttl":
        asked["ttl"] = draw(st.sampled_from([SECOND, 4 * SECOND]))
        words["ttl"] = f"{asked['ttl']} microseconds"
    elif form != "ever":
        words["closes"] = asked["closes"] = "ts" if form == "by time" else "w"
        grouped = draw(st.permutations([*keys, words["closes"]]))
    words["lateness"] = f"{lateness} microseconds"
    bits = draw(st.sampled_from([64, 64, 3]))
    stage = ft.top(batches[0][0].schema, grouped, n, order, "ts", **words, bits=bits)

    def expected() -> list[dict[str, Any]]:
        return oracle.top([batch[0] for batch in batches], grouped, n, order, "ts", **asked)

    def query(streams: list[Any]) -> Any:
        import fluxen
        from fluxen.engine.options import AdaptOptions
        from fluxen.spark.plan.base import Given
        from fluxen.spark.plan.top import TopWords, top_stage

        built = top_stage(Given(df=streams[0]), TopWords(by=grouped, n=n, order=order, time="ts", **words))
        return fluxen.Query(last=built, options=AdaptOptions())

    return Case([stage], batches, expected, query)
