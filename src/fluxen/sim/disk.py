"""A site's memory and disk: spilling what does not fit and rotating it through memory (Flux section 6).

The paper defers the local mechanism to a longer report; this one follows its outline. Disk operations are synchronous:
a site neither processes tuples nor answers the coordinator while it reads or writes. When its groups exceed its memory
it writes groups out one by one, with a short slice of work between two of them. Once it fits, the groups on disk take
turns: swap the group that has waited longest with the one that has been in memory longest, then work for at least as
long as the swap took (`rotation_share`), and so on. When memory becomes free, groups come back without a swap.

Guarantee: every group on disk returns after at most as many swaps as there are groups on disk; tuples for it are
spooled by `fluxen.sim.flow` meanwhile and none is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fluxen.policies.base import Bools, Floats
from fluxen.sim.cluster import Cluster
from fluxen.sim.flow import Flow

__all__ = ["Disk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """Groups that leave memory and groups that come back when it ends."""

    end: float
    out: tuple[int, ...] = ()
    back: tuple[int, ...] = ()


class Disk:
    """Memory and disks of all sites. `leaving` marks groups about to move away: not counted, not touched."""

    def __init__(self, cluster: Cluster, flow: Flow, size: Floats) -> None:
        self.cluster, self.flow, self.size = cluster, flow, size
        self.capacity: Floats = np.full(cluster.sites, cluster.memory)
        self.leaving: Bools = np.zeros(len(size), dtype=np.bool_)
        self.used: Floats = np.zeros(cluster.sites)
        self._operations: dict[int, _Operation] = {}
        self._wanted: dict[int, list[int]] = {}  # site -> groups to read first, because they are to move
        self._free_at: Floats = np.full(cluster.sites, -np.inf)  # end of a site's last operation
        self._took: Floats = np.zeros(cluster.sites)
        self._turn: Floats = np.arange(len(size), dtype=np.float64) - len(size)  # when a group last changed places
        self._clock = 0
        self._running: Bools = np.ones(cluster.sites, dtype=np.bool_)
        self.recount()

    def recount(self) -> None:
        """Bytes in memory per site, after anything moved."""
        here = np.where(self.flow.on_disk | self.leaving, 0.0, self.size)
        self.used = np.bincount(self.flow.site, weights=here, minlength=self.cluster.sites).astype(np.float64)
        pressed = self.used > self.capacity
        pressed[self.flow.site[self.flow.on_disk]] = True
        self._pressed = np.flatnonzero(pressed)

    def fetch(self, group: int) -> None:
        """Read a group that is to move away before anything else at its site."""
        self._wanted.setdefault(int(self.flow.site[group]), []).append(group)

    def step(self, now: float) -> Bools:
        """End and begin operations; returns which sites are not waiting for their disk."""
        if len(self._pressed) == 0 and not self._operations:
            return self._running
        for site in [site for site, operation in self._operations.items() if operation.end <= now]:
            self._end(site, self._operations.pop(site))
        for site in self._pressed.tolist():
            operation = None if site in self._operations else self._next(site, now)
            if operation is not None:
                self._operations[site] = operation
                self._took[site] = operation.end - now
        self._running = np.ones(self.cluster.sites, dtype=np.bool_)
        self._running[list(self._operations)] = False
        return self._running

    def _end(self, site: int, operation: _Operation) -> None:
        self._free_at[site] = operation.end
        for groups, to_disk in ((operation.out, True), (operation.back, False)):
            for group in groups:
                self.flow.on_disk[group] = to_disk
                self._turn[group] = self._clock
                self._clock += 1
        self.recount()

    def _next(self, site: int, now: float) -> _Operation | None:
        since = now - self._free_at[site]
        if since < self.cluster.io_slice:
            return None
        if self._wanted.get(site):
            group = self._wanted[site].pop(0)
            return _Operation(end=now + self._io(group), back=(group,)) if self.flow.on_disk[group] else None
        mine = (self.flow.site == site) & ~self.leaving
        if self.used[site] > self.capacity[site]:
            victim = self._oldest(mine & ~self.flow.on_disk & ~self.flow.stalled)
            return None if victim is None else _Operation(end=now + self._io(victim), out=(victim,))
        waiting = self._oldest(mine & self.flow.on_disk)
        if waiting is None:
            return None
        if self.used[site] + self.size[waiting] <= self.capacity[site]:
            return _Operation(end=now + self._io(waiting), back=(waiting,))
        share = self.cluster.rotation_share
        victim = self._oldest(mine & ~self.flow.on_disk & ~self.flow.stalled)
        if victim is None or since < self._took[site] * (1 - share) / share:
            return None
        return _Operation(end=now + self._io(victim) + self._io(waiting), out=(victim,), back=(waiting,))

    def _oldest(self, candidates: Bools) -> int | None:
        rows = np.flatnonzero(candidates)
        return int(rows[np.argmin(self._turn[rows])]) if len(rows) else None

    def _io(self, group: int) -> float:
        return self.cluster.io_time(float(self.size[group]))
