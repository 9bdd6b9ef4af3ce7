"""What partition groups and heavy keys cost their sites, per resource: measured, smoothed, and how sure it is.

Gedik's three resources (section 3.1) as a running query sees them:

    rows     communication: rows as they come to the site, those of one key perhaps combined before
    work     computation: these rows and the results made of them
    bytes    memory: state

Which of them count follows from the operator, as beta does in the paper: a join's results grow faster than its rows
and its state grows with them; an aggregate keeps a constant amount per key and gives a constant amount of work per
row, so balancing its rows balances all there is. `fluxen.control.keys.repartition` decides what to do about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fluxen.arrays import Floats, Ints, Json
from fluxen.control.stats import per_group
from fluxen.partitioning import Resources
from fluxen.state.record import SiteRecord
from fluxen.state.routing import Routing, base_group

ROWS, WORK, BYTES = "rows", "work", "bytes"
DECAY = 0.9
"""Weight of the past in the smoothed loads of a group; of the first batches all count alike."""
ROUGHLY = 3
"""Decimals kept of smoothed loads: they are stored with every epoch."""


def balanced(resources: Resources) -> tuple[str, ...]:
    """The resources to balance: constant ones balance themselves, equal ones need no second look (section 4.4)."""
    work = (WORK,) if resources.computation != resources.communication else ()
    return (ROWS, *work, *((BYTES,) if resources.memory != "constant" else ()))


def memory_alpha(held: float, capacity: Floats, otherwise: float) -> float:
    """Tolerated ratio of state between sites: where memory is limited, as much as keeps every site within it.

    Gedik's section 3.1: with x bytes in all and y at each of N sites, (N - 1) y / (x - y).

    >>> round(memory_alpha(10.0, np.full(4, 3.0), 2.0), 2)
    1.29
    """
    least, sites = float(capacity.min(initial=np.inf)), len(capacity)
    if not np.isfinite(least) or least >= held:
        return otherwise
    return float(max(1.05, (sites - 1) * least / (held - least)))


@dataclass(slots=True, kw_only=True)
class GroupLoads:
    """Smoothed loads per partition group and their variance from batch to batch."""

    mean: dict[str, Floats] = field(default_factory=dict)
    variance: dict[str, Floats] = field(default_factory=dict)
    seen: int = 0
    row_bytes: float = 0.0
    """bytes of state per row of state"""

    def observe(self, routing: Routing, records: Sequence[SiteRecord]) -> None:
        """Take in one batch."""
        self.sized(routing.size)
        rows, out, held = (per_group(records, name, routing.size) for name in ("arrived", "rows_out", "bytes"))
        weight = self.past
        for name, values in ((ROWS, rows), (WORK, rows + out)):
            off = values - self.mean[name]
            spread = weight * (self.variance[name] + (1 - weight) * off * off) if self.seen else values
            self.variance[name] = _rounded(spread)
            self.mean[name] = _rounded(weight * self.mean[name] + (1 - weight) * values)
        self.mean[BYTES], self.variance[BYTES] = held, np.zeros(routing.size)
        stored = sum(side.state_rows for record in records for side in record.sides)
        self.row_bytes = float(held.sum()) / max(stored, 1)
        self.seen += 1

    @property
    def past(self) -> float:
        """The weight of what is known beside the next batch."""
        return min(DECAY, self.seen / (self.seen + 1))

    def sized(self, size: int) -> None:
        """Room for groups that were added."""
        for columns in (self.mean, self.variance):
            for name in (ROWS, WORK, BYTES):
                column = columns.get(name, np.zeros(0))
                columns[name] = np.append(column, np.zeros(max(0, size - len(column))))

    def noise(self, name: str, groups: Ints) -> float:
        """Standard deviation of the smoothed load of these groups together; of rows at least that of chance arrival."""
        if name == BYTES:  # state is made of rows
            rows = max(float(self.mean[ROWS][groups].sum()), 1e-9)
            return self.noise(ROWS, groups) * float(self.mean[BYTES][groups].sum()) / rows
        floor = self.mean[name][groups].sum() if name == ROWS else 0.0
        total = max(float(self.variance[name][groups].sum()), float(floor))
        return float(np.sqrt(total / max(1.0, min(self.seen, (1 + DECAY) / (1 - DECAY)))))

    def fold(self, group: int, base: int) -> None:
        """A key has gone back to its ordinary group."""
        for columns in (self.mean, self.variance):
            for column in columns.values():
                column[base] += column[group]
                column[group] = 0.0

    def split(self, group: int, base: int, loads: dict[str, float]) -> None:
        """A key with these loads has left its ordinary group."""
        for name, load in loads.items():
            part = min(1.0, load / max(float(self.mean[name][base]), 1e-9))
            for columns in (self.mean, self.variance):
                columns[name][group] = part * columns[name][base]
                columns[name][base] -= columns[name][group]

    def to_dict(self) -> Json:
        return {
            "mean": {name: self.mean[name].tolist() for name in self.mean},
            "variance": {name: self.variance[name].tolist() for name in (ROWS, WORK) if name in self.variance},
            "seen": self.seen,
            "row_bytes": self.row_bytes,
        }

    @staticmethod
    def from_dict(data: Json) -> GroupLoads:
        mean = {name: np.array(values, dtype=np.float64) for name, values in data["mean"].items()}
        variance = {name: np.array(values, dtype=np.float64) for name, values in data["variance"].items()}
        if BYTES in mean:
            variance[BYTES] = np.zeros(len(mean[BYTES]))
        return GroupLoads(mean=mean, variance=variance, seen=data["seen"], row_bytes=data["row_bytes"])


def key_loads(routing: Routing, groups: GroupLoads, keys: Ints, rows: Floats, held: Floats) -> dict[str, Floats]:
    """Loads of keys that still belong to ordinary groups, from their rows per batch and bytes; results by formula.

    Of a group's results a key has the part that the square of its rows is of the sum of squares, the rest of the group
    counted as keys like its rarest heavy one. What a key has is never more than what its group has.
    """
    base = base_group(keys, routing.partitions).astype(np.int64)
    of_group = {name: groups.mean[name] for name in (ROWS, WORK, BYTES)}
    size = len(of_group[ROWS])
    rows = _within(rows, base, of_group[ROWS])
    squares = np.zeros(size)
    np.add.at(squares, base, rows * rows)
    rarest = np.full(size, np.inf)
    np.minimum.at(rarest, base, rows)
    rest = of_group[ROWS].copy()
    np.subtract.at(rest, base, rows)
    rest = np.maximum(rest, 0.0)
    squares += rest * np.minimum(rarest, rest)
    results = (of_group[WORK] - of_group[ROWS])[base]
    share = np.divide(rows * rows, squares[base], out=np.zeros(len(keys)), where=squares[base] > 0)
    return {
        ROWS: rows,
        WORK: rows + np.maximum(results, 0.0) * share,
        BYTES: _within(held, base, of_group[BYTES]),
    }


def _rounded(values: Floats) -> Floats:
    return np.round(values, ROUGHLY).astype(np.float64)


def _within(values: Floats, base: Ints, limit: Floats) -> Floats:
    """The values, scaled down where those of one group sum up to more than the group has."""
    total = np.bincount(base, weights=values, minlength=len(limit))
    factor = np.divide(limit, total, out=np.ones(len(limit)), where=total > limit)
    scaled: Floats = values * factor[base]
    return scaled
