"""Three streams whose rates change under way, with one of two sites busier than the other.

Rows of a often find b or c but seldom both, so joining a with b first, as the first tree and
Spark's chained joins do, makes pairs of which few become results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from fluxen_lab.datagen.hashing import xxhash64
from fluxen_lab.datagen.streams import StreamSpec, batch_table, write_tables
from fluxen_lab.datagen.workloads import Workload

__all__ = ["REPLAN", "Changing"]

_SECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Changing(Workload):
    """Streams whose rates change and whose keys load the first of two sites. `rows` of a stream are those of a."""

    change: int
    """batches before the rates change"""
    early: float = 0.1
    """share of the rows that every stream has before"""
    slow: float = 0.05
    """share of the rows that every stream but the first has after"""
    hot: float = 0.5
    """share of the rows that the first site gets besides its half of the others"""
    shared: float = 0.002
    """share of the rows of b that have a key of c, and the other way round"""

    @property
    def rows(self) -> int:
        return sum(sum(self.counts(number)) for number in range(self.batches))

    def counts(self, batch: int) -> list[int]:
        """Rows of each stream in one batch."""
        full = [stream.rows // self.batches for stream in self.streams]
        share = [self.early] * len(full) if batch < self.change else [1.0, *[self.slow] * (len(full) - 1)]
        return [max(1, round(count * part)) for count, part in zip(full, share)]

    def write(self, directory: Path) -> None:
        for number, stream in enumerate(self.streams):
            tables = [self._table(number, batch, self.counts(batch)[number]) for batch in range(self.batches)]
            write_tables(tables, directory / stream.name)

    def _table(self, number: int, batch: int, count: int) -> pa.Table:
        stream = self.streams[number]
        table = batch_table(replace(stream, rows=count * self.batches), batch, self.batches)
        rng = np.random.default_rng([stream.seed, batch, 1])
        odd = rng.random(count) < (0.5, self.shared, 1 - self.shared)[number]
        # of two sites, the first has the lower half of the hashes
        first = rng.random(count) < self.hot
        key = np.zeros(count, dtype=np.int64)
        for parity in (0, 1):
            every = np.arange(parity, stream.keys, 2, dtype=np.int64)
            mine = odd == bool(parity)
            drawn = np.where(first, rng.choice(every[xxhash64(every) < 0], count), rng.choice(every, count))
            key[mine] = drawn[mine]
        return table.set_column(0, "key", pa.array(key))


REPLAN = Changing(
    name="replan",
    streams=tuple(
        StreamSpec(name=name, rows=14 * 100_000, keys=2_000, skew=0.0, span_us=70 * _SECOND, text=True, seed=seed)
        for name, seed in (("a", 81), ("b", 82), ("c", 83))
    ),
    batches=14,
    change=4,
    bound_us=10 * _SECOND,
    shrink=("keys",),
)
