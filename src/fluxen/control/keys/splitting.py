"""Which keys are worth more than one site, and which input's rows of them to deal.

A key by itself at a site can still be more than a site should do. Then the rows of one input are dealt over several
sites and the other inputs' rows go to all of these (`fluxen.control.moves.dealing`): of the key's results each site
makes a part, of its rows it has all but the dealt ones as before. So the input with most rows is dealt, over as few
sites as bring most of the relief. What a key costs is what `fluxen.control.keys.loads` says.

A split must relieve the busiest site by more than `RELIEF`, beyond chance, compared with the key alone at a site. The
key is merged back when, whole, it would have been less than `COOLED` of a site's mean work in `PATIENT` batches in a
row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fluxen.arrays import Floats, Ints, Json
from fluxen.control.keys.hotkeys import CERTAIN
from fluxen.control.keys.loads import BYTES, ROWS, WORK, GroupLoads
from fluxen.control.moves.dealing import cannot_begin, cannot_end, family_of
from fluxen.control.stats import per_group
from fluxen.operators.base import Operator
from fluxen.policies.base import Merge, Split
from fluxen.state.epoch import StageState
from fluxen.state.record import SiteRecord
from fluxen.state.routing import Routing

RELIEF = 0.15
"""Part by which the busiest site's work must fall."""
ENOUGH = 0.05
"""What another site must add to that."""
COOLED = 0.6
"""Work of a key, as a share of a site's mean, below which it is one site's again."""
PATIENT = 12
"""Batches for which it must have been below."""
SEEN, MOST_PATIENCE = 3, 96
"""Batches of a key's rows, or since the last change, to know enough; more after every refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a key does in a batch."""

    work: float
    """rows that come and results"""
    inputs: tuple[float, ...]
    """rows of the source per input"""

    def each(self, dealt: int, sites: int) -> float:
        """Work at each of so many sites."""
        rest = sum(self.inputs) - self.inputs[dealt]
        return rest + max(self.work - rest, 0.0) / sites


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to deal a key's rows."""

    dealt: int
    sites: int
    busiest: float
    """work of the busiest site, everything else being spread evenly"""


def ways(cost: Cost, total: float, sites: int, deals: Sequence[int]) -> list[Way]:
    """Every way to deal a key over 2 to `sites` sites, where all sites together do `total` now; the best one first.

    >>> cost = Cost(work=900.0, inputs=(10.0, 90.0))
    >>> best = ways(cost, 1000.0, 2, (0, 1))[0]
    >>> best.dealt, best.sites, best.busiest
    (1, 2, 505.0)
    """
    found = []
    for dealt in deals:
        rest = sum(cost.inputs) - cost.inputs[dealt]
        for count in range(2, sites + 1):
            even = (total + (count - 1) * rest) / sites
            found.append(Way(dealt=dealt, sites=count, busiest=max(even, cost.each(dealt, count))))
    return sorted(found, key=lambda way: (way.busiest, way.sites))


