"""Relocation between two sites of unlike load, and when to leave them alone (Liu-07 Algorithm 1).

When the least loaded site holds less than `threshold` of what the most loaded one does, half the difference moves,
productive groups first, and not again within `gap` seconds. A group with generations on disk does not relocate (Liu-05
section 6).

The paper measures load in bytes in memory. On state that neither grows nor shrinks that would relocate for ever: memory
falls with every spill and fills up again, and sites of unlike size never hold the same. So `guarded` (False for the
paper's rule) measures the share of its memory that a site's state takes, on disk or not, up to all of it: a site that
must spill is full, whenever one looks. Only what a policy has pushed to make room (`made_room`) does not count. After
`SETTLED` gaps it takes the square of `threshold` to disturb a placement, and so does taking a relocation back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Floats, Ints, Move, Stats, Suggestion
from fluxen.policies.disk.spilling import Spiller, named
from fluxen.policies.disk.victims import at_most, order

__all__ = ["Relocator"]

SETTLED = 16
"""Gaps that small differences have to be put right, before only a clear one counts."""
_KEPT = 16
"""Relocations of which the way is remembered."""
WORTH_MOVING = 0.02
"""Share of a site's memory below which a difference in load is not worth a relocation."""


class Relocator:
    """Which groups move to which site; the settings are those of `LazyDisk`."""

    def __init__(self, *, threshold: float, gap: float, guarded: bool) -> None:
        if not 0 < threshold <= 1 or gap < 0:
            raise ConfigError(f"expected 0 < threshold <= 1 and gap >= 0 seconds, got {threshold} and {gap}")
        self.threshold, self.gap, self.guarded = threshold, gap, guarded
        self._relocated: float | None = None
        self._gaps, self._ticked = 0, -np.inf  # gaps in which small differences counted; when the last one began
        self._asked: list[tuple[int, int, int, float]] = []  # (group, donor, receiver, when) of the last relocations
        self._gave: list[tuple[int, int]] = []  # (donor, receiver) of relocations that happened, the last ones
        self.made_room: tuple[int, ...] = ()
        """groups asked to be pushed to make room for others"""
        self._sites = 0
        self._room: dict[int, float] = {}  # per group: bytes on disk that were pushed to make room

    def observe(self, stats: Stats, before: Spiller) -> None:
        """Learn from a report what became of what was asked for; `before` still knows the last report."""
        if self._sites != stats.sites:
            self._sites, self._room, self._gaps, self._gave = stats.sites, {}, 0, []
        elif len(before.where) == stats.groups:
            self._room = self._made(stats, before)
        self.made_room = ()
        self._notice(stats)

    def _made(self, stats: Stats, before: Spiller) -> dict[int, float]:
        """Room as it is now: what leaves the disk takes its share along."""
        more = before.pushed(stats) & np.isin(stats.pg, self.made_room)
        room = self.room(stats) + more * (stats.spilled - before.spilled)
        left = np.divide(stats.spilled, before.spilled, out=np.ones(stats.groups), where=before.spilled > 0)
        room *= np.minimum(left, 1.0) * (stats.spilled > 0)
        return {int(stats.pg[row]): float(room[row]) for row in np.flatnonzero(room)}

    def room(self, stats: Stats) -> Floats:
        """Per group: bytes on disk that were pushed to make room."""
        return np.array([self._room.get(pg, 0.0) for pg in stats.pg.tolist()])

    def count(self, now: float) -> None:
        """One more gap, if one has passed."""
        if now - self._ticked >= self.gap:
            self._gaps, self._ticked = min(self._gaps + 1, SETTLED + 1), now

    def _notice(self, stats: Stats) -> None:
        """What became of the relocations asked for: under way or done, or refused."""
        for pg, donor, receiver, when in self._asked:
            row = stats.index(pg)
            if row >= 0 and (stats.moving[row] or stats.placement[row] == receiver):
                if self._relocated is None or when > self._relocated:
                    self._gaps = 0 if self.settled else self._gaps
                    self._relocated = when
                if (donor, receiver) not in self._gave[-1:]:
                    self._gave = [*self._gave, (donor, receiver)][-_KEPT:]
        self._asked = []

    def ready(self, now: float) -> bool:
        return self._relocated is None or now - self._relocated >= self.gap

    @property
    def settled(self) -> bool:
        return self.guarded and self._gaps > SETTLED

    def _held(self, stats: Stats) -> Floats:
        """Bytes of state that count as a site's load."""
        if not self.guarded:
            return stats.site_bytes
        room = np.bincount(stats.placement, weights=self.room(stats), minlength=stats.sites)
        return np.asarray(stats.site_bytes + stats.site_spilled - room, dtype=np.float64)

    def load(self, stats: Stats) -> Floats:
        """Per site: bytes, or the share of its memory that its state takes."""
        held = self._held(stats)
        if not self.guarded or not np.isfinite(stats.capacity).all():
            return held
        return np.minimum(held / stats.capacity, 1.0)

    def _ends(self, stats: Stats) -> tuple[int, int]:
        """The most and the least loaded site."""
        load = self.load(stats)
        return int(np.lexsort((self._held(stats), load))[-1]), int(np.argmin(load))

    def due(self, stats: Stats) -> bool:
        """Whether the paper's test asks for a relocation."""
        sender, receiver = self._ends(stats)
        load = self.load(stats)
        return stats.sites > 1 and load[sender] > 0 and bool(load[receiver] < self.threshold * load[sender])

    def relocation(self, stats: Stats, now: float, busy: set[int]) -> list[Suggestion]:
        sender, receiver = self._ends(stats)
        if not self.ready(now) or not self.apart(stats, sender, receiver):
            return []
        rows = at_most(stats.bytes, _movable(stats, sender, now), self.amount(stats, sender, receiver))
        return self.relocate(stats, rows, sender, receiver, now, busy)

    def amount(self, stats: Stats, sender: int, receiver: int) -> float:
        """Bytes that make the two sites' loads equal, as far as the receiver has memory."""
        held, memory = self._held(stats), stats.capacity
        most, least = float(held[sender]), float(held[receiver])
        half = (most - least) / 2
        if self.guarded and np.isfinite(memory[sender] + memory[receiver]):
            half = float((most * memory[receiver] - least * memory[sender]) / (memory[sender] + memory[receiver]))
        return min(half, float(memory[receiver]) - least)

    def apart(self, stats: Stats, sender: int, receiver: int) -> bool:
        """Whether two sites differ enough to relocate."""
        load, threshold = self.load(stats), self.threshold
        if self.settled or (self.guarded and (receiver, sender) in self._gave):
            threshold = threshold**2
        if load[sender] <= 0 or load[receiver] >= threshold * load[sender]:
            return False
        memory = float(stats.capacity[sender])
        return not np.isfinite(memory) or self.amount(stats, sender, receiver) >= WORTH_MOVING * memory

    def relocate(
        self, stats: Stats, rows: Ints, sender: int, receiver: int, now: float, busy: set[int]
    ) -> list[Suggestion]:
        if len(rows) == 0:
            return []
        busy.update((sender, receiver))
        self._asked += [(pg, sender, receiver, now) for pg in named(stats, rows)]
        most, least = stats.site_bytes[sender], stats.site_bytes[receiver]
        why = f"memory in use {least:.0f} against {most:.0f} bytes: below {self.threshold:g}"
        return [Move(pgs=named(stats, rows), donor=sender, receiver=receiver, why=why)]

    def snapshot(self) -> dict[str, Any]:
        return {
            "relocated": self._relocated,
            "gaps": self._gaps,
            "ticked": None if np.isinf(self._ticked) else self._ticked,
            "asked": [list(asked) for asked in self._asked],
            "gave": [list(pair) for pair in self._gave],
            "made_room": list(self.made_room),
            "sites": self._sites,
            "room_of": sorted(self._room.items()),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._relocated = None if state["relocated"] is None else float(state["relocated"])
        self._gaps = int(state.get("gaps", 0))
        self._ticked = -np.inf if state.get("ticked") is None else float(state["ticked"])
        self._asked = [(int(pg), int(a), int(b), float(when)) for pg, a, b, when in state.get("asked", ())]
        self._gave = [(int(donor), int(receiver)) for donor, receiver in state.get("gave", ())]
        self.made_room = tuple(int(pg) for pg in state.get("made_room", ()))
        self._sites = int(state.get("sites", 0))
        self._room = {int(pg): float(room) for pg, room in state.get("room_of", ())}


def _movable(stats: Stats, sender: int, now: float) -> Ints:
    rows = order(stats, sender, "more-productive", now)
    return rows[stats.spilled[rows] <= 0]
