"""Random: the baseline that moves without looking, to tell what a policy gains from what moving costs.

Also the policy for tests that want groups on the move. Its quiet counterpart is `fluxen.policies.static`.

Guarantee: the suggestions are a function of (seed, number of rounds so far, statistics); every one names a group that
is not moving, its real owner and another existing site.

>>> from fluxen.policies.base import Stats
>>> stats = Stats.build(sites=3, placement=[0, 1, 2, 0])
>>> [a] = Random(seed=5).suggest(stats, now=1.0)
>>> [b] = Random(seed=5).suggest(stats, now=1.0)
>>> a == b and a.donor != a.receiver
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Move, Policy, Stats, Suggestion

__all__ = ["Random"]


class Random(Policy):
    """Moves up to `moves` random groups to random other sites every `period` seconds.

    Example::

        query.adapt(policy=fx.Random(seed=1, period=10.0, moves=2))
    """

    def __init__(self, *, seed: int = 0, period: float = 0.0, moves: int = 1) -> None:
        if period < 0 or moves < 1:
            raise ConfigError(f"Random: expected period >= 0 and moves >= 1, got {period} and {moves}")
        self.seed, self.period, self.moves = seed, period, moves
        self._round = 0
        self._next: float | None = None

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        if stats.sites < 2 or (self._next is not None and now < self._next):
            return ()
        self._next = now + self.period
        self._round += 1
        rng = np.random.default_rng([self.seed, self._round])
        free = np.flatnonzero(~stats.moving)
        rows = rng.permutation(free)[: self.moves]
        return [
            Move(
                pgs=(int(stats.pg[row]),),
                donor=int(stats.placement[row]),
                receiver=int((stats.placement[row] + rng.integers(1, stats.sites)) % stats.sites),
                why=f"random move of round {self._round}",
            )
            for row in rows
        ]

    def snapshot(self) -> dict[str, Any]:
        return {"round": self._round, "next": self._next}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._round = int(state["round"])
        self._next = None if state["next"] is None else float(state["next"])
