"""Partitioning functions in a running query: heavy keys found online, groups of their own, few moves.

The constructions are in `fluxen.partitioning`; here they meet the routing table. A partitioning function places keys;
to it, every partition group is one key (a hash of its id) with the group's loads, and every heavy key is itself. So the
same function balances both, and what it moves is whole groups. What groups and keys cost is
`fluxen.control.keys.loads`.

Which keys are heavy depends on their true frequency, in rows of the source (`fluxen.control.keys.hotkeys`). What they
cost is what their sites do for them: a key whose rows are combined before they travel is frequent and cheap.

Two additions to the paper. A new function is used only if what it predicts is worth what it moves: the load of the
busiest site must fall by more than chance explains, and by enough to pay for the state that moves within `HORIZON`
batches. And isolated keys that have cooled down go back to their partitions. `guarded=False` leaves the first out.

Beside a policy that moves groups (`keys_only`) a function is asked for heavy keys alone, so that the two never move the
same things: it says which keys leave their partitions and where they go first. From then on a key's group is one like
any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fluxen.arrays import Floats, Groups, Ints, Json
from fluxen.control.keys.hotkeys import CERTAIN, HEAVY_SHARE, HotKeys
from fluxen.control.keys.loads import BYTES, ROWS, WORK, GroupLoads, balanced, key_loads, memory_alpha
from fluxen.control.keys.placing import TRACKED, Items, group_keys, none, per_site, table_of
from fluxen.control.keys.splitting import Splitting, spread
from fluxen.control.moves.rerouting import returnable
from fluxen.operators.base import Operator
from fluxen.partitioning import Frequencies, HashPair, Loads, Partitioner, Resources, Ring, UniformFunction
from fluxen.policies.base import Merge, Repartition, Split
from fluxen.state.epoch import StageState
from fluxen.state.record import SiteRecord
from fluxen.state.routing import Routing, base_group

PATIENCE, MOST_PATIENCE = 3, 96
"""Batches between two attempts: a new function must show its effect first; more after every one in vain."""
MEMORY_ALPHA = 2.0
"""Tolerated ratio of state between sites whose memory is not limited."""
RELIEF = 0.05
"""Part by which the busiest site's load must fall at least."""
HORIZON = 50.0
"""Batches in which a new function must pay for what it moves."""
COPY = 0.25
"""What moving a row of state costs, in rows processed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Another routing table and what it is good for."""

    routing: Routing
    why: str

    def suggestion(self, before: Routing) -> Repartition:
        """It as policies would ask for it."""
        changed = np.flatnonzero(self.routing.table[: before.size] != before.table)
        return Repartition(
            explicit=tuple(self.routing.own_groups().items()),
            placement=tuple((int(g), int(self.routing.table[g])) for g in changed),
            why=self.why,
        )


