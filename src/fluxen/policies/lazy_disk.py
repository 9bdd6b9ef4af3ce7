"""LazyDisk: relocate as long as the cluster has memory, spill only where it has none (Liu-07 Algorithm 1).

Spills are those of `fluxen.policies.local_disk`. Relocation is pairwise: when the least loaded site holds less than
`threshold` of what the most loaded one does, half the difference moves, productive groups first, and not again within
`gap` seconds. The two never overlap on a site: a site that relocates does not spill in the same step (the modes of the
paper), and a group with generations on disk does not relocate (Liu-05 section 6).

>>> policy = LazyDisk()
>>> skewed = Stats.build(sites=2, placement=[0, 0, 0, 1], bytes=[30, 30, 30, 30], rank=[2, 0, 1, 0],
...                      capacity=[100, 100])
>>> [(s.kind, s.pgs, s.donor, s.receiver) for s in policy.suggest(skewed, now=1.0)]
[('move', (1,), 0, 1)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Ints, Move, Stats, Suggestion
from fluxen.policies.local_disk import LocalDisk, named
from fluxen.policies.victims import Victims, at_most, order

__all__ = ["LazyDisk"]

WORTH_MOVING = 0.02
"""Share of a site's memory below which a difference in load is not worth a relocation."""


class LazyDisk(LocalDisk):
    """Relocation first, local spills last.

    threshold  relocate when the least used memory is below this share of the most used (theta_r)
    gap        seconds between two relocations, at least (tau_m)
    """

    def __init__(
        self,
        *,
        threshold: float = 0.8,
        gap: float = 45.0,
        spill: float = 0.3,
        victims: Victims = "less-productive",
        recency: bool = False,
        inactive_after: float = 60.0,
        unspill_below: float = 0.5,
        seed: int = 0,
    ) -> None:
        super().__init__(
            spill=spill,
            victims=victims,
            recency=recency,
            inactive_after=inactive_after,
            unspill_below=unspill_below,
            seed=seed,
        )
        if not 0 < threshold <= 1 or gap < 0:
            raise ConfigError(f"expected 0 < threshold <= 1 and gap >= 0 seconds, got {threshold} and {gap}")
        self.threshold, self.gap = threshold, gap
        self._relocated: float | None = None

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        self._observe(stats)
        busy: set[int] = set()
        made = self._relocation(stats, now, busy) or self._instead(stats, now, busy)
        return [*made, *self._spills(stats, now, busy), *self._unspills(stats, busy)]

    def _instead(self, stats: Stats, now: float, busy: set[int]) -> list[Suggestion]:
        """What to do about the cluster when its load is even; nothing here."""
        return []

    def _rested(self, now: float) -> bool:
        return self._relocated is None or now - self._relocated >= self.gap

    def _relocation(self, stats: Stats, now: float, busy: set[int]) -> list[Suggestion]:
        if stats.sites < 2 or not self._rested(now):
            return []
        sender, receiver = int(np.argmax(stats.site_bytes)), int(np.argmin(stats.site_bytes))
        if not self._apart(stats, sender, receiver):
            return []
        most, least = float(stats.site_bytes[sender]), float(stats.site_bytes[receiver])
        amount = min((most - least) / 2, float(stats.capacity[receiver]) - least)
        rows = at_most(stats, self._movable(stats, sender, now), amount)
        return self._relocate(stats, rows, sender, receiver, now, busy)

    def _apart(self, stats: Stats, sender: int, receiver: int) -> bool:
        """Whether two sites differ enough to relocate."""
        most, least = float(stats.site_bytes[sender]), float(stats.site_bytes[receiver])
        if most <= 0 or least / most >= self.threshold:
            return False
        memory = float(stats.capacity[sender])
        return not np.isfinite(memory) or (most - least) / 2 >= WORTH_MOVING * memory

    def _relocate(
        self, stats: Stats, rows: Ints, sender: int, receiver: int, now: float, busy: set[int]
    ) -> list[Suggestion]:
        if len(rows) == 0:
            return []
        self._relocated = now
        busy.update((sender, receiver))
        moved = float(stats.bytes[rows].sum())
        self._last[sender] -= moved
        self._last[receiver] += moved
        most, least = stats.site_bytes[sender], stats.site_bytes[receiver]
        why = f"memory in use {least:.0f} against {most:.0f} bytes: below {self.threshold:g}"
        return [Move(pgs=named(stats, rows), donor=sender, receiver=receiver, why=why)]

    def _movable(self, stats: Stats, sender: int, now: float) -> Ints:
        rows = order(stats, sender, "more-productive", now)
        return rows[stats.spilled[rows] <= 0]

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "relocated": self._relocated}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._relocated = None if state["relocated"] is None else float(state["relocated"])
