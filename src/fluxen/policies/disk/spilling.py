"""How sites push groups to disk and take them back: the part that all disk policies share.

A site spills when its state plus what a batch usually adds would pass its memory. It pushes `spill` of its state, first
victims first (`fluxen.policies.disk.victims`). When little of its memory is in use, because windows expired or sites
were added, and it has not had to spill for `REST` batches, the most recently used groups that fit come back, which also
emits what they owe.

What it learns comes from what happened between two reports, not from what was suggested: a suggestion may be refused,
and a move may wait for its copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Bools, Floats, Ints, Spill, Stats, Suggestion, Unspill
from fluxen.policies.disk.victims import Victims, at_most, checked, fill, order

__all__ = ["REST", "Spiller", "named"]

REST = 16
"""Batches without a spill after which a site takes groups back: state that fills its memory again and again would only
push them out once more."""


class Spiller:
    """What goes to disk at each site, and what comes back; the settings are those of `LocalDisk`.

    With `spill` 0, no more goes than has to.
    """

    def __init__(
        self,
        *,
        spill: float = 0.3,
        victims: Victims = "less-productive",
        inactive_after: float = 60.0,
        unspill_below: float = 0.0,
        seed: int = 0,
    ) -> None:
        if not 0 <= spill <= 1 or not 0 <= unspill_below < 1:
            raise ConfigError(
                f"spill and unspill_below are shares of memory: expected 0 <= spill <= 1 and 0 <= unspill_below < 1, "
                f"got {spill} and {unspill_below}"
            )
        self.spill, self.victims = spill, checked(victims)
        self.inactive_after, self.unspill_below, self.seed = inactive_after, unspill_below, seed
        self._rounds = 0
        self.growth: Floats = np.zeros(0)
        """per site: bytes that a batch adds"""
        self._rested: Ints = np.zeros(0, dtype=np.int64)  # batches since a site spilled
        # the last report, per group
        self.bytes: Floats = np.zeros(0)
        self.spilled: Floats = np.zeros(0)
        self.where: Ints = np.zeros(0, dtype=np.int64)

    def observe(self, stats: Stats) -> None:
        """Learn what a batch adds to a site's state: what groups grew by that stayed where they were."""
        if len(self.growth) != stats.sites:
            self.growth, self._rested = np.zeros(stats.sites), np.full(stats.sites, REST)
        elif len(self.where) == stats.groups:
            stayed = np.where(self.where == stats.placement, self._grown(stats), 0.0)
            grown = np.bincount(stats.placement, weights=stayed, minlength=stats.sites)
            faded = np.where(grown > 0, 0.8, 0.98) * self.growth
            self.growth = np.maximum(grown, faded)
            self._rested = np.minimum(self._rested + 1, REST)
        self.bytes, self.spilled, self.where = stats.bytes, stats.spilled, stats.placement

    def pushed(self, stats: Stats) -> Bools:
        """The groups that have been pushed: more on disk than before, and less in memory."""
        pushed = (stats.spilled > self.spilled) & (stats.bytes < self.bytes) & (self.where == stats.placement)
        return np.asarray(pushed, dtype=np.bool_)

    def _grown(self, stats: Stats) -> Floats:
        """Bytes each group has got by new rows: neither what a spill took away nor what came back counts."""
        grown = stats.bytes - self.bytes
        came_back = np.where(stats.spilled > 0, 0.0, self.spilled)
        grown = np.where(came_back > 0, np.maximum(grown - came_back, 0.0), grown)
        # where more has gone to disk, all that is in memory has come since
        return np.where((stats.spilled > self.spilled) & (self.where == stats.placement), stats.bytes, grown)

    def expected(self, stats: Stats) -> Floats:
        """Each site's state after the next batch."""
        return stats.site_bytes + self.growth

    def spills(self, stats: Stats, now: float, busy: set[int]) -> list[Suggestion]:
        """What sites that would overflow push; sites that adapt otherwise have their turn with a later batch."""
        made: list[Suggestion] = []
        expected = self.expected(stats)
        for site in np.flatnonzero(expected > stats.capacity).tolist():
            if site in busy:
                continue
            over = float(expected[site] - stats.capacity[site])
            amount = max(self.spill * float(stats.site_bytes[site]), over)
            why = f"{stats.site_bytes[site]:.0f} bytes of state, {stats.capacity[site]:.0f} of memory"
            made += self.push(stats, site, amount, now, why, busy)
        return made

    def push(self, stats: Stats, site: int, amount: float, now: float, why: str, busy: set[int]) -> list[Suggestion]:
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

    def unspills(self, stats: Stats, busy: set[int]) -> list[Suggestion]:
        made: list[Suggestion] = []
        for site in np.flatnonzero(np.isfinite(stats.capacity)).tolist():
            room = self.unspill_below * float(stats.capacity[site]) - float(self.expected(stats)[site])
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
            "growth": self.growth.tolist(),
            "rested": self._rested.tolist(),
            "bytes": self.bytes.tolist(),
            "spilled": self.spilled.tolist(),
            "where": self.where.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._rounds = int(state["rounds"])
        self.growth = np.array(state["growth"], dtype=np.float64)
        self._rested = np.array(state.get("rested", [REST] * len(self.growth)), dtype=np.int64)
        self.bytes = np.array(state.get("bytes", ()), dtype=np.float64)
        self.spilled = np.array(state.get("spilled", ()), dtype=np.float64)
        self.where = np.array(state.get("where", ()), dtype=np.int64)


def named(stats: Stats, rows: Ints) -> tuple[int, ...]:
    return tuple(int(pg) for pg in np.sort(stats.pg[rows]))
