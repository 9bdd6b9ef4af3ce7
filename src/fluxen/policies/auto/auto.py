"""Auto: per report, lists what could be done next, prices it, and does the best of what pays.

Who proposes what:

* balancing load, or memory where groups take turns in it: `fluxen.policies.flux.hybrid`, with its rules about noise;
* spilling, bringing back and evening out memory: `fluxen.policies.disk.forecast`, while a join's state is about to
  outgrow it; memory comes first then, so that the two do not undo each other's moves;
* groups of their own for heavy keys: `fluxen.policies.auto.isolation`; keys that it asks for and that are more than a
  site should do are dealt over several sites (`fluxen.control.keys.splitting`);
* the number of sites, between bounds: `fluxen.policies.auto.scaling`.

What a proposal saves follows from how long sites take now and would take then (`fluxen.policies.auto.loads`), what it
costs from what such things have cost on this query (`fluxen.policies.auto.prices`). It is done if it pays `MARGIN`
times over within `HORIZON` batches (`fluxen.policies.auto.candidates`). What was predicted is compared with what
happened, and discounted if it was too much (`fluxen.policies.auto.ledger`). The arithmetic is the reason in the log.

>>> policy = Auto(min_collection=1.0)
>>> stats = Stats.build(sites=2, placement=[0, 0, 0, 1], rows_in=[50, 30, 20, 20], busy=[1, 0.2], idle=[0, 0.8])
>>> [move] = policy.suggest(stats, now=1.0)
>>> move.pgs, move.why
((0,), 'saves 0.3 s a batch over 50 batches, costs 0 s: site 0 is busy 100% of the time, site 1 20%')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.auto.candidates import Candidate, choose
from fluxen.policies.auto.isolation import Isolation
from fluxen.policies.auto.ledger import Ledger
from fluxen.policies.auto.loads import Loads
from fluxen.policies.auto.prices import Prices
from fluxen.policies.auto.scaling import Scaling
from fluxen.policies.base import (
    Move,
    Note,
    Policy,
    Spill,
    Stats,
    Suggestion,
    Traits,
    Unspill,
    describe,
)
from fluxen.policies.disk.forecast import ForecastDisk
from fluxen.policies.flux.hybrid import FluxHybrid

__all__ = ["Auto"]

RELIEF = 0.02
"""Share of the slowest site's time that moves must be predicted to save at least."""
SHORT, AMPLE = 0.85, 0.75
"""Share of its memory that a site's state must be about to take before memory is short, and below which it is ample."""
SOON = 4
"""Batches ahead that this looks, if state goes on growing as it has lately."""


