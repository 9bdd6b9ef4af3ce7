"""LocalDisk: a site that is about to run out of memory pushes a share of its state to disk (Liu-07 section 3).

No group ever moves; this is what the papers call no-relocation, and what bounds a site's memory whatever else adapts.
`fluxen.policies.disk.lazy` and `fluxen.policies.disk.active` add relocation; how a site spills, here and there, is in
`fluxen.policies.disk.spilling`.

>>> policy = LocalDisk()
>>> full = Stats.build(sites=1, placement=[0, 0, 0, 0], bytes=[30, 30, 30, 30], rank=[3, 0, 1, 2], capacity=[100])
>>> [(s.kind, s.pgs) for s in policy.suggest(full, now=1.0)]
[('spill', (0, 3))]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluxen.policies.base import Policy, Stats, Suggestion
from fluxen.policies.disk.spilling import Spiller
from fluxen.policies.disk.victims import Victims

__all__ = ["LocalDisk"]


class LocalDisk(Policy):
    """Spills locally, never moves.

    spill           share of a site's state that one spill pushes
    victims         which groups first: less-productive, more-productive, random, largest, inactive-first
    recency         rank by recent results instead of all results of the active generation
    inactive_after  seconds without a row after which a group counts as inactive
    unspill_below   share of its memory below which a site takes groups back; 0 for never

    Example::

        pairs.adapt(memory_per_site="256m", policy=fx.LocalDisk(victims="largest"))
    """

    spills = True
    relocates = False
    needs_memory = True

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
        self.recency = recency
        self._spiller = Spiller(
            spill=spill, victims=victims, inactive_after=inactive_after, unspill_below=unspill_below, seed=seed
        )

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        self._spiller.observe(stats)
        busy: set[int] = set()
        return [*self._spiller.spills(stats, now, busy), *self._spiller.unspills(stats, busy)]

    def snapshot(self) -> dict[str, Any]:
        return self._spiller.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._spiller.restore(state)
