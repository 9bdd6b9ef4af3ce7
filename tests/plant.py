"""A stage on stationary input, closed around a real policy and its manager: micro-batches with noise, actions that act.

`fluxen.sim` models the papers' pipelined cluster; this is the micro-batch engine's side of it, reduced to what policies
see. Rows per group are sampled anew in every batch, a site's time is its work over its speed times lognormal noise, and
state is the rows of the last `window` batches, so that it grows to a steady size. Groups spill generations, as a join's
do, or take turns in memory, as an aggregate's do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fluxen.control import Limits, Manager
from fluxen.control.memory.rotation import rotated
from fluxen.policies.base import Cleanup, Move, Policy, Repartition, Spill, Stats, Traits, Unspill
from fluxen.state.residence import Residence

Input = Literal["uniform", "zipf", "hot"]
ROW = 100.0


def shares(kind: Input, groups: int, seed: int) -> np.ndarray:
    """Share of the rows per group: keys hashed into groups."""
    rng = np.random.default_rng([seed, 7])
    keys = 50 * groups
    weight = np.ones(keys)
    if kind == "zipf":
        weight = 1.0 / np.arange(1, keys + 1)
    share = np.bincount(rng.integers(0, groups, keys), weights=weight, minlength=groups)
    share /= share.sum()
    if kind == "hot":
        share *= 0.6
        share[int(rng.integers(0, groups))] += 0.4
    return np.asarray(share)


@dataclass(kw_only=True)
class Plant:
    """One stage: `step` runs a micro-batch and what the policy makes of it."""

    policy: Policy
    input: Input = "uniform"
    speed: tuple[float, ...] = (1.0,) * 4
    memory: tuple[float, ...] | None = None
    """of each site, as a share of what all state would take if it were spread evenly; None for no limit"""
    groups: int = 64
    rows: int = 20_000
    window: int = 8
    seconds: float = 1.0
    noise: float = 0.15
    seed: int = 0
    rotation: bool = False
    batch: int = 0
    actions: list[tuple[int, str]] = field(default_factory=list)
    """(batch, kind) of all that was done"""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, 1])
        self.sites = len(self.speed)
        self.share = shares(self.input, self.groups, self.seed)
        self.density = self.rng.lognormal(0.0, 0.7, self.groups)
        self.table = np.arange(self.groups) * self.sites // self.groups
        self.held = np.zeros((self.window, self.groups))  # bytes by batch of arrival, in memory
        self.disk = np.zeros((self.window, self.groups))
        self.updated = np.zeros(self.groups)
        self.turns = Residence.everything(self.groups)
        whole = self.rows * self.window * ROW / self.sites
        self.capacity = np.full(self.sites, np.inf) if self.memory is None else whole * np.array(self.memory)
        self.policy.begin(Traits(spills=not self.rotation, rotates=self.rotation))
        self.manager = Manager(policy=self.policy, limits=Limits(rotation=self.rotation))
        self.overflow = 0.0
        """most bytes in memory beyond a site's capacity"""

    def run(self, batches: int) -> Plant:
        for _ in range(batches):
            self.step()
        return self

    def count(self, kind: str, since: int = 0) -> int:
        return Counter(done for batch, done in self.actions if batch >= since)[kind]

    def step(self) -> None:
        self.batch += 1
        now = self.batch * self.seconds
        stats = self._stats(now)
        for action in self.manager.step(stats, now):
            suggestion = action.suggestion
            self.actions.append((self.batch, suggestion.kind))
            match suggestion:
                case Move():
                    self.table[list(suggestion.pgs)] = suggestion.receiver
                case Spill():
                    self._swap(self.held, self.disk, suggestion.pgs)
                case Unspill():
                    self._swap(self.disk, self.held, suggestion.pgs)
                case Repartition():
                    for pg, site in suggestion.placement:
                        self.table[pg] = site
                case Cleanup():
                    pass
            self.manager.finish(action.id, now)
        if self.rotation:
            size = self.held.sum(axis=0)
            self.turns = rotated(self.turns, self.table.astype(np.int32), size, self.capacity, self.batch)

    def _swap(self, out: np.ndarray, into: np.ndarray, pgs: tuple[int, ...]) -> None:
        rows = list(pgs)
        into[:, rows] += out[:, rows]
        out[:, rows] = 0.0

    def _stats(self, now: float) -> Stats:
        came = self.rng.multinomial(self.rows, self.share).astype(float)
        self.held[self.batch % self.window] = came * ROW
        self.disk[self.batch % self.window] = 0.0
        self.updated[came > 0] = now
        held, disk = self.held.sum(axis=0), self.disk.sum(axis=0)
        seen = held / np.maximum(held + disk, ROW)  # a row of three inputs finds partners in the square of the state
        results = self.rng.poisson(came * self.density * seen**2).astype(float)
        if self.rotation:
            out = self.turns.on_disk
            held, disk = np.where(out, 0.0, held), np.where(out, held, 0.0)
        work = np.bincount(self.table, weights=came + results, minlength=self.sites) / np.array(self.speed)
        busy = work * self.rng.lognormal(0.0, self.noise, self.sites) / (2 * self.rows)
        stats = Stats.build(
            sites=self.sites,
            placement=self.table.copy(),
            seconds=float(busy.max()),
            busy=busy,
            idle=busy.max() - busy,
            capacity=self.capacity,
            rows_in=came,
            rows_out=results,
            bytes=held,
            spilled=disk,
            last_update=self.updated.copy(),
        )
        self.overflow = max(self.overflow, float((stats.site_bytes - self.capacity).max()))
        return stats
