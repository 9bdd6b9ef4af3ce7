"""ForecastDisk: keep in the cluster's memory what will produce most per byte, wherever it is.

Our own. Liu-07's strategies judge a group by all it has produced and a site by its average, push a fixed share of a
site, and leave a group on disk until memory is to spare. This one

* forecasts a group's results per byte from its recent rates (an exponentially weighted mean), so that it follows a
  workload that drifts;
* some batches before the cluster runs full, pushes the cheapest groups of all sites, if they are worth much less than
  what would have to go at the sites that run full; otherwise it waits until a site must push, and then pushes no more
  than that: a group that pays stays in memory as long as there is any;
* evens out what that frees by relocating the most productive groups, so that a site of productive groups does not spill
  while another has cheaper ones;
* brings a group back when its forecast has become `margin` times that of the groups that have to go for it. New rows of
  a group on disk go on producing with each other; from what they produce and how much smaller their generation is than
  the whole follows what the whole would: with n inputs the results of a row grow with the state to the power n - 1.

As in `fluxen.policies.disk.lazy`, no site pushes and relocates in one step and groups on disk stay where they are.

>>> policy = ForecastDisk()
>>> def state(*sizes):
...     return Stats.build(sites=2, placement=[0, 0, 1, 1], bytes=sizes, rows_out=[90, 80, 70, 5], capacity=[100, 100])
>>> policy.suggest(state(47, 50, 50, 47), now=1.0)
[]
>>> [(s.kind, s.site, s.pgs) for s in policy.suggest(state(48, 50, 50, 48), now=2.0)]
[('spill', 1, (3,))]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Floats, Ints, Policy, Spill, Stats, Suggestion, Unspill
from fluxen.policies.disk.relocating import Relocator
from fluxen.policies.disk.spilling import Spiller, named
from fluxen.policies.disk.victims import fill

__all__ = ["ForecastDisk"]

_LASTS = 2.0
"""Batches a push makes room for beyond those `ahead`: one to push, one to even out."""

_NOISE = 10.0
"""Results per batch below which a rate says nothing about what a group on disk would produce."""

_TELLING = 0.25
"""Active state, as a share of its state on disk, from which a group's rate says what the whole is worth."""


