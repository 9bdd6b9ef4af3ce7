"""ActiveDisk: when memory is even but productivity is not, the unproductive site makes room (Liu-07 Algorithm 2).

Like `fluxen.policies.disk.lazy`, but when loads are even (a relocation that is due and waits for its gap is not that)
and one site gives more than `productivity` (lambda) times the results per group of another, the lesser one is made to
spill, so that productive groups of others can be relocated into the memory it frees. What is on disk because of that is
capped by what the query is expected to need beyond the cluster's memory: what fits stays in memory. The expectation is
that state goes on growing as it has lately, so that of a window that is full is not taken to double (`guarded`).

>>> policy = ActiveDisk(query_memory=300)
>>> uneven = Stats.build(sites=2, placement=[0, 0, 1, 1], bytes=[45, 45, 40, 45], rows_out=[400, 400, 100, 90],
...                      capacity=[100, 100])
>>> [(s.kind, s.site, s.pgs) for s in policy.suggest(uneven, now=1.0)]
[('spill', 1, (3,))]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Floats, Policy, Spill, Stats, Suggestion
from fluxen.policies.disk.relocating import Relocator
from fluxen.policies.disk.spilling import Spiller
from fluxen.policies.disk.victims import Victims

__all__ = ["ActiveDisk"]


class ActiveDisk(Policy):
    """Spills at the least productive site of the cluster before productive sites run out of memory.

    productivity  force a spill when the best site's results per group exceed the worst's by this factor (lambda)
    pressure      share of its memory some site must use before anything is forced: extra memory must be needed
    query_memory  bytes the query is expected to need in all; None for what its growth says about a run that lasts
                  `foresight` times as long
    threshold, gap, guarded  as in LazyDisk
    spill, victims, recency, inactive_after, unspill_below  as in LocalDisk

    Example::

        pairs.adapt(memory_per_site="256m", policy=fx.ActiveDisk(productivity=2.0))
    """

    spills = True

    def __init__(
        self,
        *,
        productivity: float = 2.0,
        pressure: float = 0.75,
        query_memory: float | None = None,
        foresight: float = 2.0,
        threshold: float = 0.8,
        gap: float = 45.0,
        spill: float = 0.3,
        victims: Victims = "less-productive",
        recency: bool = False,
        inactive_after: float = 60.0,
        unspill_below: float = 0.0,
        seed: int = 0,
        guarded: bool = True,
    ) -> None:
        self.recency = recency
        self._spiller = Spiller(
            spill=spill, victims=victims, inactive_after=inactive_after, unspill_below=unspill_below, seed=seed
        )
        self._relocator = Relocator(threshold=threshold, gap=gap, guarded=guarded)
        if productivity <= 1 or not 0 <= pressure <= 1 or foresight < 1:
            raise ConfigError(
                "expected productivity > 1, pressure in [0, 1] and foresight >= 1, got "
                f"{productivity}, {pressure} and {foresight}"
            )
        self.productivity, self.pressure = productivity, pressure
        self.query_memory, self.foresight = query_memory, foresight
        self._checked: float | None = None
        self._marks: list[tuple[float, float]] = []  # (when, state of the query): the first, and two since
        self._results: Floats = np.zeros(0)

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        self._mark(_state(stats), now)
        self._relocator.observe(stats, self._spiller)
        self._spiller.observe(stats)
        self._relocator.count(now)
        known = self._results if len(self._results) == stats.sites else np.zeros(stats.sites)
        self._results = known + stats.site_rows_out
        busy: set[int] = set()
        if self._relocator.due(stats):
            made = self._relocator.relocation(stats, now, busy)
        else:
            made = self._forced(stats, now, busy)
        return [*made, *self._spiller.spills(stats, now, busy), *self._spiller.unspills(stats, busy)]

    def _forced(self, stats: Stats, now: float, busy: set[int]) -> list[Suggestion]:
        """A spill at the least productive site, so that others can use its memory."""
        if stats.sites < 2 or (self._checked is not None and now - self._checked < self._relocator.gap):
            return []
        rate = self._results / np.maximum(np.bincount(stats.placement, minlength=stats.sites), 1)
        self._checked, self._results = now, np.zeros(stats.sites)
        sender = int(np.argmin(np.where(stats.site_bytes > 0, rate, np.inf)))
        factor = self.productivity**2 if self._relocator.settled else self.productivity
        if not stats.site_bytes[sender] > 0 or rate.max() <= factor * max(rate[sender], 1e-12):
            return []
        if not (stats.site_bytes >= self.pressure * stats.capacity).any():
            return []
        amount = min(self._spiller.spill * float(stats.site_bytes[sender]), self._allowed(stats, now))
        if amount <= 0:
            return []
        why = f"{rate[sender]:.0f} results per group against {rate.max():.0f}: more than {self.productivity:g} times"
        made = self._spiller.push(stats, sender, amount, now, why, busy)
        self._relocator.made_room = tuple(pg for spill in made if isinstance(spill, Spill) for pg in spill.pgs)
        return made

    def _allowed(self, stats: Stats, now: float) -> float:
        """Bytes that may still be forced out: M_query - M_cluster, less what was and is still on disk."""
        needed = self.query_memory
        if needed is None:
            needed = self._foreseen(_state(stats), now)
        return needed - float(stats.capacity.sum()) - float(self._relocator.room(stats).sum())

    def _foreseen(self, state: float, now: float) -> float:
        """State of the query when it has run `foresight` times as long, if it goes on growing as it has lately."""
        if not self._relocator.guarded or len(self._marks) < 3 or now <= self._marks[1][0]:
            return self.foresight * state
        (begun, _), (since, before), _ = self._marks
        growth = max(0.0, (state - before) / (now - since))
        return state + (self.foresight - 1) * min(state, growth * (now - begun))

    def _mark(self, state: float, now: float) -> None:
        """Remember how much state there was when the query began, and halfway or a quarter of the way since then."""
        if len(self._marks) < 3:
            self._marks.append((now, state))
        elif now - self._marks[0][0] >= 2 * (self._marks[2][0] - self._marks[0][0]):
            self._marks = [self._marks[0], self._marks[2], (now, state)]

    def snapshot(self) -> dict[str, Any]:
        return {
            **self._spiller.snapshot(),
            **self._relocator.snapshot(),
            "marks": [list(mark) for mark in self._marks],
            "checked": self._checked,
            "results": self._results.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._spiller.restore(state)
        self._relocator.restore(state)
        self._marks = [(float(when), float(held)) for when, held in state.get("marks", ())]
        self._checked = None if state["checked"] is None else float(state["checked"])
        self._results = np.array(state["results"], dtype=np.float64)


def _state(stats: Stats) -> float:
    return float(stats.site_bytes.sum() + stats.site_spilled.sum())
