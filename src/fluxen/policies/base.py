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

from fluxen.policies.stats import Bools, Floats, HotKeys, Ints, Stats, Traits, utilization

__all__ = [
    "Bools",
    "Cleanup",
    "Floats",
    "HotKeys",
    "Ints",
    "Merge",
    "Move",
    "Note",
    "Policy",
    "Repartition",
    "Replan",
    "Rescale",
    "Spill",
    "Split",
    "Stats",
    "Suggestion",
    "Traits",
    "Unspill",
    "decode",
    "describe",
    "encode",
    "utilization",
]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An entry for the log that is no suggestion."""

    kind: str
    what: str
    why: str
    detail: Mapping[str, Any]


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
    deals: bool = False
    """whether a key that is more than a site should do, of those it asks for, is dealt over several sites beside it"""

    @property
    def asks_for_keys(self) -> bool:
        """Whether the next report should name the keys with most rows (`Stats.keys`), which costs sites a little."""
        return False

    def begin(self, traits: Traits) -> None:
        """Told before the first report, and again after a restart: what its stage can do."""
        return

    @property
    def predictions(self) -> list[dict[str, Any]]:
        """What it expected of its last actions and what came of it, where it keeps such a record."""
        return []

    def notes(self) -> Sequence[Note]:
        """What is to be logged besides its suggestions, since the last call."""
        return ()

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
