"""LazyDisk: relocate as long as the cluster has memory, spill only where it has none (Liu-07 Algorithm 1).

Spills are in `fluxen.policies.disk.spilling`, relocation in `fluxen.policies.disk.relocating`. The two never overlap on
a site: a site that relocates does not spill in the same step (the modes of the paper).

>>> policy = LazyDisk()
>>> skewed = Stats.build(sites=2, placement=[0, 0, 0, 1], bytes=[30, 30, 30, 30], rank=[2, 0, 1, 0],
...                      capacity=[100, 100])
>>> [(s.kind, s.pgs, s.donor, s.receiver) for s in policy.suggest(skewed, now=1.0)]
[('move', (1,), 0, 1)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluxen.policies.base import Policy, Stats, Suggestion
from fluxen.policies.disk.relocating import Relocator
from fluxen.policies.disk.spilling import Spiller
from fluxen.policies.disk.victims import Victims

__all__ = ["LazyDisk"]


class LazyDisk(Policy):
    """Relocation first, local spills last.

    threshold  relocate when the least used memory is below this share of the most used (theta_r)
    gap        seconds between two relocations, at least (tau_m)
    guarded    whether sawtooth memory and unlike sites are kept from relocating for ever; False for the paper's rule
    spill, victims, recency, inactive_after, unspill_below  as in LocalDisk

    Example::

        pairs.adapt(memory_per_site="256m", policy=fx.LazyDisk(threshold=0.8, gap=45.0))
    """

    spills = True

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
        guarded: bool = True,
    ) -> None:
        self.recency = recency
        self._spiller = Spiller(
            spill=spill, victims=victims, inactive_after=inactive_after, unspill_below=unspill_below, seed=seed
        )
        self._relocator = Relocator(threshold=threshold, gap=gap, guarded=guarded)

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        self._relocator.observe(stats, self._spiller)
        self._spiller.observe(stats)
        self._relocator.count(now)
        busy: set[int] = set()
        made = self._relocator.relocation(stats, now, busy) if self._relocator.due(stats) else []
        return [*made, *self._spiller.spills(stats, now, busy), *self._spiller.unspills(stats, busy)]

    def snapshot(self) -> dict[str, Any]:
        return {**self._spiller.snapshot(), **self._relocator.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._spiller.restore(state)
        self._relocator.restore(state)
