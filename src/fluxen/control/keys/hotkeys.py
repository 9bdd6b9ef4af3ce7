"""Which keys are hot, and which isolated keys are not any more, from what sites report batch by batch.

A key's frequency is that of its rows in the source, kept in the sliding window of lossy counters of Gedik's section
4.1.2. A batch is counted as a whole, all sites at once, and the window holds several whole batches however large they
are: fed site by site, a large batch would leave only its last sites in the window. `fluxen.control.keys.repartition`
decides what to do about them, `fluxen.control.keys.loads` says what they cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluxen.arrays import Floats, Ints, Json
from fluxen.control.stats import per_group
from fluxen.sketches import LossyCounter, SlidingSketch
from fluxen.state.record import SiteRecord
from fluxen.state.routing import Routing

HEAVY_SHARE = 0.001
"""Share of a load from which a key is considered heavy."""
COOL = 0.25 * HEAVY_SHARE
"""Share of the rows that come to sites, and of the work, below which an isolated key is no longer worth it."""
QUIET = 24
"""Batches over which it must have been below; as many times more as it takes to see `WINDOW_ROWS`, up to eight."""
WINDOW_BATCHES, WINDOW_ROWS = 8, 50_000
"""The sketch hands over after so many batches and rows, or after eight times as many batches; it covers two to three
times as much."""
CERTAIN = 3.0
"""Standard deviations beyond which a difference is not chance."""
_OTHERS = -(2**63)
"""Stands for all rows whose keys the sites did not name."""


class HotKeys:
    """Frequent keys of the source, and what isolated ones have cost since they were judged last."""

    def __init__(self) -> None:
        self._sketch = SlidingSketch(LossyCounter(epsilon=HEAVY_SHARE / 4), window=WINDOW_ROWS)
        self._batches = 0  # since the sketch handed over
        self._source = 0.0
        """rows of the source per batch"""
        self._known: dict[int, tuple[float, float]] = {}
        """frequent key -> rows that come to its site per row of the source, bytes of its state"""
        self._since = [0.0, 0.0, 0.0]  # batches, rows and work since isolated keys were judged last
        self._done: dict[int, tuple[float, float]] = {}
        """isolated key -> its rows and work since then"""
        self._cold: list[int] = []

    def observe(self, routing: Routing, records: Sequence[SiteRecord], past: float) -> None:
        """Take in one batch; `past` is the weight of those before in what is smoothed."""
        total = sum(side.rows_in for record in records for side in record.sides)
        self._source += (1 - past) * (total - self._source)
        self._count(records, total)
        frequent = set(self._sketch.frequent(HEAVY_SHARE).keys.tolist())
        for record in records:
            heavy = record.heavy
            for h, n, arrived, held in zip(heavy.key, heavy.rows, heavy.arrived, heavy.bytes):
                if h in frequent:
                    self._known[h] = (arrived / n, float(held))
        self._known = {h: known for h, known in self._known.items() if h in frequent}
        self._cool(routing, records)

    def _count(self, records: Sequence[SiteRecord], total: int) -> None:
        keys = np.array([h for record in records for h in record.heavy.key], dtype=np.int64)
        rows = np.array([n for record in records for n in record.heavy.rows], dtype=np.int64)
        self._sketch.count(np.append(keys, _OTHERS), np.append(rows, max(0, total - int(rows.sum()))))
        self._batches += 1
        enough = self._batches >= WINDOW_BATCHES and self._sketch.since >= WINDOW_ROWS
        if enough or self._batches >= 8 * WINDOW_BATCHES:
            self._sketch.hand_over()
            self._batches = 0

    def _cool(self, routing: Routing, records: Sequence[SiteRecord]) -> None:
        """Sum up what each isolated key costs, and from time to time see which are not worth it any more."""
        rows = per_group(records, "arrived", routing.size)
        work = rows + per_group(records, "rows_out", routing.size)
        new = (0.0, 0.0) if not self._since[0] else (np.inf, np.inf)  # one that came meanwhile is not judged yet
        self._done = {
            h: (self._done.get(h, new)[0] + float(rows[group]), self._done.get(h, new)[1] + float(work[group]))
            for h, group in routing.own_groups().items()
        }
        self._since = [self._since[0] + 1, self._since[1] + float(rows.sum()), self._since[2] + float(work.sum())]
        # one that has gone back is judged anew if it comes again, and so is one that is hot again before it could
        self._cold = [h for h in self._cold if h in self._done and not self._warm(*self._done[h])]
        batches, seen, worked = self._since
        if batches >= QUIET and (seen >= WINDOW_ROWS or batches >= 8 * QUIET):
            self._cold = [h for h, cost in self._done.items() if cost[0] < COOL * seen and cost[1] < COOL * worked]
            self._since, self._done = [0.0, 0.0, 0.0], {}

    def _warm(self, rows: float, work: float) -> bool:
        """Whether a key with these costs since the last judgement is worth its group, and not by chance."""
        pairs = ((rows, self._since[1]), (work, self._since[2]))
        return any(cost > 0 and cost - CERTAIN * np.sqrt(cost) >= COOL * total for cost, total in pairs)

    def cold(self, routing: Routing) -> Ints:
        """Isolated keys that were not worth it when they were judged last."""
        keys = np.array(self._cold, dtype=np.int64)
        return keys[np.isin(keys, routing.explicit) & ~np.isin(keys, routing.dealt())]

    def frequent(self, routing: Routing) -> Ints:
        """Keys without a group of their own that are frequent, and not by chance."""
        found = self._sketch.frequent(HEAVY_SHARE)
        sure = found.counts - CERTAIN * np.sqrt(found.counts) >= 2 * COOL * self._sketch.total
        keys: Ints = found.keys[sure & ~np.isin(found.keys, routing.explicit) & (found.keys != _OTHERS)]
        return keys

    def rows(self, keys: Ints) -> Floats:
        """Rows per batch that come to sites of each key."""
        held = self._sketch.held()
        if not len(held.keys):
            return np.zeros(len(keys))
        at = np.minimum(np.searchsorted(held.keys, keys), len(held.keys) - 1)
        counts = np.where(held.keys[at] == keys, held.counts[at], 0)
        each = np.array([self._known.get(h, (1.0, 0.0))[0] for h in keys.tolist()], dtype=np.float64)
        found: Floats = counts * each * (self._source / max(self._sketch.total, 1))
        return found

    def bytes(self, keys: Ints) -> Floats:
        """State of each key without a group of its own, as its site reported it last; 0 if none did."""
        return np.array([self._known.get(h, (1.0, 0.0))[1] for h in keys.tolist()], dtype=np.float64)

    def to_dict(self) -> Json:
        return {
            "sketch": self._sketch.to_dict(),
            "batches": self._batches,
            "source": self._source,
            "known": [[h, *known] for h, known in self._known.items()],
            "since": self._since,
            "done": [[h, *cost] for h, cost in self._done.items() if cost[0] < np.inf],
            "cold": self._cold,
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> HotKeys:
        made = HotKeys()
        made._sketch = SlidingSketch.from_dict(data["sketch"])
        made._batches, made._source = data["batches"], data["source"]
        made._known = {h: (ratio, held) for h, ratio, held in data["known"]}
        made._since, made._cold = data["since"], data["cold"]
        made._done = {h: (rows, work) for h, rows, work in data["done"]}
        return made
