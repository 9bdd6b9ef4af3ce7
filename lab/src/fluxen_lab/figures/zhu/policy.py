"""The distribution manager's rule of the paper: from the site with the most state to the one with the least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluxen.policies.base import Move, Policy, Stats, Suggestion

__all__ = ["MostToLeast"]


class MostToLeast(Policy):
    """From `start` on, while the largest site holds `imbalance` times the mean: moves half the difference.

    With `inverted` it moves as much the other way: what balancing is worth if it is wrong.
    """

    def __init__(self, *, start: float, imbalance: float = 1.2, moves: int = 100, inverted: bool = False) -> None:
        self.start, self.imbalance, self.left, self.inverted = start, imbalance, moves, inverted

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        held = stats.site_bytes
        most, least = int(np.argmax(held)), int(np.argmin(held))
        under_way = (stats.moving & (stats.bytes > 0)).any()
        if now < self.start or self.left < 1 or under_way or held[most] < self.imbalance * held.mean():
            return ()
        amount = (held[most] - held[least]) / 2
        if self.inverted:
            most, least = least, most
        pgs, total = [], 0.0
        for row in np.flatnonzero((stats.placement == most) & (stats.bytes > 0) & ~stats.moving):
            if total + stats.bytes[row] <= amount:
                pgs.append(int(stats.pg[row]))
                total += float(stats.bytes[row])
        if not pgs:
            return ()
        self.left -= 1
        why = f"site {most} holds {held[most]:.0f} bytes, site {least} {held[least]:.0f}"
        return [Move(pgs=tuple(pgs), donor=most, receiver=least, why=why)]

    def snapshot(self) -> dict[str, Any]:
        return {"left": self.left}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.left = int(state["left"])