class Repartitioner:
    """Watches the loads of groups and heavy keys; proposes a new routing when balance or the number of sites asks."""

    def __init__(
        self,
        partitioner: Partitioner,
        *,
        operator: Operator | None = None,
        guarded: bool = True,
        keys_only: bool = False,
    ) -> None:
        self.partitioner, self.guarded, self.keys_only = partitioner, guarded, keys_only
        self.divisible = operator is None or operator.divisible
        self.resources = balanced(Resources.of("LLL") if operator is None else operator.resources)
        self.loads = GroupLoads()
        self.hot = HotKeys()
        self.splitting = Splitting(operator)
        self._rested, self._patience = 0, PATIENCE
        self._tried = 0.0  # stretch at the last attempt in vain
        self._promised: tuple[float, float] | None = None  # stretch before and as predicted

    # ---- what sites report

    def observe(self, routing: Routing, records: Sequence[SiteRecord]) -> None:
        """Take in what the sites reported about one batch."""
        self.loads.sized(routing.size)
        if not any(sum(record.groups.arrived) for record in records):
            return
        past = self.loads.past
        self.loads.observe(routing, records)
        self.hot.observe(routing, records, past)
        self.splitting.observe(routing, records, past)
        self._rested += 1

    def adopt(self, before: Routing, after: Routing) -> None:
        """The stage goes on with another table: what is known of keys that left or joined groups follows them."""
        if not self.loads.seen:
            return
        self.loads.sized(after.size)
        old, new = before.own_groups(), after.own_groups()
        for h in [h for h in old if h not in new]:
            self.loads.fold(old[h], int(base_group(np.array([h]), after.partitions)[0]))
        fresh = np.array([h for h in new if h not in old], dtype=np.int64)
        costs = self._costs(before, fresh)
        for at, h in enumerate(fresh.tolist()):
            base = int(base_group(fresh[at : at + 1], after.partitions)[0])
            self.loads.split(new[h], base, {name: float(costs[name][at]) for name in costs})
        spread(before, after, self.loads)

    # ---- what to do about it

    def first(self, routing: Routing) -> Routing:
        """The table of a query that has seen no rows."""
        keys = group_keys(np.arange(routing.size, dtype=np.int64))
        placed = self.partitioner.build(None, Frequencies(), routing.sites).lookup(keys)
        return replace(routing, table=placed.astype(np.int32))

    def rescaled(self, routing: Routing, sites: int, *, isolate: bool = True) -> Routing:
        """The table of a new function for `sites` sites; without `isolate`, no group changes but its site."""
        self.loads.sized(routing.size)
        self._rested, self._promised = 0, None
        items = self._items(routing, self._heavy(routing) if isolate else none())
        alpha = self.partitioner.alpha
        return self._built(items, sites, {ROWS: alpha, WORK: alpha, BYTES: max(alpha, MEMORY_ALPHA)})

    def proposed(self, state: StageState, capacity: Floats) -> Proposal | None:
        """A table that is worth its moves, if there is one."""
        routing = state.routing
        if not self.loads.seen or routing.sites == 1:
            return None
        self._check_promise(routing)
        return self._rebalanced(routing, capacity) or self._returned(state)

    def shared_out(self, state: StageState) -> Split | Merge | None:
        """A key to be dealt over several sites, or one that need not be any more."""
        if not self.divisible or not self.loads.seen:
            return None
        heavy = self._heavy(state.routing) if self.splitting.ready else none()
        return self.splitting.proposed(state, self.loads, heavy, self._costs(state.routing, heavy)[WORK])

    def _returned(self, state: StageState) -> Proposal | None:
        """The table without the keys that have cooled down and can go back."""
        routing = state.routing
        keys = returnable(state, self.hot.cold(routing))
        for h in keys.tolist():
            routing = routing.returned(h)
        return Proposal(routing=routing, why=f"{len(keys)} keys have cooled down") if len(keys) else None

    def _rebalanced(self, routing: Routing, capacity: Floats) -> Proposal | None:
        if self._rested < PATIENCE or not np.isfinite(self.partitioner.alpha):
            return None
        items = self._items(routing, self._heavy(routing))
        alphas = self._alphas(items, capacity)
        over = [name for name in self.resources if self._ratio(items, name) > alphas[name]]
        stretch = items.stretch(self.resources, routing)
        if not over or not self._may_try(items, stretch):
            return None
        self._rested = 0
        following = self._built(items, routing.sites, alphas, keys_only=self.keys_only)
        after = items.stretch(self.resources, following)
        if self.guarded and not self._worth(items, following, 1 - after / stretch):
            self._in_vain(stretch)
            return None
        if np.array_equal(items.sites(routing), items.sites(following)):
            return None
        self._patience, self._promised = PATIENCE, (stretch, after)
        much = ", ".join(dict.fromkeys(f"{alphas[name]:g}" for name in over))
        return Proposal(routing=following, why=f"{' and '.join(over)} per site differ by more than {much}")

    def _ratio(self, items: Items, name: str) -> float:
        """Load of the busiest site over that of the idlest, as far as it is not chance."""
        loads = items.per_site(name, items.routing)
        high, low = int(loads.argmax()), int(loads.argmin())
        doubt = [CERTAIN * self.loads.noise(name, np.flatnonzero(items.routing.table == site)) for site in (high, low)]
        if not self.guarded:
            doubt = [0.0, 0.0]
        return float((loads[high] - doubt[0]) / max(loads[low] + doubt[1], 1e-9))

    def _may_try(self, items: Items, stretch: float) -> bool:
        """Not if the busiest site cannot be relieved, nor soon after an attempt in vain unless things have changed."""
        if not self.guarded:
            return True
        if 1 - items.best(self.resources, items.routing.sites) / stretch < RELIEF:
            return False
        changed = abs(stretch - self._tried) > 2 * RELIEF * stretch
        return changed or self._rested >= self._patience

    def _in_vain(self, stretch: float) -> None:
        self._tried = stretch
        self._patience = min(2 * self._patience, MOST_PATIENCE)

    def _check_promise(self, routing: Routing) -> None:
        """If the last function has not brought half of what it promised, the next one waits longer."""
        if self._promised is None or self._rested < PATIENCE:
            return
        (before, promised), self._promised = self._promised, None
        now = self._items(routing, none()).stretch(self.resources, routing)
        if now > (before + promised) / 2:
            self._in_vain(now)

    def _worth(self, items: Items, following: Routing, relief: float) -> bool:
        """Whether the predicted relief of the busiest site is more than chance, and pays for the bytes that move."""
        routing = items.routing
        doubts = []
        for name in self.resources:
            loads = items.per_site(name, routing)
            busiest = np.flatnonzero(routing.table == int(loads.argmax()))
            doubts.append(self.loads.noise(name, busiest) / max(float(loads.max()), 1e-9))
        batch = max(float(self.loads.mean[ROWS].sum()) * self.loads.row_bytes, 1.0)
        cost = COPY * items.moved(following) / batch
        return relief >= max(RELIEF, CERTAIN * float(np.mean(doubts))) and relief * HORIZON >= cost

    def _alphas(self, items: Items, capacity: Floats) -> dict[str, float]:
        alpha = self.partitioner.alpha
        memory = memory_alpha(float(items.loads[BYTES].sum()), capacity, max(alpha, MEMORY_ALPHA))
        return {ROWS: alpha, WORK: alpha, BYTES: memory}

    # ---- heavy keys and their loads

    def _items(self, routing: Routing, heavy: Ints) -> Items:
        costs = self._costs(routing, heavy)
        loads = {}
        for name in (ROWS, WORK, BYTES):
            groups = self.loads.mean[name].copy()
            np.subtract.at(groups, base_group(heavy, routing.partitions), costs[name])
            loads[name] = np.concatenate([np.maximum(groups, 0.0), costs[name]])
        return Items(routing=routing, heavy=heavy, loads=loads)

    def _heavy(self, routing: Routing) -> Ints:
        """Keys without a group of their own whose loads are worth one, most first."""
        if not self.divisible:
            return none()
        keys = self.hot.frequent(routing)
        costs = self._costs(routing, keys)
        share = np.zeros(len(keys))
        for name in self.resources:
            share = np.maximum(share, costs[name] / max(float(self.loads.mean[name].sum()), 1e-9))
        order = np.argsort(-share, kind="stable")
        heavy: Ints = keys[order[share[order] >= HEAVY_SHARE][: TRACKED // 2]]
        return heavy

    def _costs(self, routing: Routing, keys: Ints) -> dict[str, Floats]:
        return key_loads(routing, self.loads, keys, self.hot.rows(keys), self.hot.bytes(keys))

    # ---- the function

    def _built(self, items: Items, sites: int, alphas: dict[str, float], *, keys_only: bool = False) -> Routing:
        routing = items.routing
        names = [name for name in self.resources if name in alphas and items.loads[name].sum() > 0]
        places = self._resting(items.keys, items.sites(routing), routing.sites, sites)
        at = self._tracked(items, names)
        if keys_only:
            at = at[at >= routing.size]
        if len(at):
            function = self.partitioner.build(
                HashPair.placed(items.keys[at], items.sites(routing)[at], Ring(sites=routing.sites)),
                self._frequencies(items, names, at, places, sites, [alphas[name] for name in names]),
                sites,
            )
            explicit = function.explicit()
            for item, key in zip(at.tolist(), items.keys[at].tolist()):
                if key in explicit:
                    places[item] = explicit[key]
                elif item >= routing.size:
                    places[item] = -1
        return table_of(routing, items.heavy, places, sites)

    def _tracked(self, items: Items, names: Sequence[str]) -> Ints:
        """The items a function places: heavy keys, and the groups with most load."""
        if not names:
            return none()
        share = np.mean([items.loads[name] / items.loads[name].sum() for name in names], axis=0)
        share[items.routing.size :] += 1.0
        order = np.argsort(-share, kind="stable")[:TRACKED]
        found: Ints = order[share[order] > 0]
        return found

    def _frequencies(
        self, items: Items, names: Sequence[str], at: Ints, places: Groups, sites: int, alphas: Sequence[float]
    ) -> Frequencies:
        at = at[np.argsort(items.keys[at])]
        resting = np.ones(len(places), dtype=np.bool_)
        resting[at] = False
        parts = [items.loads[name] / items.loads[name].sum() for name in names]
        share = np.mean([part[at] for part in parts], axis=0)
        held = float(items.loads[BYTES].sum())
        loads = Loads(
            resources=tuple(part[at] for part in parts),
            base=tuple(per_site(places[resting], part[resting], sites) for part in parts),
            alphas=tuple(alphas),
            state=items.loads[BYTES][at] / held if held > 0 else share,
        )
        return Frequencies(keys=items.keys[at], share=np.maximum(share, 1e-12), loads=loads)

    def _resting(self, keys: Ints, now: Groups, before: int, sites: int) -> Groups:
        """Where items go that the function does not place: they stay, but new sites get their share of them."""
        if sites == before:
            return now.copy()
        fallback = self.partitioner.build(None, Frequencies(), sites)
        there = fallback.lookup(keys).astype(np.int32)
        if isinstance(fallback, UniformFunction):
            return there
        return np.where((now < sites) & (there < before), now, there).astype(np.int32)

    # ---- across restarts

    def snapshot(self) -> Json:
        return {
            "loads": self.loads.to_dict(),
            "hot": self.hot.to_dict(),
            "splitting": self.splitting.snapshot(),
            "rested": self._rested,
            "patience": self._patience,
            "tried": self._tried,
            "promised": self._promised,
        }

    def restore(self, state: dict[str, Any]) -> None:
        if "loads" not in state:
            return  # of an earlier version: a few batches tell it all again
        self.loads = GroupLoads.from_dict(state["loads"])
        self.hot = HotKeys.from_dict(state["hot"])
        if "splitting" in state:
            self.splitting.restore(state["splitting"])
        self._rested, self._patience, self._tried = state["rested"], state["patience"], state["tried"]
        self._promised = None if state["promised"] is None else (state["promised"][0], state["promised"][1])
