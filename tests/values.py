"""Random columns out of one string of random bytes: one draw for a table is much quicker than one for every value, and
shrinks as well. A value is picked by a number below 65,536."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

Pick: TypeAlias = Callable[[int], Any]


def one_of(*values: Any) -> Pick:
    return lambda number: values[number % len(values)]


def between(low: int, high: int) -> Pick:
    return lambda number: low + number % (high - low + 1)


def or_null(pick: Pick, one_in: int) -> Pick:
    return lambda number: None if number % one_in == one_in - 1 else pick(number // one_in)


def times(middle: int, spread: int) -> Pick:
    """Half of them at one of nine moments, so that some are equal or lie on a bound."""

    def pick(number: int) -> int:
        offset = number // 2 % 9 * spread // 4 if number % 2 else number * 2 * spread // 65_535
        return middle - spread + offset

    return pick


@st.composite
def table(draw: Any, schema: pa.Schema, picks: Mapping[str, Pick] | Sequence[Pick], most: int) -> pa.Table:
    """At most so many rows; times are picked in microseconds. Columns of one name need picks in order."""
    named = [picks[field.name] for field in schema] if isinstance(picks, Mapping) else picks
    count = draw(st.integers(0, most))
    size = 2 * count * len(schema)
    numbers = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), "<u2").reshape(len(schema), count).tolist()
    columns = []
    for field, pick, chosen in zip(schema, named, numbers):
        values = [pick(number) for number in chosen]
        timed = pa.types.is_timestamp(field.type)
        columns.append(pa.array(values, pa.int64()).cast(field.type) if timed else pa.array(values, field.type))
    return pa.table(columns, schema=schema)
