"""The queries of the soak test and the rows they get: a fixed set of keys whose popularity drifts.

Every batch is a second of event time and has as many rows as any other, so whatever a query keeps in its steady state
it keeps for ever: what grows is a fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.bench.data import START_US, zipf_cdf, zipf_ranks

__all__ = ["QUERIES", "SCHEMA", "Drift", "Soaked"]

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("key", pa.int64()), ("ts", TIME), ("value", pa.float64())])
SECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """One query. `memory` is what a site may hold, as a share of what it would hold without a limit."""

    form: Literal["join", "tree", "tumbling", "last", "distinct"]
    inputs: int = 1
    policy: str = "Static"
    partitioner: str | None = None
    memory: float | None = None


QUERIES: Mapping[str, Soaked] = {
    "join-local-disk": Soaked(form="join", inputs=2, policy="LocalDisk", memory=0.4),
    "join-lazy-disk": Soaked(form="join", inputs=3, policy="LazyDisk", memory=0.4),
    "join-active-disk": Soaked(form="join", inputs=2, policy="ActiveDisk", memory=0.4),
    "join-forecast-disk": Soaked(form="join", inputs=2, policy="ForecastDisk", memory=0.4),
    "tumbling": Soaked(form="tumbling", partitioner="Readj"),
    "last": Soaked(form="last", policy="FluxLoad"),
    "distinct": Soaked(form="distinct", policy="FluxMemory", memory=0.6),
    "tree": Soaked(form="tree", inputs=3, policy="FluxLoad"),
}
WITHIN = 20
"""Seconds of event time that joined rows may lie apart, and that distinct remembers a key."""
LAG = 3
"""Seconds by which each input is behind the one before it."""
WINDOW = 10
"""Seconds of a tumbling window."""
LAST = 10
"""Rows per key that `last` averages over."""


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

    def pairs(self, batches: int) -> int:
        """Results of a join of two inputs over so many batches: rows of one key at most `WITHIN` seconds apart."""
        a, b = (pa.concat_tables(self.table(stream, batch) for batch in range(batches)) for stream in (0, 1))
        found = 0
        for key in range(self.keys):
            left, right = (
                np.sort(side.filter(pc.equal(side.column("key"), key)).column("ts").cast(pa.int64()).to_numpy())
                for side in (a, b)
            )
            reach = WITHIN * SECOND
            found += int(np.searchsorted(right, left + reach, side="right").sum())
            found -= int(np.searchsorted(right, left - reach, side="left").sum())
        return found
