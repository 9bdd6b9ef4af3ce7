"""Rows of the windowed group-by of the Flux figures: uniform keys, one second of event time per batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["SECOND", "filling", "uniform"]

SECOND = 1_000_000
_TIME = pa.timestamp("us", "UTC")


def uniform(batches: int, rows: int, seed: int, keys: int = 20_000) -> list[pa.Table]:
    """Rows with uniform keys, one second of event time per batch."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(batches):
        ts = number * SECOND + np.sort(rng.integers(0, SECOND, rows))
        made.append(
            pa.table(
                {
                    "key": rng.integers(0, keys, rows),
                    "ts": pa.array(ts).cast(_TIME),
                    "value": rng.random(rows),
                }
            )
        )
    return made


def filling(keys: int) -> pa.Table:
    """One row of each key, at the beginning of time."""
    return pa.table(
        {
            "key": np.arange(keys),
            "ts": pa.array(np.zeros(keys, dtype=np.int64)).cast(_TIME),
            "value": np.ones(keys),
        }
    )
