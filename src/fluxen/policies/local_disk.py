"""LocalDisk: a site that is about to run out of memory pushes a share of its state to disk (Liu-07 section 3).

No group ever moves; this is what the papers call no-relocation, and what bounds a site's memory whatever else adapts.
`fluxen.policies.lazy_disk` and `fluxen.policies.active_disk` add relocation.

A site spills when its state plus what a batch usually adds would pass its memory. It pushes `spill` of its state, first
victims first (`fluxen.policies.victims`). When little of its memory is in use, because windows expired or sites were
added, and it has not had to spill for `REST` batches, the most recently used groups that fit come back, which also
emits what they owe.

What it learns comes from what happened between two reports, not from what was suggested: a suggestion may be refused,
and a move may wait for its copy.

>>> policy = LocalDisk()
>>> full = Stats.build(sites=1, placement=[0, 0, 0, 0], bytes=[30, 30, 30, 30], rank=[3, 0, 1, 2], capacity=[100])
>>> [(s.kind, s.pgs) for s in policy.suggest(full, now=1.0)]
[('spill', (0, 3))]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Bools, Floats, Ints, Spill, Stats, Suggestion, Unspill
from fluxen.policies.victims import Victims, at_most, checked, fill, order

__all__ = ["LocalDisk"]

REST = 16
"""Batches without a spill after which a site takes groups back: state that fills its memory again and again would only
push them out once more."""


class LocalDisk:
    """Spills locally, never moves.

    spill           share of a site's state that one spill pushes
    victims         which groups first: less-productive, more-productive, random, largest, inactive-first
    recency         rank by recent results instead of all results of the active generation
    inactive_after  seconds without a row after which a group counts as inactive
    unspill_below   share of its memory below which a site takes groups back; 0 for never
    """

    spills: ClassVar[bool] = True

    def __init__(
        self,
        *,
        spill: float = 0.3,
        victims: Victims = "less-productive",
        recency: bool = False,
        inactive_after: float = 60.0,
        unspill_below: float = 0.5,
        seed: int = 0,
    ) -> None:
        if not 0 < spill <= 1 or not 0 <= unspill_below < 1:
            raise ConfigError(
                f"spill and unspill_below are shares of memory: expected 0 < spill <= 1 and 0 <= unspill_below < 1, "
                f"got {spill} and {unspill_below}"
            )
        self.spill, self.victims, self.recency = spill, checked(victims), recency
        self.inactive_after, self.unspill_below, self.seed = inactive_after, unspill_below, seed
        self._rounds = 0
        self._growth: Floats = np.zeros(0)
        self._rested: Ints = np.zeros(0, dtype=np.int64)  # batches since a site spilled
        # the last report, per group
        self._bytes: Floats = np.zeros(0)
        self._spilled: Floats = np.zeros(0)
        self._where: Ints = np.zeros(0, dtype=np.int64)

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        self._observe(stats)
        busy: set[int] = set()
        return [*self._spills(stats, now, busy), *self._unspills(stats, busy)]

    def _observe(self, stats: Stats) -> None:
        """Learn what a batch adds to a site's state: what groups grew by that stayed where they were."""
        if len(self._growth) != stats.sites:
            self._growth, self._rested = np.zeros(stats.sites), np.full(stats.sites, REST)
        elif len(self._where) == stats.groups:
            stayed = np.where(self._where == stats.placement, self._grown(stats), 0.0)
            grown = np.bincount(stats.placement, weights=stayed, minlength=stats.sites)
            faded = np.where(grown > 0, 0.8, 0.98) * self._growth
            self._growth = np.maximum(grown, faded)
            self._rested = np.minimum(self._rested + 1, REST)
        self._bytes, self._spilled, self._where = stats.bytes, stats.spilled, stats.placement

    def _pushed(self, stats: Stats) -> Bools:
        """The groups that have been pushed: more on disk than before, and less in memory."""
        pushed = (stats.spilled > self._spilled) & (stats.bytes < self._bytes) & (self._where == stats.placement)
        return np.asarray(pushed, dtype=np.bool_)

    def _grown(self, stats: Stats) -> Floats:
        """Bytes each group has got by new rows: neither what a spill took away nor what came back counts."""
        grown = stats.bytes - self._bytes
        came_back = np.where(stats.spilled > 0, 0.0, self._spilled)
        grown = np.where(came_back > 0, np.maximum(grown - came_back, 0.0), grown)
        # where more has gone to disk, all that is in memory has come since
        return np.where((stats.spilled > self._spilled) & (self._where == stats.placement), stats.bytes, grown)

    def _expected(self, stats: Stats) -> Floats:
        """Each site's state after the next batch."""
        return stats.site_bytes + self._growth

    def _spills(self, stats: Stats, now: float, busy: set[int]) -> list[Suggestion]:
        """What sites that would overflow push; sites that adapt otherwise have their turn with a later batch."""
        made: list[Suggestion] = []
        expected = self._expected(stats)
        for site in np.flatnonzero(expected > stats.capacity).tolist():
            if site in busy:
                continue
            over = float(expected[site] - stats.capacity[site])
            amount = self._overflow(stats, site, over)
            why = f"{stats.site_bytes[site]:.0f} bytes of state, {stats.capacity[site]:.0f} of memory"
            made += self._push(stats, site, amount, now, why, busy)
        return made

    def _overflow(self, stats: Stats, site: int, over: float) -> float:
        """Bytes to push at a site that `over` bytes of the next batch would not fit into."""
        return max(self.spill * float(stats.site_bytes[site]), over)

    def _push(self, stats: Stats, site: int, amount: float, now: float, why: str, busy: set[int]) -> list[Suggestion]:
        self._rounds += 1
        candidates = order(
            stats,
            site,
            self.victims,
            now,
            inactive_after=self.inactive_after,
            seed=(self.seed, self._rounds),
        )
        rows = fill(stats, candidates, amount)
        if len(rows) == 0:
            return []
        busy.add(site)
        self._rested[site] = 0
        return [Spill(site=site, pgs=named(stats, rows), why=why)]

    def _unspills(self, stats: Stats, busy: set[int]) -> list[Suggestion]:
        made: list[Suggestion] = []
        for site in np.flatnonzero(np.isfinite(stats.capacity)).tolist():
            room = self.unspill_below * float(stats.capacity[site]) - float(self._expected(stats)[site])
            if room <= 0 or site in busy or self._rested[site] < REST:
                continue
            rows = np.flatnonzero((stats.placement == site) & (stats.spilled > 0) & ~stats.moving)
            rows = rows[np.argsort(-stats.last_update[rows], kind="stable")]
            fits = at_most(stats.spilled, rows, room)
            if len(fits):
                busy.add(site)
                why = f"{room:.0f} bytes of memory to spare"
                made.append(Unspill(site=site, pgs=named(stats, fits), why=why))
        return made

    def snapshot(self) -> dict[str, Any]:
        return {
            "rounds": self._rounds,
            "growth": self._growth.tolist(),
            "rested": self._rested.tolist(),
            "bytes": self._bytes.tolist(),
            "spilled": self._spilled.tolist(),
            "where": self._where.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._rounds = int(state["rounds"])
        self._growth = np.array(state["growth"], dtype=np.float64)
        self._rested = np.array(state.get("rested", [REST] * len(self._growth)), dtype=np.int64)
        self._bytes = np.array(state.get("bytes", ()), dtype=np.float64)
        self._spilled = np.array(state.get("spilled", ()), dtype=np.float64)
        self._where = np.array(state.get("where", ()), dtype=np.int64)


def named(stats: Stats, rows: Ints) -> tuple[int, ...]:
    return tuple(int(pg) for pg in np.sort(stats.pg[rows]))
