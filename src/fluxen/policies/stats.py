"""What a policy sees: one report of a stage as columns, and what the stage can do.

What a policy may ask for is in `fluxen.policies.base`, which offers these names as well. `fluxen.control.stats` makes a
report of the sites' records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Bools", "Floats", "HotKeys", "Ints", "Stats", "Traits", "utilization"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def _none() -> Any:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class HotKeys:
    """Keys with most rows in one report, where sites were asked for them, and those with a group of their own."""

    key: Ints = field(default_factory=_none)
    """key hashes"""
    pg: Ints = field(default_factory=_none)
    rows: Floats = field(default_factory=_none)
    isolated: tuple[tuple[int, int], ...] = ()
    """(key hash, its partition group)"""
    dealt: frozenset[int] = frozenset()
    """those of `isolated` that stand for a part of a key's rows, or did"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a stage can do, beyond moving groups: what a policy need not ask for where it is not there."""

    spills: bool = True
    """groups can go to disk and come back"""
    rotates: bool = False
    """groups beyond a site's memory take turns in it by themselves"""
    isolates: bool = False
    """a heavy key can get a group of its own"""
    deals: bool = False
    """rows of a heavy key can be dealt over several sites"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """One report of a stage as a struct of arrays: one array entry per site, or per partition group.

    `bytes` is state held in memory, `spilled` is state (and spooled input) on disk; a group is resident when it spilled
    nothing. `backlog` counts rows that arrived for a group and were not processed yet. `capacity` is infinite at a site
    without a memory limit. `whole` is what the batch took in all, `waited` how long nothing was done before it; both
    are 0 where nobody knows. `read` is the time a site needed to get at state that had moved or been on disk, a part of
    `busy`. Row i of every group column belongs to group `pg[i]`, which `placement[i]` serves; `pg` is sorted. `rank`
    orders a site's own groups by productivity (0 is the most productive, -1 means not ranked).
    """

    seconds: float
    whole: float = 0.0
    waited: float = 0.0
    keys: HotKeys = HotKeys()
    # one entry per site
    site_rows_in: Floats
    site_rows_out: Floats
    site_bytes: Floats
    site_spilled: Floats
    busy: Floats
    idle: Floats
    capacity: Floats
    read: Floats
    # one entry per partition group
    pg: Ints
    placement: Ints
    rows_in: Floats
    rows_out: Floats
    bytes: Floats
    spilled: Floats
    last_update: Floats
    backlog: Floats
    rank: Ints
    moving: Bools
    vacant: Bools
    """ids that no group has now; they count as moving, so that nobody moves them"""

    @property
    def under_way(self) -> bool:
        """Whether any group is moving."""
        return bool((self.moving & ~self.vacant).any())

    @property
    def sites(self) -> int:
        return len(self.busy)

    @property
    def groups(self) -> int:
        return len(self.pg)

    @property
    def utilization(self) -> Floats:
        """Share of the observed time a site was not waiting for input; 0 for a site that was not observed."""
        return utilization(self.busy, self.idle)

    @property
    def productivity(self) -> Floats:
        """Rows out per byte of state in memory; 0 for a group without state."""
        return np.divide(self.rows_out, self.bytes, out=np.zeros(self.groups), where=self.bytes > 0)

    @property
    def excess(self) -> Floats:
        """Memory a site has beyond all its groups, on disk ones included: negative means it must keep some on disk."""
        return np.asarray(self.capacity - self.site_bytes - self.site_spilled, dtype=np.float64)

    def index(self, pg: int) -> int:
        """Row of a group, or -1 when the stage has no such group."""
        if 0 <= pg < len(self.pg) and self.pg[pg] == pg:  # ordinary groups are numbered 0..P-1: their own row
            return pg
        row = int(np.searchsorted(self.pg, pg))
        return row if row < len(self.pg) and self.pg[row] == pg else -1

    @classmethod
    def build(
        cls,
        *,
        sites: int,
        placement: ArrayLike,
        seconds: float = 1.0,
        keys: HotKeys | None = None,
        pg: ArrayLike | None = None,
        rank: ArrayLike | None = None,
        **columns: ArrayLike | None,
    ) -> Stats:
        """Fill in what is missing: zeros, no memory limit, and site totals summed from the groups.

        `columns` are the other fields, by name.
        """
        whole, waited = (float(np.asarray(columns.pop(name, 0.0))) for name in ("whole", "waited"))
        where = np.asarray(placement, dtype=np.int64)
        size = len(where)
        moving, vacant = (_flags(columns.pop(name, None), size) for name in ("moving", "vacant"))
        given = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items() if values is not None}
        unknown = sorted(set(columns) - {*_GROUP_COLUMNS, *_SITE_TOTALS, *_SITE_COLUMNS})
        if unknown:
            raise TypeError(f"Stats has no column {unknown[0]!r}")
        groups = {name: given.get(name, np.zeros(size)) for name in _GROUP_COLUMNS}
        totals = {
            name: given.get(name, np.bincount(where, weights=groups[column], minlength=sites)[:sites].astype(float))
            for name, column in _SITE_TOTALS.items()
        }
        made: dict[str, Any] = {
            **groups,
            **totals,
            **{name: given.get(name, np.full(sites, default)) for name, default in _SITE_COLUMNS.items()},
        }
        return cls(
            seconds=seconds,
            whole=whole,
            waited=waited,
            keys=keys or HotKeys(),
            pg=np.arange(size, dtype=np.int64) if pg is None else np.asarray(pg, dtype=np.int64),
            placement=where,
            rank=np.full(size, -1, dtype=np.int64) if rank is None else np.asarray(rank, dtype=np.int64),
            moving=moving,
            vacant=vacant,
            **made,
        )


_GROUP_COLUMNS = ("rows_in", "rows_out", "bytes", "spilled", "last_update", "backlog")
_SITE_TOTALS = {
    "site_rows_in": "rows_in",
    "site_rows_out": "rows_out",
    "site_bytes": "bytes",
    "site_spilled": "spilled",
}
_SITE_COLUMNS = {"busy": 0.0, "idle": 0.0, "capacity": np.inf, "read": 0.0}


def _flags(given: ArrayLike | None, size: int) -> Bools:
    return np.zeros(size, dtype=np.bool_) if given is None else np.asarray(given, dtype=np.bool_)


def utilization(busy: Floats, idle: Floats) -> Floats:
    """1 - idle / observed time, per site."""
    total = busy + idle
    return np.divide(busy, total, out=np.zeros(len(total)), where=total > 0)
