"""The invariants every adaptation must keep, each as one check that answers with a reason to refuse.

`fluxen.control.manager` runs them; policies may suggest anything. The restrictions on mixing moves and spills come from
Liu-05, the one-adaptation-per-site rule from Flux section 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import (
    Cleanup,
    Merge,
    Move,
    Repartition,
    Replan,
    Rescale,
    Spill,
    Split,
    Stats,
    Suggestion,
    Unspill,
)

__all__ = ["Busy", "Limits", "refuse", "size_of", "touches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the manager allows.

    site_cooldown   seconds a site rests between two adaptations
    group_cooldown  seconds a partition group rests after it moved
    headroom        share of a site's memory a move or unspill may fill
    generations     the operator can push groups to disk and bring them back; off for those whose groups take turns
    rotation        the operator rotates on-disk groups through memory (Flux section 6), so a receiver may go beyond its
                    memory; off for joins, of whose groups only what is in memory needs memory at the receiver
    deals           the inputs whose rows of one key may be dealt over several sites
    whole           why rows of a key cannot be dealt where `deals` is empty
    divisible       whether a key may get a partition group of its own
    """

    site_cooldown: float = 0.0
    group_cooldown: float = 0.0
    headroom: float = 1.0
    rotation: bool = False
    generations: bool = True
    deals: tuple[int, ...] = ()
    whole: str = "its operator has not said that they may be dealt"
    divisible: bool = True

    def __post_init__(self) -> None:
        if self.site_cooldown < 0 or self.group_cooldown < 0 or not 0 < self.headroom <= 1:
            raise ConfigError(
                "limits: cool-downs must be at least 0 and headroom in (0, 1], got "
                f"{self.site_cooldown}, {self.group_cooldown} and {self.headroom}; use seconds and a share"
            )


@dataclass(slots=True, kw_only=True)
class Busy:
    """What is under way or resting: the part of the manager's state the checks need."""

    sites: dict[int, int] = field(default_factory=dict)  # site -> id of its adaptation
    copying: dict[int, int] = field(default_factory=dict)  # site -> id of a move that takes several batches
    everything: int | None = None  # id of an adaptation of the whole stage
    site_rest: dict[int, float] = field(default_factory=dict)  # site -> end of its cool-down
    group_rest: dict[int, float] = field(default_factory=dict)


def touches(suggestion: Suggestion) -> tuple[int, ...] | None:
    """The sites an adaptation occupies; None means all of them."""
    match suggestion:
        case Move():
            return (suggestion.donor, suggestion.receiver)
        case Spill() | Unspill() | Cleanup():
            return (suggestion.site,)
        case Split() | Merge():
            return suggestion.sites
        case Replan():
            return ()  # done between two batches, whatever else goes on at the site
        case Rescale() | Repartition():
            return None


def size_of(suggestion: Suggestion, stats: Stats) -> int:
    """Bytes of state the adaptation concerns, as far as the statistics tell."""
    if isinstance(suggestion, Repartition):
        rows = [stats.index(pg) for pg, _ in suggestion.placement]
    elif isinstance(suggestion, Rescale | Replan | Split | Merge):
        return 0
    else:
        rows = [stats.index(pg) for pg in suggestion.pgs]
    column = stats.spilled if isinstance(suggestion, Unspill | Cleanup) else stats.bytes
    total = sum(column[row] for row in rows if row >= 0)
    if isinstance(suggestion, Move | Repartition):
        total += sum(stats.spilled[row] for row in rows if row >= 0)
    return int(total)


def refuse(suggestion: Suggestion, stats: Stats, busy: Busy, limits: Limits, now: float) -> str | None:
    """The first reason not to carry the suggestion out, or None."""
    return (
        _unknown(suggestion, stats)
        or _occupied(suggestion, busy, now)
        or _specific(suggestion, stats, busy, limits, now)
    )