class Auto(Policy):
    """Decides by predicted seconds.

    relocates       whether it decides where groups are; not beside a partitioner that does
    imbalance       ratio of two sites' utilizations from which on it looks for groups to move
    min_collection  seconds a collection lasts at least, or "auto" to let it tune itself

    Example::

        query = query.adapt(policy=fx.Auto(imbalance=1.5))
    """

    deals = True

    def __init__(
        self,
        *,
        relocates: bool = True,
        imbalance: float = 1.2,
        min_collection: float | Literal["auto"] = "auto",
    ) -> None:
        self.traits, self.relocates = Traits(), relocates
        self.spills = False  # known when the stage is
        self._scaling: Scaling | None = None
        self._load = FluxHybrid(imbalance=imbalance, min_collection=min_collection)
        self._disk = ForecastDisk()
        self._isolation = Isolation()
        self._loads, self._prices, self._ledger = Loads(), Prices(), Ledger()
        self._short = False  # whether memory decides where groups are

    def between(self, low: int, high: int) -> None:
        """From now on it chooses the number of sites, too."""
        if not 1 <= low <= high:
            raise ConfigError(f"Auto: expected bounds with 1 <= low <= high, got {low} and {high}")
        self._scaling = Scaling(low, high)

    def begin(self, traits: Traits) -> None:
        self.traits, self.spills = traits, traits.spills

    @property
    def asks_for_keys(self) -> bool:
        return self.traits.isolates and self._isolation.asks

    @property
    def predictions(self) -> list[dict[str, Any]]:
        """What was predicted of the last actions, in seconds a batch, and what was found."""
        return self._ledger.shown()

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        self._loads.observe(stats)
        self._prices.observe(stats)
        self._ledger.observe(stats)
        self._isolation.observe(stats, self._loads, deals=self.traits.deals)
        memory = choose(self._memory(stats, now))
        taken = frozenset[int]().union(*(one.sites or frozenset() for one in memory))
        chosen = [*memory, *choose(self._balance(stats, now, taken))]
        if not chosen and self.traits.isolates:
            chosen = choose(self._isolation.candidates(stats, self._loads))
        if self._scaling is not None:
            self._scaling.observe(stats)
            scale = [] if chosen else self._scaling.candidates(stats, self._loads, self._prices)
            chosen = chosen or choose(self._trusted(one) for one in scale)
        return [suggestion for one in chosen for suggestion in self._begun(one, stats)]

    # ---- candidates

    def _balance(self, stats: Stats, now: float, taken: frozenset[int]) -> list[Candidate]:
        """Moves that make the slowest site faster, or that even out memory where groups take turns in it."""
        if not self.relocates:
            return []
        seen = stats
        if self._spilling(stats):
            if self._short:  # memory first: what it takes decides where groups are
                return []
            seen = replace(stats, capacity=AMPLE * stats.capacity)
        moves = [s for s in self._load.suggest(seen, now) if isinstance(s, Move)]
        moves = [move for move in moves if taken.isdisjoint((move.donor, move.receiver))]
        if not moves:
            return []
        held = sum(self._bytes(stats, move, disk=at) for move in moves for at in (False, True))
        costs = held * self._prices.move
        if seen.site_spilled.any():
            needed = "groups wait for their turn in memory"
            return [Candidate(kind="memory", suggestions=tuple(moves), costs=costs, needed=needed)]
        saves = self._faster(stats, moves)
        if saves < RELIEF * self._loads.slowest:
            return []
        return [self._trusted(Candidate(kind="move", suggestions=tuple(moves), saves=saves, costs=costs))]

    def _memory(self, stats: Stats, now: float) -> list[Candidate]:
        """What keeps sites within their memory, where generations of state can go to disk."""
        if not self._spilling(stats):
            return []
        soon = stats.site_bytes * self._loads.grown(SOON)
        limit = AMPLE if self._short else SHORT
        self._short = not self._loads.known or bool(stats.site_spilled.any() or (soon > limit * stats.capacity).any())
        if not self._short:
            self._disk.watch(stats, now)
            return []
        found = []
        for suggestion in self._disk.suggest(stats, now):
            match suggestion:
                case Spill():
                    costs = self._bytes(stats, suggestion, disk=False) * self._prices.disk
                    needed = f"keeps site {suggestion.site} within its memory"
                case Unspill():
                    costs = self._bytes(stats, suggestion, disk=True) * self._prices.disk
                    needed = "its results are worth the memory"
                case Move() if self.relocates:
                    costs = self._bytes(stats, suggestion, disk=False) * self._prices.move
                    needed = "evens out memory, which is short"
                case _:
                    continue
            found.append(Candidate(kind="memory", suggestions=(suggestion,), costs=costs, needed=needed))
        return found

    def _spilling(self, stats: Stats) -> bool:
        """Whether state may have to go to disk."""
        return self.traits.spills and not self.traits.rotates and bool(np.isfinite(stats.capacity).any())

    def _faster(self, stats: Stats, moves: Sequence[Move]) -> float:
        """Seconds by which the slowest site's time falls, or by how many it rises."""
        placement = stats.placement.copy()
        for move in moves:
            placement[[stats.index(pg) for pg in move.pgs]] = move.receiver
        return self._loads.slowest - float(self._loads.after(placement).max(initial=0.0))

    @staticmethod
    def _bytes(stats: Stats, what: Spill | Unspill | Move, *, disk: bool) -> float:
        column = stats.spilled if disk else stats.bytes
        return sum(float(column[stats.index(pg)]) for pg in what.pgs)

    def _trusted(self, one: Candidate) -> Candidate:
        return replace(one, saves=one.saves * self._ledger.trust(one.kind))

    # ---- what was chosen

    def _begun(self, one: Candidate, stats: Stats) -> list[Suggestion]:
        told = one.told()
        if one.kind in ("move", "rescale") and one.saves > 0:
            wall = one.kind == "rescale"
            whole = stats.whole if wall else self._loads.slowest
            what = "; ".join(describe(s) for s in told[:3])
            self._ledger.predict(one.kind, what, saves=one.saves, share=min(one.saves / whole, 1.0), wall=wall)
        elif one.kind == "isolate":
            self._isolation.asked()
        elif one.kind == "return":
            self._isolation.returned()
        return told

    def notes(self) -> Sequence[Note]:
        return self._ledger.notes()

    def _parts(self) -> dict[str, Any]:
        """Everything that remembers something."""
        parts = {
            "load": self._load,
            "disk": self._disk,
            "isolation": self._isolation,
            "loads": self._loads,
            "prices": self._prices,
            "ledger": self._ledger,
        }
        return parts if self._scaling is None else {**parts, "scaling": self._scaling}

    def snapshot(self) -> dict[str, Any]:
        return {"auto": {name: part.snapshot() for name, part in self._parts().items()}, "short": self._short}

    def restore(self, state: Mapping[str, Any]) -> None:
        known = state.get("auto", {})
        self._short = bool(state.get("short", False))
        for name, part in self._parts().items():
            if name in known:
                part.restore(known[name])
