"""Predictions, and what became of them.

A prediction says by how much the slowest site's time per unit of work will fall (`wall` False), or the whole batch's
(`wall` True, for what changes the number of sites). It is compared with the mean of `AFTER` reports once it has been
carried out, whatever the workload does meanwhile: per unit of work. Where predictions of a kind promise more than they
keep, later ones count for less (`trust`), never for more.

>>> ledger = Ledger()
>>> def report(placement, slowest):
...     return Stats.build(sites=2, placement=placement, rows_in=[50, 50], busy=[slowest, 0.4])
>>> for _ in range(4):
...     ledger.observe(report([0, 0], 1.0))
>>> ledger.predict("move", "move group 1", saves=0.5, share=0.5)
>>> for _ in range(AFTER + 1):
...     ledger.observe(report([0, 1], 0.75))
>>> [note.why for note in ledger.notes()]
['predicted to save 0.5 s a batch, saves 0.25 s']
>>> round(ledger.trust("move"), 3)
0.85
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from fluxen.policies.base import Note, Stats

__all__ = ["AFTER", "KEPT", "Ledger", "Prediction"]

BEFORE = 8
"""Reports before an action that say how long batches took without it."""
AFTER = 6
"""Reports after an action, and after the one that it took itself, that say how long they take with it."""
KEPT = 24
"""Comparisons that are remembered."""
_LEARNED = 0.3
LEAST_TRUST = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What was said of an action, and what was found."""

    kind: str
    what: str
    wall: bool
    saves: float
    """seconds a batch, as predicted when it was decided"""
    share: float
    """of a batch's time that this was then"""
    before: float
    """seconds per unit of work"""
    seen: int = 0
    after: float = 0.0
    """sum of the same over the reports since"""
    found: float | None = None
    """seconds a batch, as it turned out; None while it is not known"""


class Ledger:
    """The predictions of one stage."""

    def __init__(self) -> None:
        self._recent: list[tuple[float, float]] = []  # (slowest site, whole batch) per unit of work
        self._open: list[Prediction] = []
        self._done: list[Prediction] = []
        self._trust: dict[str, float] = {}
        self._fresh: list[Prediction] = []

    def trust(self, kind: str) -> float:
        """What a second promised by a prediction of this kind is worth."""
        return self._trust.get(kind, 1.0)

    def observe(self, stats: Stats) -> None:
        """One more report."""
        work = float((stats.rows_in + stats.rows_out).sum())
        slowest = float(stats.busy.max(initial=0.0))
        if work <= 0 or slowest <= 0 or stats.under_way:
            return
        newest = (slowest / work, stats.whole / work)
        self._recent = [*self._recent, newest][-BEFORE:]
        still: list[Prediction] = []
        for one in self._open:
            known = replace(one, seen=one.seen + 1)
            if one.seen > 0:  # the first batch is what the action itself took
                known = replace(known, after=one.after + newest[one.wall])
            if known.seen > AFTER:
                self._conclude(known)
            else:
                still.append(known)
        self._open = still

    def predict(self, kind: str, what: str, *, saves: float, share: float, wall: bool = False) -> None:
        """An action begins. What is open of its kind is concluded with what has been seen of it."""
        for one in [one for one in self._open if one.wall == wall]:
            self._open.remove(one)
            if one.seen > AFTER // 2:
                self._conclude(one)
        known = [recent[wall] for recent in self._recent]
        if known and saves > 0:
            before = sum(known) / len(known)
            self._open.append(Prediction(kind=kind, what=what, wall=wall, saves=saves, share=share, before=before))
        self._recent = []

    def _conclude(self, one: Prediction) -> None:
        after = one.after / max(one.seen - 1, 1)
        kept = (1 - after / one.before) / one.share if one.before > 0 and one.share > 0 else 0.0
        found = replace(one, found=one.saves * kept)
        known = self.trust(one.kind)
        self._trust[one.kind] = max(LEAST_TRUST, known + _LEARNED * (min(max(kept, 0.0), 1.0) - known))
        self._done = [*self._done, found][-KEPT:]
        self._fresh.append(found)

    def notes(self) -> list[Note]:
        """Comparisons since the last call, for the log."""
        fresh, self._fresh = self._fresh, []
        return [
            Note(
                kind="prediction",
                what=one.what,
                why=f"predicted to save {one.saves:.2g} s a batch, saves {one.found or 0.0:.2g} s",
                detail={"kind": one.kind, "predicted": one.saves, "found": one.found, "trust": self.trust(one.kind)},
            )
            for one in fresh
        ]

    def shown(self) -> list[dict[str, Any]]:
        """The comparisons that are remembered, the oldest first, and what is still open."""
        return [
            {"kind": one.kind, "what": one.what, "predicted": one.saves, "found": one.found}
            for one in (*self._done, *self._open)
        ]

    def snapshot(self) -> dict[str, Any]:
        return {
            "recent": [list(recent) for recent in self._recent],
            "open": [asdict(one) for one in self._open],
            "done": [asdict(one) for one in self._done],
            "trust": dict(self._trust),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._recent = [(float(slowest), float(whole)) for slowest, whole in state["recent"]]
        self._open = [Prediction(**one) for one in state["open"]]
        self._done = [Prediction(**one) for one in state["done"]]
        self._trust = {str(kind): float(value) for kind, value in state["trust"].items()}