def _unknown(suggestion: Suggestion, stats: Stats) -> str | None:
    for site in touches(suggestion) or ():
        if not 0 <= site < stats.sites:
            return f"site {site} does not exist: the stage has sites 0..{stats.sites - 1}"
    match suggestion:
        case Rescale():
            return "a stage needs at least one site" if suggestion.sites < 1 else None
        case Replan():
            known = 0 <= suggestion.site < stats.sites
            return None if known else f"site {suggestion.site} does not exist: the stage has sites 0..{stats.sites - 1}"
        case Repartition():
            return _placed_nowhere(suggestion, stats)
        case Split() | Merge():
            return _no_hash(suggestion.key)
    if not suggestion.pgs:
        return "names no partition group"
    if len(suggestion.pgs) > 1 and len(set(suggestion.pgs)) < len(suggestion.pgs):
        return "names a partition group twice"
    owner = suggestion.donor if isinstance(suggestion, Move) else suggestion.site
    for pg in suggestion.pgs:
        row = stats.index(pg)
        if row < 0:
            return f"partition group {pg} does not exist"
        if stats.placement[row] != owner:
            return f"partition group {pg} is at site {stats.placement[row]}, not at site {owner}"
        if stats.moving[row]:
            return f"partition group {pg} is already moving"
    return None


def _placed_nowhere(suggestion: Repartition, stats: Stats) -> str | None:
    fresh = {h for h, _ in suggestion.explicit} - {h for h, _ in stats.keys.isolated}
    for pg, site in suggestion.placement:
        if not 0 <= site < stats.sites:
            return f"group {pg} would go to site {site}: the stage has sites 0..{stats.sites - 1}"
        if stats.index(pg) < 0 and not stats.groups <= pg < stats.groups + len(fresh):
            return f"partition group {pg} does not exist"
    return next((why for h, _ in suggestion.explicit if (why := _no_hash(h))), None)


def _no_hash(key: int) -> str | None:
    return None if -(2**63) <= key < 2**63 else f"key {key} is no hash of 64 bits"


def _occupied(suggestion: Suggestion, busy: Busy, now: float) -> str | None:
    if busy.everything is not None:
        return f"adaptation {busy.everything} of the whole stage is under way"
    sites = touches(suggestion)
    # while a copy or a parallel track is under way, other groups of both sites may go to disk and come back
    taken = busy.sites if isinstance(suggestion, Spill | Unspill | Cleanup) else {**busy.sites, **busy.copying}
    if sites is None:
        return f"{len(taken)} sites are adapting" if taken else None
    for site in sites:
        if site in taken:
            return f"site {site} is busy with adaptation {taken[site]}"
        if now < busy.site_rest.get(site, -np.inf):
            return f"site {site} rests until {busy.site_rest[site]:g}"
    return None


def _specific(suggestion: Suggestion, stats: Stats, busy: Busy, limits: Limits, now: float) -> str | None:
    if isinstance(suggestion, Spill | Unspill | Cleanup) and not limits.generations:
        return f"{suggestion.kind} is not available for this operator, whose groups take turns in memory"
    match suggestion:
        case Move():
            return _move(suggestion, stats, busy.group_rest, limits, now)
        case Spill():
            if all(stats.bytes[stats.index(pg)] <= 0 for pg in suggestion.pgs):
                return "none of the groups holds state in memory"
        case Unspill() | Cleanup():
            for pg in suggestion.pgs:
                if stats.spilled[stats.index(pg)] <= 0:
                    return f"partition group {pg} has nothing on disk"
            if isinstance(suggestion, Unspill):
                return _room(suggestion.site, size_of(suggestion, stats), stats, limits)
        case Repartition():
            if suggestion.explicit and not limits.divisible:
                return "keys of one partition group stay together: the operator's state is that of the group"
        case Split():
            if not limits.deals:
                return f"rows of one key stay together: {limits.whole}"
        case Rescale():
            if suggestion.sites == stats.sites:
                return f"the stage already has {stats.sites} sites"
    return None


def _move(move: Move, stats: Stats, rest: Mapping[int, float], limits: Limits, now: float) -> str | None:
    if move.donor == move.receiver:
        return f"donor and receiver are both site {move.donor}"
    for pg in move.pgs:
        if now < rest.get(pg, -np.inf):
            return f"partition group {pg} rests until {rest[pg]:g}"
    if limits.rotation:
        return None
    held = sum(float(stats.bytes[stats.index(pg)]) for pg in move.pgs)  # what is on disk stays there
    return _room(move.receiver, int(held), stats, limits)


def _room(site: int, size: int, stats: Stats, limits: Limits) -> str | None:
    room = stats.capacity[site] * limits.headroom - stats.site_bytes[site]
    if size > room:
        return f"site {site} has room for {max(0, int(room))} bytes and {size} are needed"
    return None
