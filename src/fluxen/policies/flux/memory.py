"""FluxMemory: equal excess memory, then equal disk use (Flux section 6.1).

The rounds are in `fluxen.policies.flux.rounds`; `fluxen.policies.flux.hybrid` combines this policy with the load
policy.

A site's excess is its memory minus all its groups, those on disk included, so a site that spills is below zero. Sites
are ordered by excess and paired from both ends; a pair moves the largest group that narrows the difference, groups in
memory before groups on disk, because the latter cost disk reads and their spooled input has to be processed first. The
receiver may be full: then the move shares the disk work out.

Where the paper keeps the ratio test of the load policy, a ratio of excesses (which may be negative) would mean little,
so the test is on occupancy (bytes per byte of memory); a donor that must spill beside a receiver with room always
passes.

Guarantee: one round moves at most `groups_per_move` groups per pair and each move lowers the difference in excess of
its pair. With `guarded`, two sites of which one lacks memory exchange groups for that only if the other can really take
a part of what is lacking.

>>> from fluxen.policies.base import Stats
>>> policy = FluxMemory(min_collection=1.0)
>>> stats = Stats.build(sites=2, placement=[0, 0, 0, 1], bytes=[6, 6, 0, 6], spilled=[0, 0, 8, 0], capacity=[15, 30])
>>> [(move.pgs, move.donor, move.receiver) for move in policy.suggest(stats, now=1.0)]
[((0, 1), 0, 1)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Floats, Ints, Move, Stats
from fluxen.policies.flux.pairing import ends, largest, slots
from fluxen.policies.flux.rounds import Rounds, Tuner, Window

__all__ = ["FluxMemory"]


_WORTH = 0.02
"""Share of the smaller site's memory by which a move must lower what two sites lack, to be worth it for that."""


class FluxMemory(Rounds):
    """Moves groups from sites short of memory to sites with more of it; settings as in FluxLoad.

    Example::

        query.adapt(memory_per_site="256m", policy=fx.FluxMemory())
    """

    needs_memory = True

    def __init__(
        self,
        *,
        min_collection: float | Literal["auto"] = "auto",
        imbalance: float = 1.2,
        groups_per_move: int = 16,
        tuner: Tuner | None = None,
        guarded: bool = True,
    ) -> None:
        super().__init__(min_collection=min_collection, tuner=tuner, guarded=guarded)
        if imbalance < 1 or groups_per_move < 1:
            raise ConfigError(
                f"FluxMemory: expected imbalance >= 1 and groups_per_move >= 1, got {imbalance} and {groups_per_move}"
            )
        self.imbalance, self.groups_per_move = imbalance, groups_per_move

    def pick(self, window: Window, stats: Stats) -> Sequence[Move]:
        return self.even_out(stats, self)

    def even_out(self, stats: Stats, rounds: Rounds) -> Sequence[Move]:
        """The moves of one round; `rounds` says whose round it is."""
        size = rounds.held(stats)
        held = np.bincount(stats.placement, weights=size, minlength=stats.sites)
        excess = stats.capacity - held
        order = np.argsort(excess, kind="stable")
        half = stats.sites // 2
        tight, loose = order[:half], order[::-1][:half]
        occupancy = held / stats.capacity
        ratio = rounds.factor(self.imbalance, half)
        if rounds.guarded:
            ratio = np.where(rounds.turned(tight, loose), self.imbalance**2, ratio)
        uneven = (occupancy[tight] > 0) & (occupancy[tight] >= ratio * occupancy[loose])
        spills = (excess[tight] < 0) & (excess[loose] > 0)
        if rounds.guarded:
            least = np.minimum(stats.capacity[tight], stats.capacity[loose])
            spills &= np.minimum(-excess[tight], excess[loose]) >= _WORTH * ratio**2 * least
        passes = np.isfinite(excess[tight]) & (excess[tight] < excess.mean()) & (uneven | spills)
        donors, receivers = ends(tight, loose, passes)
        if len(donors) == 0:
            return ()
        return self._moves(stats, donors, receivers, excess, size)

    def _moves(self, stats: Stats, donors: Ints, receivers: Ints, excess: Floats, size: Floats) -> list[Move]:
        slot = slots(donors, stats.placement, stats.sites)
        gap = excess[receivers] - excess[donors]
        chosen: list[list[int]] = [[] for _ in donors]
        allowed = (slot >= 0) & ~stats.moving & (size > 0)
        for _ in range(self.groups_per_move):
            narrows = allowed & (size < gap[slot])
            picked = largest(size, slot, narrows & (stats.spilled <= 0), len(donors))
            on_disk = largest(size, slot, narrows & (stats.spilled > 0), len(donors))
            picked = np.where(picked >= 0, picked, on_disk)
            found = np.flatnonzero(picked >= 0)
            if len(found) == 0:
                break
            for pair in found.tolist():
                chosen[pair].append(int(picked[pair]))
            gap[found] -= 2 * size[picked[found]]
            allowed[picked[found]] = False
        return [
            Move(
                pgs=tuple(int(stats.pg[row]) for row in rows),
                donor=int(donor),
                receiver=int(receiver),
                why=f"site {donor} has {excess[donor]:.4g} bytes left, site {receiver} {excess[receiver]:.4g}",
            )
            for rows, donor, receiver in zip(chosen, donors, receivers)
            if rows
        ]