class ForecastDisk(Policy):
    """Memory for what will pay.

    spill      share of all memory that a push must free to be worth it
    smoothing  weight of the past in the recent rates, per batch
    margin     how much better what stays or comes back must be than what goes for it
    inputs     of the join: the power by which results grow with state, plus one
    ahead      batches before sites run full at which the cluster makes room
    threshold, gap, guarded  as in LazyDisk

    Example::

        pairs.adapt(memory_per_site="256m", policy=fx.ForecastDisk(inputs=2))
    """

    spills = True

    def __init__(
        self,
        *,
        spill: float = 0.05,
        smoothing: float = 0.6,
        margin: float = 2.0,
        inputs: int = 3,
        ahead: float = 3.0,
        threshold: float = 0.9,
        gap: float = 0.0,
        guarded: bool = True,
    ) -> None:
        if not 0 < spill <= 1 or not 0 <= smoothing < 1 or margin < 1 or inputs < 2 or ahead < 1:
            raise ConfigError(
                "expected 0 < spill <= 1, 0 <= smoothing < 1, margin >= 1, inputs >= 2 and ahead >= 1, got "
                f"{spill}, {smoothing}, {margin}, {inputs} and {ahead}"
            )
        self.spill, self.smoothing, self.margin, self.inputs, self.ahead = spill, smoothing, margin, inputs, ahead
        self._spiller = Spiller(spill=0.0)
        self._relocator = Relocator(threshold=threshold, gap=gap, guarded=guarded)
        self._rate: Floats = np.zeros(0)
        self._pg: Ints = np.zeros(0, dtype=np.int64)
        self._wanted: tuple[int, ...] = ()

    def watch(self, stats: Stats, now: float) -> None:
        """Learn from a report without suggesting anything."""
        self._observe(stats)
        self._relocator.count(now)

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        self.watch(stats, now)
        busy: set[int] = set()
        made = self._return(stats, busy)
        made += self._cheapest(stats, busy)
        made += self._level(stats, now, busy)
        return [*made, *self._spiller.spills(stats, now, busy), *self._swap(stats, busy)]

    def _observe(self, stats: Stats) -> None:
        if not np.array_equal(self._pg, stats.pg):
            self._pg, self._rate = stats.pg, stats.rows_out.copy()
            self._wanted = ()
        else:
            known = self._adjusted(stats) if self._relocator.guarded else self._rate
            self._rate = self.smoothing * known + (1 - self.smoothing) * stats.rows_out
        self._relocator.observe(stats, self._spiller)
        self._spiller.observe(stats)

    def _adjusted(self, stats: Stats) -> Floats:
        """The rates as they would be with the state there is now: a group that has just come back still has the rate of
        the part that was in memory, and would be the first to go again."""
        if len(self._spiller.spilled) != stats.groups:
            return self._rate
        back = (self._spiller.spilled > 0) & (stats.spilled <= 0) & (self._spiller.bytes > 0)
        grown = np.divide(stats.bytes, self._spiller.bytes, out=np.ones(stats.groups), where=back)
        return np.where(
            self._spiller.pushed(stats), stats.rows_out, self._rate * np.maximum(grown, 1.0) ** (self.inputs - 1)
        )

    def _density(self, stats: Stats) -> Floats:
        """Forecast results per byte of each group's active state."""
        return np.divide(self._rate, stats.bytes, out=np.zeros(stats.groups), where=stats.bytes > 0)

    def _promise(self, stats: Stats) -> Floats:
        """Forecast results per byte that a group's state on disk would add; 0 where nothing can be said."""
        known = (stats.spilled > 0) & (stats.bytes >= _TELLING * stats.spilled) & (self._rate >= _NOISE)
        grown = np.divide(stats.bytes + stats.spilled, stats.bytes, out=np.ones(stats.groups), where=known)
        added: Floats = self._rate * (grown ** (self.inputs - 1) - 1)
        promise: Floats = np.divide(added, stats.spilled, out=np.zeros(stats.groups), where=known)
        return promise

    def _level(self, stats: Stats, now: float, busy: set[int]) -> list[Suggestion]:
        """Even out pairs of sites, the fullest with the emptiest and so on, most productive groups first."""
        if not self._relocator.ready(now):
            return []
        load = self._relocator.load(stats)
        order = [site for site in np.argsort(load, kind="stable").tolist() if site not in busy]
        ends, unlike = zip(order[::-1], order[: len(order) // 2]), load * self._relocator.threshold
        pairs = [(donor, receiver) for donor, receiver in ends if load[receiver] < unlike[donor]]
        return [move for donor, receiver in pairs for move in self._even_out(stats, donor, receiver, now, busy)]

    def _even_out(self, stats: Stats, donor: int, receiver: int, now: float, busy: set[int]) -> list[Suggestion]:
        if not self._relocator.apart(stats, donor, receiver):
            return []
        low, half = float(stats.site_bytes[receiver]), self._relocator.amount(stats, donor, receiver)
        rows = []
        for row in self._movable(stats, donor).tolist():
            size = float(stats.bytes[row])
            if size < 2 * half and low + size <= stats.capacity[receiver]:
                rows.append(row)
                half, low = half - size, low + size
        return self._relocator.relocate(stats, np.array(rows, dtype=np.int64), donor, receiver, now, busy)

    def _movable(self, stats: Stats, sender: int) -> Ints:
        """Groups of a site that are all in memory, most productive first."""
        rows = np.flatnonzero((stats.placement == sender) & (stats.bytes > 0) & (stats.spilled <= 0) & ~stats.moving)
        return rows[np.argsort(-self._density(stats)[rows], kind="stable")]

    def _cheap_first(self, stats: Stats, busy: set[int]) -> Ints:
        free = ~np.isin(stats.placement, list(busy))
        rows = np.flatnonzero((stats.bytes > 0) & ~stats.moving & free)
        return rows[np.argsort(self._density(stats)[rows], kind="stable")]

    def _cheapest(self, stats: Stats, busy: set[int]) -> list[Suggestion]:
        """Push the cheapest groups of all sites when memory is about to run out."""
        if not np.isfinite(stats.capacity).all():
            return []
        growth, memory = float(self._spiller.growth.sum()), float(stats.capacity.sum())
        short = float(stats.site_bytes.sum()) + self.ahead * growth - memory
        if short <= 0:
            return []
        density, rows = self._density(stats), self._cheap_first(stats, busy)
        full = np.flatnonzero(stats.site_bytes + self.ahead * self._spiller.growth > stats.capacity)
        saved = [float(density[rows[stats.placement[rows] == site][:1]].sum()) for site in full.tolist()]
        rows = rows[self.margin * density[rows] <= max(saved, default=0.0)]
        rows = fill(stats, rows, short + _LASTS * growth)
        if stats.bytes[rows].sum() < self.spill * memory:
            return []
        self._relocator.made_room = named(stats, rows)
        return self._push_all(stats, rows, busy, "cheapest of all sites")

    def _push_all(self, stats: Stats, rows: Ints, busy: set[int], why: str) -> list[Suggestion]:
        made: list[Suggestion] = []
        for site in np.unique(stats.placement[rows]).tolist():
            mine = rows[stats.placement[rows] == site]
            busy.add(site)
            made.append(Spill(site=site, pgs=named(stats, mine), why=why))
        return made

    def _swap(self, stats: Stats, busy: set[int]) -> list[Suggestion]:
        """Make room for the most promising group on disk, at its own site, if what goes is worth much less."""
        if self._wanted or not np.isfinite(stats.capacity).all():
            return []
        promise, density = self._promise(stats), self._density(stats)
        margin = self.margin**2 if self._relocator.settled else self.margin
        for row in np.argsort(-promise, kind="stable").tolist():
            site = int(stats.placement[row])
            if promise[row] <= 0:
                break
            if site in busy:
                continue
            needed = float(stats.spilled[row] - self._spare(stats, site))
            rows = self._cheap_first(stats, busy | (set(range(stats.sites)) - {site}))
            rows = fill(stats, rows[rows != row], needed) if needed > 0 else rows[:0]
            freed = float(stats.bytes[rows].sum())
            lost = float((density[rows] * stats.bytes[rows]).sum())
            if freed < needed or margin * lost > promise[row] * float(stats.spilled[row]):
                continue
            self._wanted = (int(stats.pg[row]),)
            if len(rows) == 0:
                return self._return(stats, busy)
            return self._push_all(
                stats, rows, busy, f"makes room for group {stats.pg[row]}, which has become productive"
            )
        return []

    def _spare(self, stats: Stats, site: int) -> float:
        """Bytes a site can take in and still run the next two batches."""
        return float(stats.capacity[site] - stats.site_bytes[site] - self.ahead * self._spiller.growth[site])

    def _return(self, stats: Stats, busy: set[int]) -> list[Suggestion]:
        """Bring back the group that room was made for."""
        wanted, self._wanted = self._wanted, ()
        rows = [row for row in (stats.index(pg) for pg in wanted) if row >= 0 and stats.spilled[row] > 0]
        made: list[Suggestion] = []
        for row in rows:
            site = int(stats.placement[row])
            free = float(stats.capacity[site] - stats.site_bytes[site])
            if stats.moving[row] or site in busy or stats.spilled[row] > free:
                continue
            busy.add(site)
            made.append(Unspill(site=site, pgs=(int(stats.pg[row]),), why="it has become productive"))
        return made

    def snapshot(self) -> dict[str, Any]:
        return {
            **self._spiller.snapshot(),
            **self._relocator.snapshot(),
            "rate": self._rate.tolist(),
            "pg": self._pg.tolist(),
            "wanted": list(self._wanted),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._spiller.restore(state)
        self._relocator.restore(state)
        self._rate = np.array(state["rate"], dtype=np.float64)
        self._pg = np.array(state["pg"], dtype=np.int64)
        self._wanted = tuple(int(pg) for pg in state["wanted"])
