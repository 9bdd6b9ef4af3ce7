"""Key hashes and event times of Arrow tables, as the JVM computes them of a DataFrame's rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fluxen.arrays import NO_TIME, Ints

__all__ = ["hashes", "times"]


def hashes(table: pa.Table, keys: Sequence[str], *, bits: int = 64) -> tuple[Ints, Ints]:
    """Two stable 64-bit hashes of each row's key; with few `bits`, the first one collides often."""
    known: dict[str, tuple[int, int]] = {}
    first, second = [], []
    for key in zip(*(table.column(name).to_pylist() for name in keys)):
        text = repr([value + 0.0 if isinstance(value, float) else value for value in key])
        if text not in known:
            digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
            spread = int.from_bytes(digest[:8], "big") >> (64 - bits) << (64 - bits)
            known[text] = (spread - 2**63, int.from_bytes(digest[8:], "big", signed=True))
        h, h2 = known[text]
        first.append(h)
        second.append(h2)
    return np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)


def times(table: pa.Table, time: str | None, default: int) -> Ints:
    """Event times in microseconds, `default` where null."""
    if time is None:
        return np.full(table.num_rows, NO_TIME, dtype=np.int64)
    column: Any = table.column(time).cast(pa.int64()).fill_null(default)
    values: Ints = column.to_numpy()
    return values
