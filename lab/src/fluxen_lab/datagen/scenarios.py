"""The streams of `fluxen bench adapt`: what a query meets in a day, in half a minute.

Rows come in batches of `rows // batches`, or a share of that while the load is low; keys are uniform, or Zipf's with
ranks that move on; while a hot key is there it has a share of every stream's rows. Which scenario does what is in
benchmarks/adapt.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from fluxen_lab.datagen.streams import START_US, StreamSpec, batch_table, write_tables
from fluxen_lab.datagen.workloads import Workload

__all__ = ["DRIFT", "HOG", "HOTKEY", "LOAD", "MEMORY", "MIXED", "Shaped"]

_SECOND = 1_000_000
_LOW = 0.1
"""Share of the rows while the load is low."""
_HOT_KEY = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped(Workload):
    """Streams that change under way. Spans are of batches, the first in and the last out."""

    hot: tuple[int, int] = (0, 0)
    hot_share: float = 0.0
    low: tuple[tuple[int, int], ...] = ()
    """when the load is a tenth"""
    cycle: int = 0
    """batches in which every key has once been the most popular; 0 for keys that stay what they are"""

    @property
    def rows(self) -> int:
        return sum(self.counts(batch) for batch in range(self.batches)) * len(self.streams)

    def counts(self, batch: int) -> int:
        """Rows of each stream in one batch."""
        full = self.streams[0].rows // self.batches
        return max(1, round(full * (_LOW if any(a <= batch < b for a, b in self.low) else 1.0)))

    def write(self, directory: Path) -> None:
        for stream in self.streams:
            tables = (self._table(stream, batch, self.counts(batch)) for batch in range(self.batches))
            write_tables(tables, directory / stream.name)

    def _table(self, stream: StreamSpec, batch: int, count: int) -> pa.Table:
        table = batch_table(replace(stream, rows=count * self.batches), batch, self.batches)
        # every batch begins at a moment of its own, however many rows the ones before had: times are in order
        ts = table.column("ts")
        begun = START_US + batch * (stream.span_us // self.batches)
        times = ts.cast(pa.int64()).to_numpy()
        table = table.set_column(1, "ts", pa.array(times - times.min() + begun).cast(ts.type))
        key = table.column("key").to_numpy().copy()
        if self.cycle:
            key = (key + stream.keys * (batch % self.cycle) // self.cycle) % stream.keys
        if self.hot[0] <= batch < self.hot[1]:
            rng = np.random.default_rng([stream.seed, batch, 2])
            key[rng.random(count) < self.hot_share] = _HOT_KEY
        return table.set_column(0, "key", pa.array(key))


def _rows(name: str, batches: int, rows: int, skew: float, **shape: object) -> Shaped:
    spec = StreamSpec(
        name="rows", rows=batches * rows, keys=100_000, skew=skew, span_us=batches * 10 * _SECOND, text=False, seed=131
    )
    return Shaped(name=name, streams=(spec,), batches=batches, **shape)  # type: ignore[arg-type]


def _pair(name: str, batches: int, rows: int, *, bound_us: int, skew: float = 0.0, **shape: object) -> Shaped:
    streams = tuple(
        StreamSpec(
            name=stream,
            rows=batches * rows,
            keys=50_000,
            skew=skew,
            span_us=batches * 10 * _SECOND,
            text=True,
            seed=141 + number,
            width=64,
        )
        for number, stream in enumerate("ab")
    )
    return Shaped(name=name, streams=streams, batches=batches, bound_us=bound_us, shrink=("keys",), **shape)  # type: ignore[arg-type]


HOG = _rows("hog", 24, 150_000, 0.0)
HOTKEY = _pair("hotkey", 24, 40_000, bound_us=_SECOND // 2, hot=(6, 18), hot_share=0.04)
# a bound longer than the stream: the state is all there has been
MEMORY = _pair("memory", 20, 40_000, bound_us=1_000 * _SECOND)
DRIFT = _rows("drift", 24, 150_000, 1.0, cycle=48)
LOAD = _rows("load", 30, 150_000, 0.0, low=((0, 10), (20, 30)))
MIXED = _pair(
    "mixed", 30, 40_000, bound_us=40 * _SECOND, skew=0.5, hot=(20, 26), hot_share=0.01, low=((14, 18),), cycle=60
)
