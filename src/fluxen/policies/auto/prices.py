"""What an action costs on this query: seconds per byte of state moved or brought to and from disk, learned online.

A report says how long each site took to get at its state (`Stats.read`). What that is more than usual in the batch
after a move, or after groups went to or came from disk, is what it cost. Until something has been seen a price is a
guess, and counts as much as `GUESSED` bytes would.

>>> prices = Prices()
>>> def report(placement, read):
...     return Stats.build(sites=2, placement=placement, bytes=[1e8, 1e8], read=read)
>>> prices.observe(report([0, 0], [0.01, 0.01]))
>>> prices.observe(report([0, 1], [0.01, 0.51]))
>>> bool(prices.move > 2e-9)
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluxen.policies.base import Floats, Ints, Stats

__all__ = ["Prices"]

GUESSED = float(16 << 20)
"""Bytes that a first guess counts as."""
_GUESS = {"move": 1e-9, "disk": 4e-9}
"""Seconds per byte before anything was seen: mapping a file again, and writing and reading one."""
_KEPT = 0.8
"""Weight of what was known when something new is seen."""
_USUAL = 0.2
"""Weight of the newest report in how long sites read without a reason."""
LEAST = float(1 << 20)
"""Bytes below which what was read says nothing about a price."""


class Prices:
    """Seconds per byte, by what happens to it."""

    def __init__(self) -> None:
        self._spent = {kind: (price * GUESSED, GUESSED) for kind, price in _GUESS.items()}  # seconds, bytes
        self._usual: Floats = np.zeros(0)
        self._pg: Ints = np.zeros(0, dtype=np.int64)
        self._where: Ints = np.zeros(0, dtype=np.int64)
        self._spilled: Floats = np.zeros(0)

    @property
    def move(self) -> float:
        return self._price("move")

    @property
    def disk(self) -> float:
        return self._price("disk")

    def _price(self, kind: str) -> float:
        seconds, size = self._spent[kind]
        return seconds / size

    def observe(self, stats: Stats) -> None:
        """Learn from a report what the changes since the one before have cost."""
        if len(self._usual) != stats.sites or not np.array_equal(self._pg, stats.pg):
            self._usual = stats.read.copy()
        else:
            came = np.where(self._where != stats.placement, stats.bytes + stats.spilled, 0.0)
            moved = np.bincount(stats.placement, weights=came, minlength=stats.sites).astype(np.float64)
            changed = np.abs(stats.spilled - self._spilled)
            disk = np.bincount(stats.placement, weights=changed, minlength=stats.sites).astype(np.float64)
            more = np.maximum(stats.read - self._usual, 0.0)
            self._learn("move", more[disk <= 0], moved[disk <= 0])
            self._learn("disk", more[moved <= 0], disk[moved <= 0])
            quiet = (moved <= 0) & (disk <= 0)
            usual = np.round(self._usual + _USUAL * (stats.read - self._usual), 6)
            self._usual = np.where(quiet, usual, self._usual)
        self._pg, self._where, self._spilled = stats.pg, stats.placement, stats.spilled

    def _learn(self, kind: str, more: Floats, size: Floats) -> None:
        total = float(size.sum())
        if total < LEAST:
            return
        seconds, known = self._spent[kind]
        self._spent[kind] = (_KEPT * seconds + float(more[size > 0].sum()), _KEPT * known + total)

    def snapshot(self) -> dict[str, Any]:
        return {
            "spent": {kind: list(spent) for kind, spent in self._spent.items()},
            "usual": self._usual.tolist(),
            "pg": len(self._pg) if np.array_equal(self._pg, np.arange(len(self._pg))) else self._pg.tolist(),
            "where": self._where.tolist(),
            "spilled": self._spilled.tolist() if self._spilled.any() else [],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._spent = {kind: (float(spent[0]), float(spent[1])) for kind, spent in state["spent"].items()}
        self._usual = np.array(state["usual"], dtype=np.float64)
        pg = state["pg"]
        self._pg = np.asarray(np.arange(pg) if isinstance(pg, int) else pg, dtype=np.int64)
        self._where = np.array(state["where"], dtype=np.int64)
        self._spilled = np.array(state["spilled"] or np.zeros(len(self._pg)), dtype=np.float64)
