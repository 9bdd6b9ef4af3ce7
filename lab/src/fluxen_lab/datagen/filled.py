"""A stream that fills the state of a join, most of it in one partition group, and one that probes it from then on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from fluxen.arrays import Ints
from fluxen.state.routing import base_group
from fluxen_lab.datagen.hashing import xxhash64
from fluxen_lab.datagen.streams import START_US, StreamSpec, hex_strings, write_tables
from fluxen_lab.datagen.workloads import Workload

__all__ = ["FILLING", "MOVE", "PARTITIONS", "Filled"]

PARTITIONS = 4
FILLING = 4
"""Batches that fill the state; they are not measured."""
_KEPT = (0.625, 0.125, 0.125, 0.125)
"""Share of the state in each group; the first two begin at one site, the others at the other."""
_PROBED = (0.2, 0.4, 0.2, 0.2)
"""Share of a batch's rows: the busier site has three fifths of them before the move and after it."""
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled(Workload):
    """Some batches of rows that stay in the state, most of them in group 0, then small batches that probe it."""

    text: int
    """characters of a row's payload"""

    def write(self, directory: Path) -> None:
        kept, probing = self.streams
        keys = self._keys(kept)
        write_tables(self._kept(kept, keys), directory / kept.name)
        write_tables(self._probing(probing, keys), directory / probing.name)

    def _keys(self, spec: StreamSpec) -> Ints:
        """One key per row, so many of each group."""
        every = np.arange(8 * spec.rows, dtype=np.int64)
        group = base_group(xxhash64(every), PARTITIONS)
        chosen = [every[group == number][: round(share * spec.rows)] for number, share in enumerate(_KEPT)]
        return np.random.default_rng(spec.seed).permutation(np.concatenate(chosen))

    def _kept(self, spec: StreamSpec, keys: Ints) -> Iterator[pa.Table]:
        parts = np.array_split(keys, FILLING)
        for batch in range(self.batches):
            rng = np.random.default_rng([spec.seed, batch])
            yield _table(parts[batch] if batch < FILLING else keys[:0], batch, rng, self.text)

    def _probing(self, spec: StreamSpec, keys: Ints) -> Iterator[pa.Table]:
        group = base_group(xxhash64(keys), PARTITIONS)
        each = spec.rows // (self.batches - FILLING)
        for batch in range(self.batches):
            rng = np.random.default_rng([spec.seed, batch])
            asked = [rng.choice(keys[group == number], round(share * each)) for number, share in enumerate(_PROBED)]
            yield _table(np.concatenate(asked) if batch >= FILLING else keys[:0], batch, rng, text=8)


def _table(keys: Ints, batch: int, rng: np.random.Generator, text: int) -> pa.Table:
    times = START_US + batch * _SECOND + np.arange(len(keys))
    return pa.table(
        {
            "key": pa.array(keys),
            "ts": pa.array(times, type=pa.timestamp("us", tz="UTC")),
            "value": pa.array(rng.integers(0, 1 << 20, len(keys), dtype=np.int64) / 64.0),
            "text": hex_strings(rng, len(keys), text),
        }
    )


def _spec(name: str, rows: int, seed: int) -> StreamSpec:
    return StreamSpec(name=name, rows=rows, keys=rows, skew=0.0, span_us=_SECOND, text=True, seed=seed)


# rows of about 1 KB, 160,000 of them, 100,000 in group 0
MOVE = Filled(
    name="move",
    streams=(_spec("a", 160_000, 91), _spec("b", 36 * 1_200, 92)),
    batches=FILLING + 36,
    text=1_000,
)
