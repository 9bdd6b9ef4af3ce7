"""FluxHybrid: the memory policy while anything is on disk, otherwise the load policy (Flux section 6.3).

Latency comes first: as long as any site keeps groups on disk `fluxen.policies.flux.memory` decides. Once everything is
in memory `fluxen.policies.flux.load` improves throughput, but only with moves the receiver has memory for, so that it
never brings a site back to the disk. A site that could not take even the smallest group is not paired at all: it is
often the least busy one, and pairing it with the busiest would leave that one overloaded for ever.

>>> from fluxen.policies.base import Stats
>>> policy = FluxHybrid(min_collection=1.0)
>>> full = Stats.build(sites=2, placement=[0, 0, 1], rows_in=[50, 30, 20], busy=[1, 0.2], idle=[0, 0.8],
...                    bytes=[6, 6, 6], capacity=[20, 8])
>>> list(policy.suggest(full, now=1.0))
[]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fluxen.policies.base import Move, Stats
from fluxen.policies.flux.load import FluxLoad
from fluxen.policies.flux.memory import FluxMemory
from fluxen.policies.flux.rounds import Rounds, Tuner, Window

__all__ = ["FluxHybrid"]

_SPARE = 0.1
"""Share of a site's memory that load balancing leaves alone: state that breathes a little must not reach the disk;
twice as much once a placement has settled."""


class FluxHybrid(Rounds):
    """Memory first, load second; the settings are those of the two policies it consists of.

    Example::

        query.adapt(memory_per_site="256m", policy="flux-hybrid")
    """

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
        self._load = FluxLoad(imbalance=imbalance, groups_per_move=groups_per_move)
        self._memory = FluxMemory(imbalance=imbalance, groups_per_move=groups_per_move)

    def pick(self, window: Window, stats: Stats) -> Sequence[Move]:
        if stats.site_spilled.any():
            return self._memory.even_out(stats, self)
        room = np.maximum(stats.capacity * (1 - _SPARE * (self.guarded + self.settled)) - stats.site_bytes, 0.0)
        return self._load.balance(window, stats, room, self)
