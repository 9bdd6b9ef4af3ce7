"""Small Arrow tables for the tests on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

TIME = pa.timestamp("us", "UTC")
SECOND = 1_000_000


def stamps(seconds: Sequence[float | None], kind: pa.DataType = TIME) -> pa.Array:
    """Event times, in seconds since 1970."""
    return pa.array([None if s is None else round(s * SECOND) for s in seconds], pa.int64()).cast(kind)


def events(keys: Sequence[Any], seconds: Sequence[float | None], values: Sequence[Any]) -> pa.Table:
    """Rows with columns k, ts and v."""
    return pa.table({"k": pa.array(keys, pa.int64()), "ts": stamps(seconds), "v": pa.array(values, pa.int64())})
