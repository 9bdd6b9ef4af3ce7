"""How many sites: the adaptivity loop of Gedik's section 4.5, measure, analyze, plan, activate, between micro-batches.

Measured is what a batch takes, how much of that is work that more sites would share, and how long nothing was to be
done before it began. Where there were pauses, the smallest number of sites that keeps up is enough: a batch may take
`BUSY` of the time there is. Where batches follow each other without a pause every second counts: a site more must save
`WORTH` of a batch, and a site less may cost `CHEAP` of one. The work of the largest partition group is not shared,
however many sites there are. The new number becomes a routing table elsewhere (`fluxen.control.adaptation`), which
moves no more state than it must.

As other policies do (`fluxen.policies.flux.rounds`) it settles: when `SETTLED` reports have passed without a change,
only a clear difference counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fluxen.policies.auto.candidates import Candidate
from fluxen.policies.auto.loads import Loads
from fluxen.policies.auto.prices import Prices
from fluxen.policies.base import Rescale, Stats

__all__ = ["Scaling"]

WARMING = 2
"""Reports after a change that say nothing: new sites start processes, and read state."""
PATIENCE = 4
"""Reports, after those, that a decision takes."""
REMEMBERED = 8
SETTLED = 16
IDLE = 0.1
"""Share of the time without work from which on there is some to spare."""
BUSY, SURE = 0.7, 0.6
"""Share of the time that batches may take with fewer sites, and what it must be once a number has settled."""
WORTH, CHEAP = 0.08, 0.03
"""Share of a batch that a site more must save, and that a site less may cost, without pauses."""
_CLEAR = 1.5
"""How many times as clear it must be once a number has settled."""
START = 1.0
"""Seconds that a change of the number costs beside the state that moves."""


class Scaling:
    """Between `low` and `high` sites; equal bounds never change anything."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        self._sites = 0
        self._reports = 0  # with this number of sites, up to what matters
        self._seen: list[tuple[float, float, float]] = []  # (whole batch, pause before it, work of all sites)

    def observe(self, stats: Stats) -> None:
        if stats.sites != self._sites:
            self._sites, self._reports, self._seen = stats.sites, 0, []
        self._reports = min(self._reports + 1, SETTLED + REMEMBERED)
        if self._reports > WARMING and stats.whole > 0:
            self._seen = [*self._seen, (stats.whole, stats.waited, float(stats.busy.sum()))][-REMEMBERED:]

    def candidates(self, stats: Stats, loads: Loads, prices: Prices) -> list[Candidate]:
        if self.low >= self.high and stats.sites == self.low:
            return []
        if not self.low <= stats.sites <= self.high:
            wanted = min(max(stats.sites, self.low), self.high)
            why = f"between {self.low} and {self.high} sites were asked for"
            return [Candidate(kind="rescale", suggestions=(Rescale(sites=wanted, why=why),), needed="within bounds")]
        if len(self._seen) < PATIENCE or stats.under_way:
            return []
        whole, waited, work = (sum(column) / len(self._seen) for column in zip(*self._seen))
        found = self._number(stats.sites, whole, waited, work, loads)
        if found is None:
            return []
        wanted, saves, why = found
        moved = float((stats.site_bytes + stats.site_spilled).sum()) * (
            1 - min(wanted, stats.sites) / max(wanted, stats.sites)
        )
        if wanted < stats.sites:
            needed = f"frees {stats.sites - wanted} of {stats.sites} sites"
        else:
            needed = ""
        rescale = Rescale(sites=wanted, why=why)
        costs = START + moved * prices.move
        return [Candidate(kind="rescale", suggestions=(rescale,), saves=saves, costs=costs, needed=needed)]

    def _number(
        self, sites: int, whole: float, waited: float, work: float, loads: Loads
    ) -> tuple[int, float, str] | None:
        """Another number of sites, seconds a batch that it saves, and why; None to stay."""
        clear = _CLEAR if self._reports >= SETTLED else 1.0
        critical = min(loads.slowest, whole)
        largest = min(loads.largest(), critical)
        uneven = critical * sites / work if work > 0 else 1.0

        def takes(number: int) -> float:
            shared = max(uneven * work / number, largest)
            return whole - critical + shared

        period = whole + waited
        if waited < IDLE / clear**2 * period:
            return self._without_pauses(sites, takes, whole, clear)
        limit = (BUSY if clear == 1.0 else SURE) * period
        wanted = next((n for n in range(self.low, sites) if takes(n) <= limit), sites)
        if wanted == sites:
            return None
        return wanted, 0.0, f"{waited / period:.0%} of the time there is nothing to do"

    def _without_pauses(
        self, sites: int, takes: Callable[[int], float], whole: float, clear: float
    ) -> tuple[int, float, str] | None:
        wanted = sites
        while wanted < min(self.high, 2 * sites) and takes(wanted) - takes(wanted + 1) >= clear * WORTH * takes(wanted):
            wanted += 1
        if wanted == sites:
            while wanted > self.low and takes(wanted - 1) - takes(sites) <= CHEAP / clear * whole:
                wanted -= 1
        if wanted == sites:
            return None
        saves = takes(sites) - takes(wanted)
        if wanted > sites:
            return wanted, saves, f"batches follow each other without a pause and would take {takes(wanted):.2f} s"
        return wanted, 0.0, f"batches would take {takes(wanted):.2f} s instead of {whole:.2f} s with fewer sites"

    def snapshot(self) -> dict[str, Any]:
        return {"sites": self._sites, "reports": self._reports, "seen": [list(seen) for seen in self._seen]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._sites, self._reports = int(state["sites"]), int(state["reports"])
        self._seen = [(float(whole), float(waited), float(work)) for whole, waited, work in state["seen"]]
