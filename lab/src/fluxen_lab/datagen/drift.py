"""A fixed set of keys whose popularity drifts: the rows of the soak test.

Every batch is a second of event time and has as many rows as any other, so whatever a query keeps in its steady state
it keeps for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen_lab.datagen.streams import START_US, zipf_cdf, zipf_ranks

__all__ = ["SCHEMA", "Drift"]

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("key", pa.int64()), ("ts", TIME), ("value", pa.float64())])
SECOND = 1_000_000
LAG = 3
"""Seconds by which each input is behind the one before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The rows of one run: Zipf's law over the keys, which take turns in being popular.

    `cycle` is the number of batches after which the same keys are popular again: several times a quarter of the run, so
    that its quarters are alike.
    """

    keys: int
    rows: int
    cycle: int
    skew: float = 1.0

    def table(self, stream: int, batch: int) -> pa.Table:
        rng = np.random.default_rng([stream, batch])
        ranks = zipf_ranks(rng, self.rows, zipf_cdf(self.keys, self.skew))
        keys = (ranks + self.keys * (batch % self.cycle) // self.cycle) % self.keys
        late = stream * LAG * SECOND
        times = START_US + batch * SECOND - late + np.sort(rng.integers(0, SECOND, self.rows))
        return pa.table(
            [pa.array(keys), pa.array(times).cast(TIME), pa.array(rng.integers(0, 1 << 20, self.rows) / 64.0)],
            schema=SCHEMA,
        )

    def pairs(self, batches: int, within: int) -> int:
        """Results of a join of two inputs over so many batches: rows of one key at most `within` seconds apart."""
        a, b = (pa.concat_tables(self.table(stream, batch) for batch in range(batches)) for stream in (0, 1))
        found = 0
        for key in range(self.keys):
            left, right = (
                np.sort(side.filter(pc.equal(side.column("key"), key)).column("ts").cast(pa.int64()).to_numpy())
                for side in (a, b)
            )
            reach = within * SECOND
            found += int(np.searchsorted(right, left + reach, side="right").sum())
            found -= int(np.searchsorted(right, left - reach, side="left").sum())
        return found
