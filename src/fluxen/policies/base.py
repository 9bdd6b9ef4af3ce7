"""What a policy sees, what it may ask for, and what it derives from.

A policy is pure: statistics and `now` in, suggestions out. The manager that guards and logs the suggestions lives in
`fluxen.control.manager`; statistics are made of the sites' records in `fluxen.control.stats`. Both runtimes
(`fluxen.spark`, `fluxen.sim`) hand the same `Stats` to the same objects, so a simulated decision is the production one.

>>> stats = Stats.build(sites=2, placement=[0, 0, 1], rows_in=[30, 10, 5], busy=[1.0, 0.25], idle=[0.0, 0.75])
>>> stats.utilization.tolist()
[1.0, 0.25]
>>> encode(Move(pgs=(1,), donor=0, receiver=1, why="site 0 is busier"))["kind"]
'move'
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Bools",
    "Cleanup",
    "Floats",
    "Ints",
    "Merge",
    "Move",
    "Policy",
    "Repartition",
    "Replan",
    "Rescale",
    "Spill",
    "Split",
    "Stats",
    "Suggestion",
    "Unspill",
    "decode",
    "describe",
    "encode",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """One report of a stage as a struct of arrays: one array entry per site, or per partition group.

    `bytes` is state held in memory, `spilled` is state (and spooled input) on disk; a group is resident when it spilled
    nothing. `backlog` counts rows that arrived for a group and were not processed yet. `capacity` is infinite at a site
    without a memory limit. Row i of every group column belongs to group `pg[i]`, which `placement[i]` serves; `pg` is
    sorted. `rank` orders a site's own groups by productivity (0 is the most productive, -1 means not ranked).
    """

    seconds: float
    # one entry per site
    site_rows_in: Floats
    site_rows_out: Floats
    site_bytes: Floats
    site_spilled: Floats
    busy: Floats
    idle: Floats
    capacity: Floats
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
        pg: ArrayLike | None = None,
        rank: ArrayLike | None = None,
        moving: ArrayLike | None = None,
        **columns: ArrayLike | None,
    ) -> Stats:
        """Fill in what is missing: zeros, no memory limit, and site totals summed from the groups.

        `columns` are the other fields, by name.
        """
        where = np.asarray(placement, dtype=np.int64)
        size = len(where)
        given = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items() if values is not None}
        unknown = sorted(set(columns) - {*_GROUP_COLUMNS, *_SITE_TOTALS, *_SITE_COLUMNS})
        if unknown:
            raise TypeError(f"Stats has no column {unknown[0]!r}")
        groups = {name: given.get(name, np.zeros(size)) for name in _GROUP_COLUMNS}
        totals = {
            name: given.get(name, np.bincount(where, weights=groups[column], minlength=sites)[:sites].astype(float))
            for name, column in _SITE_TOTALS.items()
        }
        return cls(
            seconds=seconds,
            pg=np.arange(size, dtype=np.int64) if pg is None else np.asarray(pg, dtype=np.int64),
            placement=where,
            rank=np.full(size, -1, dtype=np.int64) if rank is None else np.asarray(rank, dtype=np.int64),
            moving=np.zeros(size, dtype=np.bool_) if moving is None else np.asarray(moving, dtype=np.bool_),
            **groups,
            **totals,
            **{name: given.get(name, np.full(sites, default)) for name, default in _SITE_COLUMNS.items()},
        )


_GROUP_COLUMNS = ("rows_in", "rows_out", "bytes", "spilled", "last_update", "backlog")
_SITE_TOTALS = {
    "site_rows_in": "rows_in",
    "site_rows_out": "rows_out",
    "site_bytes": "bytes",
    "site_spilled": "spilled",
}
_SITE_COLUMNS = {"busy": 0.0, "idle": 0.0, "capacity": np.inf}


def utilization(busy: Floats, idle: Floats) -> Floats:
    """1 - idle / observed time, per site."""
    total = busy + idle
    return np.divide(busy, total, out=np.zeros(len(total)), where=total > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Serve these groups at the receiver from the next epoch on."""

    kind: ClassVar[str] = "move"
    pgs: tuple[int, ...]
    donor: int
    receiver: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """Turn these groups' state at a site into an inactive generation on disk."""

    kind: ClassVar[str] = "spill"
    site: int
    pgs: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unspill:
    """Bring these groups' state at a site back into memory."""

    kind: ClassVar[str] = "unspill"
    site: int
    pgs: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    """Emit what the spilled generations of these groups still owe."""

    kind: ClassVar[str] = "cleanup"
    site: int
    pgs: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """Run the stage on another number of sites."""

    kind: ClassVar[str] = "rescale"
    sites: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """Run another join tree at one site; `tree` has the inputs' numbers, as in "((0 1) 2)"."""

    kind: ClassVar[str] = "replan"
    site: int
    tree: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition:
    """Use another partitioning function: heavy keys (by key hash) with groups of their own, and groups re-placed."""

    kind: ClassVar[str] = "repartition"
    explicit: tuple[tuple[int, int], ...]  # key hash -> partition group
    placement: tuple[tuple[int, int], ...]  # partition group -> site, only what changes
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Deal one input's rows of a key over several sites; the other inputs' rows of it go to all of them."""

    kind: ClassVar[str] = "split"
    key: int  # its hash
    dealt: int
    sites: tuple[int, ...]  # the first one keeps what there is
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Bring a key that was split together again."""

    kind: ClassVar[str] = "merge"
    key: int
    sites: tuple[int, ...]
    why: str


