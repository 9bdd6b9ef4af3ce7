"""A group of its own for a heavy key, where what keeps a site slow is one partition group that no other site can take.

Sites name their heaviest keys only while somebody asks, because that costs them a little: while the slowest site stands
out and its heaviest group is most of the difference. If the rest of that group, without the key, is worth moving, the
key is isolated; groups then move as all others do (`fluxen.policies.auto.auto`). Isolating copies nothing. A key whose
group has had next to no work for `COOL` reports goes back to where it was.

Where a key can be dealt over several sites, sites name keys for that, too, while a group that is one key is all that
keeps a site slow (`fluxen.control.keys.splitting`).

The number of isolated keys is bounded (`MOST`), as every row is looked up among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluxen.policies.auto.candidates import Candidate
from fluxen.policies.auto.loads import Loads
from fluxen.policies.base import Repartition, Stats

__all__ = ["Isolation"]

ASKS = 3
"""Reports in a row in which a site must stand out before keys are asked for, and in which keys are looked at."""
RELIEF = 0.05
"""Share of the slowest site's time that isolating, or a move in its place, must be predicted to save."""
STANDS_OUT = 1.2
"""The slowest site's time over the mean, from which on it stands out."""
COOL = 32
_COLD = 0.1
"""Work of an isolated key as a share of the mean group's, below which it is cold."""
MOST = 64


class Isolation:
    """Looks for keys that should have groups of their own, and for isolated ones that should not."""

    def __init__(self) -> None:
        self._apart = 0  # reports in a row in which the slowest site stood out because of one group
        self._named: dict[int, tuple[float, int]] = {}  # key -> share of its group's rows summed up, reports
        self._cold: dict[int, int] = {}  # isolated key -> reports in a row without work

    @property
    def asks(self) -> bool:
        return self._apart >= ASKS

    def observe(self, stats: Stats, loads: Loads, *, deals: bool = False) -> None:
        """One more report; `deals`: whether to ask for keys that have their groups to themselves, too."""
        group, apart = self._blocking(stats, loads)
        self._apart = min(self._apart + 1, 2 * ASKS) if group is not None or (deals and apart) else 0
        if group is None:
            self._named = {}
        else:
            self._look(stats, group)
        means = loads.work.mean() if stats.groups else 0.0
        cold = {}
        for key, pg in stats.keys.isolated:
            row = stats.index(pg)
            if key not in stats.keys.dealt and row >= 0 and loads.work[row] <= _COLD * means:
                cold[key] = min(self._cold.get(key, 0) + 1, COOL)
        self._cold = cold

    def _blocking(self, stats: Stats, loads: Loads) -> tuple[int | None, bool]:
        """The row of the group that keeps the slowest site slow, if it is more than one key; and whether one does."""
        seconds = loads.seconds
        if stats.sites < 2 or loads.slowest < STANDS_OUT * float(seconds.mean()) or loads.slowest <= 0:
            return None, False
        site = int(seconds.argmax())
        mine = np.flatnonzero(stats.placement == site)
        if len(mine) == 0:
            return None, False
        row = int(mine[loads.work[mine].argmax()])
        took = float(loads.work[row] * loads.pace[site])
        own = {pg for _, pg in stats.keys.isolated}
        # a group that is better off beside those of the idlest site is moved, not divided
        fits = float(seconds.min()) + took < (1 - RELIEF) * loads.slowest
        return (None if fits or int(stats.pg[row]) in own else row), not fits

    def _look(self, stats: Stats, row: int) -> None:
        rows = float(stats.rows_in[row])
        if rows <= 0:
            return
        for key, pg, n in zip(stats.keys.key.tolist(), stats.keys.pg.tolist(), stats.keys.rows.tolist()):
            if pg == stats.pg[row]:
                share, reports = self._named.get(key, (0.0, 0))
                self._named[key] = (share + min(n / rows, 1.0), reports + 1)

    def candidates(self, stats: Stats, loads: Loads) -> list[Candidate]:
        if stats.under_way:
            return []
        return self._isolating(stats, loads) or self._returning(stats)

    def _isolating(self, stats: Stats, loads: Loads) -> list[Candidate]:
        row, _ = self._blocking(stats, loads)
        known = {key: total / n for key, (total, n) in self._named.items() if n >= ASKS}
        if row is None or not known or len(stats.keys.isolated) >= MOST:
            return []
        key, share = max(known.items(), key=lambda one: one[1])
        seconds, site = loads.seconds, int(stats.placement[row])
        took = float(loads.work[row] * loads.pace[site])
        # either part can go: at best sites then take as long as the mean, or as the larger part
        best = max(float(seconds.mean()), max(share, 1 - share) * took)
        saves = loads.slowest - best
        if saves < RELIEF * loads.slowest:
            return []
        why = f"a key has {share:.0%} of the rows of group {stats.pg[row]}, which keeps site {site} slow"
        fresh = (key, int(stats.pg.max()) + 1)
        explicit = (*stats.keys.isolated, fresh)
        isolate = Repartition(explicit=explicit, placement=(), why=why)
        return [Candidate(kind="isolate", suggestions=(isolate,), saves=saves)]

    def _returning(self, stats: Stats) -> list[Candidate]:
        cold = {key for key, reports in self._cold.items() if reports >= COOL}
        if not cold:
            return []
        kept = tuple(one for one in stats.keys.isolated if one[0] not in cold)
        back = Repartition(explicit=kept, placement=(), why=f"{len(cold)} isolated keys have cooled down")
        return [Candidate(kind="return", suggestions=(back,), needed="fewer groups to look up")]

    def asked(self) -> None:
        """A key is to be isolated: if it is not, or has gone back later, it is looked at anew."""
        self._named = {}

    def returned(self) -> None:
        """Keys have been asked to go back; those that cannot yet are asked again later."""
        self._cold = {}

    def snapshot(self) -> dict[str, Any]:
        return {
            "apart": self._apart,
            "named": [[key, *named] for key, named in self._named.items()],
            "cold": [list(one) for one in self._cold.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._apart = int(state["apart"])
        self._named = {int(key): (float(share), int(n)) for key, share, n in state["named"]}
        self._cold = {int(key): int(n) for key, n in state["cold"]}
