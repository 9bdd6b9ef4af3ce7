"""The papers' synthetic streams (Liu-07 section 3.1, Liu-05 section 3.4), with event time for a clock.

Three streams share a join key. The *join rate* r of a partition says how its join multiplicative factor grows: after
every k tuples of a stream (the *tuple range*) each of its keys has been seen r more times. A partition that gets the
share s of the tuples therefore has s k / r keys. Arrivals are Poisson; an hour of the paper is a few dozen
micro-batches.

To give each partition group its own rates the generator must know which keys fall into it, so it computes Spark's hash
of a long itself (`hashing`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from fluxen.arrays import Floats, Ints
from fluxen.errors import ConfigError
from fluxen.state.routing import base_group
from fluxen_lab.datagen.hashing import xxhash64

__all__ = ["STREAMS", "Workload", "alternating", "drifting", "thirds"]

STREAMS = ("a", "b", "c")
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Three streams for a three-way join.

    rows         rows per stream and batch, on average
    seconds      event time a batch covers
    tuple_range  k
    join_rates   r of each partition group
    ranges       factor on k for each partition group: a group with a shorter range repeats its keys sooner
    weights      batch -> relative arrival rate of each group; None for equal rates
    active       batch -> share of each group's keys in use, first ones first; None for all. It changes how productive
                 a group is while its rate stays the same.
    text         bytes of payload per row
    """

    partitions: int = 48
    batches: int = 24
    rows: int = 900
    seconds: float = 150.0
    tuple_range: int = 6000
    join_rates: tuple[float, ...] | None = None
    ranges: tuple[float, ...] | None = None
    weights: Callable[[int], Floats] | None = None
    active: Callable[[int], Floats] | None = None
    text: int = 24
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("join_rates", "ranges"):
            given = getattr(self, name)
            if given is not None and len(given) != self.partitions:
                raise ConfigError(f"{name} has {len(given)} entries for {self.partitions} partition groups")

    def scaled(self, share: float) -> Workload:
        """The same with fewer batches, for tests."""
        return replace(self, batches=max(3, round(self.batches * share)))

    @property
    def state_bytes(self) -> int:
        """What all rows take as active state: hash, time, string offset and text, and the key once."""
        return self.batches * self.rows * (len(STREAMS) * (8 + 8 + 4 + self.text) + 8)

    @property
    def keys_per_group(self) -> Ints:
        rates = np.ones(self.partitions) if self.join_rates is None else np.array(self.join_rates)
        factors = np.ones(self.partitions) if self.ranges is None else np.array(self.ranges)
        return np.maximum(np.round(self.tuple_range * factors / self.partitions / rates), 1).astype(np.int64)

    def tables(self) -> dict[str, list[pa.Table]]:
        """Per stream, one table per batch."""
        rng = np.random.default_rng(self.seed)
        keys, starts = self._keys()
        made: dict[str, list[pa.Table]] = {name: [] for name in STREAMS}
        for batch in range(self.batches):
            weights = np.ones(self.partitions) if self.weights is None else self.weights(batch)
            for name in STREAMS:
                made[name].append(self._batch(rng, batch, weights / weights.sum(), keys, starts))
        return made

    def _batch(self, rng: np.random.Generator, batch: int, share: Floats, keys: Ints, starts: Ints) -> pa.Table:
        counts = rng.poisson(self.rows * share)
        group = np.repeat(np.arange(self.partitions), counts)
        used = self.keys_per_group.astype(np.float64)
        if self.active is not None:
            used = np.maximum(np.round(used * self.active(batch)), 1)
        key = keys[starts[group] + np.floor(rng.random(len(group)) * used[group]).astype(np.int64)]
        key = rng.permutation(key)
        span = self.seconds * 1e6
        ts = np.sort((batch * span + rng.random(len(key)) * span).astype(np.int64))
        text = rng.bytes((self.text + 1) // 2 * len(key)).hex()
        width = (self.text + 1) // 2 * 2
        payload = [text[i : i + width] for i in range(0, width * len(key), width)]
        return pa.table({"key": key, "ts": pa.array(ts).cast(_TIME), "text": pa.array(payload, pa.string())})

    def _keys(self) -> tuple[Ints, Ints]:
        """Enough keys of every group, group after group, and where each group's start."""
        wanted = self.keys_per_group
        candidates = np.arange(int(3 * wanted.max() * self.partitions + 1000 * self.partitions), dtype=np.int64)
        group = base_group(xxhash64(candidates), self.partitions)
        order = np.argsort(group, kind="stable")
        first = np.searchsorted(group[order], np.arange(self.partitions))
        picked = [candidates[order[first[g] : first[g] + wanted[g]]] for g in range(self.partitions)]
        return np.concatenate(picked), np.concatenate(([0], np.cumsum(wanted)[:-1]))


def thirds(partitions: int, rates: tuple[float, float, float]) -> tuple[float, ...]:
    """Each third of the groups at another rate, spread evenly over the sites."""
    return tuple(rates[group % 3] for group in range(partitions))


def alternating(partitions: int, period: int, factor: float = 10.0) -> Callable[[int], Floats]:
    """The two halves of the groups take turns at `factor` times the other's rate: half a period first, then full."""

    def weights(batch: int) -> Floats:
        first = ((batch + period - period // 2) // period) % 2 == 0
        half = np.arange(partitions) < partitions // 2
        return np.where(half == first, factor, 1.0)

    return weights


def drifting(partitions: int, period: int, hot: float = 0.25) -> Callable[[int], Floats]:
    """Every `period` batches another third of the groups is productive: only a `hot` share of its keys is in use."""

    def active(batch: int) -> Floats:
        third = (batch // period) % 3
        return np.where(np.arange(partitions) % 3 == third, hot, 1.0)

    return active
