"""RiverDQ: rows to the site that is ready, for operators without state (content-insensitive routing, as Flux has it).

River's distributed queue lets every consumer take what it has time for (Flux section 2). Between micro-batches the same
comes out of the last batch's speeds: each site gets the share of the rows that it can process in the same time as the
others. Nothing moves with a group that has no state, so there are no rounds, no pairs and no limit to what is re-placed
at once. For groups with state use `fluxen.policies.flux.load`.

Guarantee: every re-placed group lowers the predicted time of a site that would end late and leaves its new site ahead
of that one, and nothing is re-placed for less than `gain` of the slowest site's time.

>>> from fluxen.policies.base import Stats
>>> stats = Stats.build(sites=2, placement=[0, 0, 0, 1, 1, 1], rows_in=[10] * 6, busy=[3.0, 1.5], idle=[0.0, 1.5])
>>> [suggestion] = RiverDQ().suggest(stats, now=1.0)
>>> suggestion.placement
((0, 1),)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Floats, Ints, Policy, Repartition, Stats, Suggestion

__all__ = ["RiverDQ"]


class RiverDQ(Policy):
    """Shares rows out by the sites' speeds.

    gain       share of the slowest site's time that a change must be predicted to save
    smoothing  weight of the speeds known so far against those of the last batch, from 0 to below 1

    Example::

        query.adapt(policy=fx.RiverDQ(smoothing=0.8))
    """

    routes = True

    def __init__(self, *, gain: float = 0.05, smoothing: float = 0.5) -> None:
        if gain < 0 or not 0 <= smoothing < 1:
            raise ConfigError(f"RiverDQ: expected gain >= 0 and smoothing in [0, 1), got {gain} and {smoothing}")
        self.gain, self.smoothing = gain, smoothing
        self._speed: list[float] = []

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        if stats.sites < 2 or stats.rows_in.sum() <= 0 or stats.under_way:
            return ()
        speed = self._learn(stats)
        if speed is None:
            return ()
        table = _shared_out(stats, speed)
        before, after = _slowest(stats, stats.placement, speed), _slowest(stats, table, speed)
        changed = np.flatnonzero(table != stats.placement)
        if len(changed) == 0 or before - after < self.gain * before:
            return ()
        placement = tuple((int(stats.pg[row]), int(table[row])) for row in changed)
        why = f"the slowest site would take {after / before:.0%} of its time"
        return (Repartition(explicit=(), placement=placement, why=why),)

    def _learn(self, stats: Stats) -> Floats | None:
        """Rows per second of each site; one that showed none is taken to be as fast as the others."""
        rows = np.bincount(stats.placement, weights=stats.rows_in, minlength=stats.sites)
        seen = (rows > 0) & (stats.busy > 0)
        if not seen.any():
            return None
        speed = np.divide(rows, stats.busy, out=np.zeros(stats.sites), where=seen)
        speed[~seen] = speed[seen].mean()
        if len(self._speed) == stats.sites:
            known = np.array(self._speed)
            speed = np.where(seen, self.smoothing * known + (1 - self.smoothing) * speed, known)
        self._speed = speed.tolist()
        return np.asarray(speed, dtype=np.float64)

    def snapshot(self) -> dict[str, Any]:
        return {"speed": self._speed}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._speed = [float(value) for value in state["speed"]]


def _slowest(stats: Stats, table: Ints, speed: Floats) -> float:
    return float((np.bincount(table, weights=stats.rows_in, minlength=stats.sites) / speed).max())


def _shared_out(stats: Stats, speed: Floats) -> Ints:
    """The table with groups taken from sites that would end late and given to those that would end first."""
    table = stats.placement.copy()
    rows = np.bincount(table, weights=stats.rows_in, minlength=stats.sites).astype(np.float64)
    ideal = speed * (rows.sum() / speed.sum())
    for row in np.argsort(-stats.rows_in, kind="stable").tolist():
        size, site = float(stats.rows_in[row]), int(table[row])
        if size <= 0 or rows[site] - size / 2 < ideal[site]:
            continue
        ready = int(np.argmin((rows + size) / speed))
        if (rows[ready] + size) / speed[ready] < rows[site] / speed[site]:
            rows[site] -= size
            rows[ready] += size
            table[row] = ready
    return table
