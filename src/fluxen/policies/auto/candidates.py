"""What could be done next, what it is predicted to save and to cost, and which of it is worth doing together.

A source of candidates is a file beside this one that makes `Candidate`s of a report; `fluxen.policies.auto.auto` asks
all of them and does what `choose` picks.

>>> from fluxen.policies.base import Rescale
>>> dear = Candidate(kind="rescale", suggestions=(Rescale(sites=3, why="busy"),), saves=0.01, costs=9.0)
>>> choose([dear])
[]
>>> [found] = choose([replace(dear, costs=0.1)])
>>> found.told()[0].why
'saves 0.01 s a batch over 50 batches, costs 0.1 s: busy'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fluxen.policies.base import Merge, Move, Repartition, Replan, Rescale, Split, Suggestion

__all__ = ["HORIZON", "MARGIN", "Candidate", "choose"]

HORIZON = 50
"""Batches within which an adaptation must have paid."""
MARGIN = 1.5
"""How many times over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Suggestions that make sense together, and what they are worth."""

    kind: str
    suggestions: tuple[Suggestion, ...]
    saves: float = 0.0
    """seconds per batch, as predicted"""
    costs: float = 0.0
    """seconds, once"""
    needed: str = ""
    """what it is good for if not for seconds: then it is done whatever it costs"""

    @property
    def gain(self) -> float:
        """Seconds within the horizon."""
        return HORIZON * self.saves - self.costs

    @property
    def pays(self) -> bool:
        return bool(self.needed) or (self.saves > 0 and HORIZON * self.saves >= MARGIN * self.costs)

    @property
    def sites(self) -> frozenset[int] | None:
        """The sites it concerns; None for all of them."""
        found: set[int] = set()
        for suggestion in self.suggestions:
            match suggestion:
                case Move():
                    found |= {suggestion.donor, suggestion.receiver}
                case Rescale() | Repartition() | Split() | Merge():
                    return None
                case Replan():
                    continue
                case _:
                    found.add(suggestion.site)
        return frozenset(found)

    @property
    def arithmetic(self) -> str:
        if not self.needed:
            return f"saves {self.saves:.2g} s a batch over {HORIZON} batches, costs {self.costs:.2g} s"
        return f"{self.needed}, costs {self.costs:.2g} s"

    def told(self) -> list[Suggestion]:
        """The suggestions, each with the arithmetic in front of its reason."""
        return [replace(s, why=f"{self.arithmetic}: {s.why}" if s.why else self.arithmetic) for s in self.suggestions]


def choose(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those that pay and do not touch each other's sites: what is needed first, then what is worth most."""
    chosen: list[Candidate] = []
    taken: set[int] = set()
    for candidate in sorted(candidates, key=lambda one: (not one.needed, -one.gain)):
        if not candidate.pays or not candidate.suggestions:
            continue
        sites = candidate.sites
        if sites is None and chosen:  # nothing goes beside a change of the whole stage
            continue
        if sites is not None and not taken.isdisjoint(sites):
            continue
        chosen.append(candidate)
        if sites is None:
            break
        taken |= sites
    return chosen