Suggestion: TypeAlias = Move | Spill | Unspill | Cleanup | Rescale | Replan | Repartition | Split | Merge

_KINDS: dict[str, Any] = {
    c.kind: c for c in (Move, Spill, Unspill, Cleanup, Rescale, Replan, Repartition, Split, Merge)
}


class Policy(ABC):
    """Decides; never acts. Deterministic given its settings, the statistics and `now`.

    Derive from it and say in `suggest` what should be done; `adapt(policy=...)` takes the object, or the class by its
    path ("my_package.my_module:MyPolicy"), as query files and scenarios do.

    >>> class LeaveSiteZero(Policy):
    ...     def suggest(self, stats, now):
    ...         here = tuple(stats.pg[stats.placement == 0].tolist())
    ...         return [Move(pgs=here, donor=0, receiver=1, why="site 0 is leaving")] if here else []
    """

    spills: bool = False
    """whether it keeps sites within their memory itself; if not, sites that would overflow spill beside it"""
    recency: bool = False
    """whether groups are ranked by their recent results instead of all since they last spilled"""
    needs_memory: bool = False
    """whether it does nothing where memory is not limited"""
    relocates: bool = True
    """whether it decides where groups are; a partitioner beside it then only gives keys groups of their own"""
    routes: bool = False
    """whether it decides about every row's site, as partitioners do"""

    @abstractmethod
    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        """What should be done after a report; `now` is in seconds."""

    def snapshot(self) -> dict[str, Any]:
        """What it remembers between calls, as plain JSON; a little, whatever time passes."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on as the policy of the same settings that wrote this snapshot would."""
        return


def encode(suggestion: Suggestion) -> dict[str, Any]:
    """A suggestion as a JSON-able dict; `decode` is the inverse."""
    return {"kind": suggestion.kind, **{f.name: getattr(suggestion, f.name) for f in fields(suggestion)}}


def decode(data: Mapping[str, Any]) -> Suggestion:
    """The suggestion `encode` wrote, also after a trip through JSON (which turns tuples into lists)."""
    values = {name: _tuples(value) for name, value in data.items() if name != "kind"}
    made: Suggestion = _KINDS[data["kind"]](**values)
    return made


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list | tuple) else value


def describe(suggestion: Suggestion) -> str:
    """What a suggestion would do, in a few words.

    >>> describe(Move(pgs=(3, 7), donor=0, receiver=2, why=""))
    'move groups 3, 7 from site 0 to site 2'
    """
    match suggestion:
        case Move():
            return f"move {_named(suggestion.pgs)} from site {suggestion.donor} to site {suggestion.receiver}"
        case Spill() | Unspill() | Cleanup():
            return f"{suggestion.kind} {_named(suggestion.pgs)} at site {suggestion.site}"
        case Rescale():
            return f"rescale to {suggestion.sites} sites"
        case Split():
            places = ", ".join(map(str, suggestion.sites))
            return f"split key {suggestion.key}: rows of input {suggestion.dealt} dealt over sites {places}"
        case Merge():
            return f"merge key {suggestion.key} from sites {', '.join(map(str, suggestion.sites))}"
        case Replan():
            return f"replan site {suggestion.site} as {suggestion.tree}"
        case Repartition():
            return (
                f"repartition: {len(suggestion.explicit)} explicit keys, {len(suggestion.placement)} groups re-placed"
            )


def _named(pgs: tuple[int, ...], shown: int = 8) -> str:
    listed = ", ".join(str(pg) for pg in pgs[:shown])
    more = f" and {len(pgs) - shown} more" if len(pgs) > shown else ""
    return f"group{'' if len(pgs) == 1 else 's'} {listed}{more}"
