"""Sums that are larger than their type: Arrow and NumPy go on with what is left of them, Spark does not.

Of decimals every such sum is an error, of whole numbers where the session is strict (ANSI); otherwise these wrap, as
Spark's do. Tasks of the JVM find their own, in `fluxen.spark.plan.partials`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.arrays import Ints
from fluxen.errors import QueryError
from fluxen.operators.aggregate.measures import Measure

__all__ = ["check_sums"]

_HALF = 1 << 31


def check_sums(measure: Measure, values: Sequence[pa.ChunkedArray], starts: Ints, counts: Ints) -> None:
    """Raise if the sum of some group is too large for the column's type."""
    for column in values:
        decimal = pa.types.is_decimal(column.type)
        if not decimal and not (measure.strict and pa.types.is_integer(column.type)):
            continue
        if _near(column, int(counts.max(initial=0))) and (_decimals if decimal else _integers)(column, starts, counts):
            what = f"{measure.kind}({measure.column})"
            raise QueryError(f"{what}: a sum is larger than {column.type} holds; cast to a type with more room")


def _near(column: pa.ChunkedArray, rows: int) -> bool:
    """Whether so many of the largest value would be too much: cheap, and rarely so."""
    least, most = (end.as_py() for end in pc.min_max(column).values())
    if least is None or rows < 2:
        return False
    largest = max(abs(int(least)), abs(int(most))) + 1
    kind = column.type
    limit = 10 ** (kind.precision - kind.scale) if pa.types.is_decimal(kind) else 2**63
    return largest * rows >= limit


def _integers(column: pa.ChunkedArray, starts: Ints, counts: Ints) -> bool:
    """Added in halves, which have room."""
    values = pc.fill_null(column, 0).to_numpy().astype(np.int64)
    low = np.add.reduceat(values & (2 * _HALF - 1), starts)
    high = np.add.reduceat(values >> 32, starts) + (low >> 32)
    return bool(((high < -_HALF) | (high >= _HALF)).any())


def _decimals(column: pa.ChunkedArray, starts: Ints, counts: Ints) -> bool:
    group = np.repeat(np.arange(len(starts)), counts)
    wide = column.cast(pa.decimal256(76, column.type.scale))
    sums = pa.table({"g": group, "v": wide}).group_by("g", use_threads=False).aggregate([("v", "sum")]).column("v_sum")
    try:
        sums.cast(column.type)
    except pa.ArrowInvalid:
        return True
    return False
