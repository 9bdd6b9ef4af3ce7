"""Which partition groups a site pushes to disk, or gives away: the orders Liu-07, Liu-05 and XJoin choose in.

A site ranks its own groups by productivity (`Stats.rank`); a policy (`fluxen.policies.disk.local`) says how much.

>>> stats = Stats.build(sites=1, placement=[0, 0, 0], bytes=[10, 30, 20], rank=[0, 2, 1])
>>> [order(stats, 0, kind, now=0.0).tolist() for kind in ("less-productive", "more-productive", "largest")]
[[1, 2, 0], [0, 2, 1], [1, 2, 0]]
>>> fill(stats, np.array([1, 2, 0]), 40.0).tolist()
[1, 2]
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Floats, Ints, Stats

__all__ = ["Victims", "at_most", "checked", "fill", "order"]

Victims: TypeAlias = Literal["less-productive", "more-productive", "random", "largest", "inactive-first"]


def checked(victims: str) -> Victims:
    for known in get_args(Victims):
        if victims == known:
            return victims  # type: ignore[return-value]
    raise ConfigError(f"victims: expected one of {', '.join(get_args(Victims))}, got {victims!r}")


def order(
    stats: Stats, site: int, victims: Victims, now: float, *, inactive_after: float = 60.0, seed: tuple[int, ...] = (0,)
) -> Ints:
    """Rows of the site's groups with active state, first victim first."""
    rows = np.flatnonzero((stats.placement == site) & (stats.bytes > 0) & ~stats.moving)
    if victims == "random":
        return np.random.default_rng(seed).permutation(rows)
    if victims == "largest":
        return rows[np.argsort(-stats.bytes[rows], kind="stable")]
    worth = _worth(stats)[rows]
    if victims == "more-productive":
        return rows[np.argsort(-worth, kind="stable")]
    if victims == "inactive-first":
        idle = now - stats.last_update[rows]
        idle = np.where(idle > inactive_after, idle, 0.0)
        return rows[np.lexsort((worth, -idle))]
    return rows[np.argsort(worth, kind="stable")]


def _worth(stats: Stats) -> Floats:
    """Higher for more productive groups of a site: the site's own ranking, or this report's where it sent none."""
    ranked = stats.rank >= 0
    return np.where(ranked, -stats.rank.astype(np.float64), stats.productivity - (stats.groups + 1) * ranked.any())


def fill(stats: Stats, rows: Ints, amount: float) -> Ints:
    """As many of the first rows as it takes to reach `amount` bytes."""
    before = np.cumsum(stats.bytes[rows]) - stats.bytes[rows]
    return rows[before < amount]


def at_most(size: Floats, rows: Ints, amount: float) -> Ints:
    """The first rows that fit into `amount` bytes together by their `size`, passing over those that are too big."""
    taken, left = [], amount
    for row in rows.tolist():
        if size[row] <= left:
            taken.append(row)
            left -= float(size[row])
    return np.array(taken, dtype=np.int64)