class Splitting:
    """Follows what heavy keys cost; proposes to split one that is too much for a site, or to merge one that is not."""

    def __init__(self, operator: Operator | None) -> None:
        self.operator = operator
        self.deals = () if operator is None else operator.deals
        self._rows: dict[int, list[float]] = {}
        """key -> rows of the source per input and batch, smoothed"""
        self._known: dict[int, int] = {}
        """key -> batches it was seen in"""
        self._below: dict[int, int] = {}
        """dealt key -> batches in a row for which it would have been little for a site"""
        self._rested, self._patience = 0, SEEN

    def observe(self, routing: Routing, records: Sequence[SiteRecord], past: float) -> None:
        """Take in one batch, as `GroupLoads` does."""
        if self.operator is None:
            return
        self._rested += 1
        came: dict[int, Floats] = {}
        for record in records:
            for h, each in zip(record.heavy.key, record.heavy.inputs or [[]] * len(record.heavy.key)):
                came[h] = came.get(h, 0.0) + np.array(each, dtype=np.float64)
        own = {*routing.explicit.tolist()}
        for h in {*self._rows, *came}:
            rows = came.get(h, np.zeros(len(self._rows.get(h, ()))))
            before = np.array(self._rows.get(h, rows))
            weight = min(past, self._known.get(h, 0) / (self._known.get(h, 0) + 1))
            self._rows[h] = np.round(weight * before + (1 - weight) * rows, 3).tolist()
            self._known[h] = min(self._known.get(h, 0) + 1, 1000)
        self._rows = {h: rows for h, rows in self._rows.items() if h in came or (h in own and sum(rows) >= 1)}
        self._known = {h: self._known[h] for h in self._rows}
        self._cool(routing, records, came)

    def proposed(self, state: StageState, loads: GroupLoads, keys: Ints, costs: Floats) -> Split | Merge | None:
        """What to change; `keys` are heavy ones without a group of their own, `costs` their work."""
        return self._merge(state) or self._split(state, loads, keys, costs)

    @property
    def ready(self) -> bool:
        """Whether enough is known since the last change, or refusal, to look for keys to split."""
        return self._rested >= self._patience

    def answered(self, *, done: bool) -> None:
        """What was proposed is done, and loads have to settle; or it was refused, and is to be asked for less often."""
        self._rested, self._patience = 0, SEEN if done else min(2 * self._patience, MOST_PATIENCE)

    # ---- one that is too much

    def _split(self, state: StageState, loads: GroupLoads, keys: Ints, costs: Floats) -> Split | None:
        routing = state.routing
        if routing.sites < 2 or not self.ready:
            return None
        whole = {
            h: g for h, g in routing.own_groups().items() if h not in {*routing.dealt().tolist(), *routing.retired}
        }
        work = {h: self._sure(loads, g) for h, g in whole.items()} | dict(zip(keys.tolist(), costs.tolist()))
        total = float(loads.mean[WORK].sum())
        found: Split | None = None
        most = RELIEF
        for h in (h for h in work if self._known.get(h, 0) >= SEEN):
            alone = max(work[h], total / routing.sites)
            best = self._enough(ways(self._cost(h, work[h]), total, routing.sites, self.deals or (0,)))
            if 1 - best.busiest / alone > most:
                most = 1 - best.busiest / alone
                found = self._said(h, best, work[h], total, routing, loads)
        possible = found is None or not self.deals or not self._why_not(state, found)
        return found if possible else None

    def _why_not(self, state: StageState, split: Split) -> str:
        assert self.operator is not None
        return cannot_begin(state, self.operator, split.key, split.dealt, split.sites)

    def _sure(self, loads: GroupLoads, group: int) -> float:
        """The work of a group, as far as it is not chance."""
        return max(0.0, float(loads.mean[WORK][group]) - CERTAIN * loads.noise(WORK, np.array([group])))

    def _cost(self, h: int, work: float) -> Cost:
        rows = self._rows[h] or [0.0]
        return Cost(work=max(work, sum(rows)), inputs=tuple(rows))

    def _enough(self, found: list[Way]) -> Way:
        """The fewest sites that bring nearly as much as the best number of them."""
        return min(
            (w for w in found if w.busiest <= found[0].busiest * (1 + ENOUGH)), key=lambda w: (w.sites, w.busiest)
        )

    def _said(self, h: int, way: Way, work: float, total: float, routing: Routing, loads: GroupLoads) -> Split:
        here = int(routing.sites_of(routing.groups(np.array([h], dtype=np.int64)))[0])
        busy = np.bincount(routing.table, weights=loads.mean[WORK][: routing.size], minlength=routing.sites)
        others = [site for site in np.argsort(busy, kind="stable").tolist() if site != here]
        rows = " and ".join(f"{n:.0f}" for n in self._rows[h]) or "its"
        return Split(
            key=h,
            dealt=way.dealt,
            sites=(here, *others[: way.sites - 1]),
            why=f"it is {work / total:.0%} of the work, with {rows} rows a batch; the busiest site's work falls from "
            f"{max(work, total / routing.sites):.0f} to {way.busiest:.0f}",
        )

    # ---- one that is not any more

    def _cool(self, routing: Routing, records: Sequence[SiteRecord], came: Mapping[int, Floats]) -> None:
        """Count batches in which a dealt key was little: in themselves, as what is smoothed remembers for long."""
        if not routing.families:
            self._below = {}
            return
        work = per_group(records, "arrived", routing.size) + per_group(records, "rows_out", routing.size)
        below = {}
        for family in routing.families:
            rows = came.get(family.h, np.zeros(0))
            copies = (len(family.members) - 1) * (float(rows.sum()) - (float(rows[family.dealt]) if len(rows) else 0.0))
            whole = float(work[routing.members(family)].sum()) - copies
            cool = whole < COOLED * (float(work.sum()) - copies) / routing.sites
            below[family.h] = self._below.get(family.h, 0) + 1 if cool else 0
        self._below = below

    def _merge(self, state: StageState) -> Merge | None:
        routing = state.routing
        for family in routing.families:
            cool = self._below.get(family.h, 0) >= PATIENT
            if (cool or routing.sites == 1) and not cannot_end(state, family.h):
                sites = tuple(dict.fromkeys(routing.table[routing.members(family)].tolist()))
                why = f"for {PATIENT} batches it was less than {COOLED:.0%} of a site's mean work"
                return Merge(key=family.h, sites=sites, why=why if cool else "there is one site")
        return None

    # ---- across restarts

    def snapshot(self) -> Json:
        return {
            "rows": [[h, self._known[h], rows] for h, rows in self._rows.items()],
            "below": list(self._below.items()),
            "rested": [self._rested, self._patience],
        }

    def restore(self, state: Json) -> None:
        self._rows = {h: list(rows) for h, _, rows in state["rows"]}
        self._known = {h: known for h, known, _ in state["rows"]}
        self._below = dict(state["below"])
        self._rested, self._patience = state["rested"]


def spread(before: Routing, after: Routing, loads: GroupLoads) -> None:
    """What is known of the loads follows families that began or ended."""
    for family in after.families:
        if family_of(before, family.h) != family:
            groups = after.members(family)
            for name in (ROWS, WORK, BYTES):
                for column in (loads.mean[name], loads.variance[name]):
                    column[groups] = column[groups].sum() / len(groups)
    for family in before.families:
        if family_of(after, family.h) != family:
            groups = before.members(family)
            for group in groups[1:].tolist():
                loads.fold(group, int(groups[0]))
