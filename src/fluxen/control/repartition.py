"""Partitioning functions in a running query: heavy keys found online, groups of their own, few moves.

The constructions are in `fluxen.partitioning`; here they meet the routing table. A partitioning function places keys;
to it, every partition group is one key (a hash of its id) with the group's loads, and every heavy key is itself. So the
same function balances both, and what it moves is whole groups. What groups and keys cost is `fluxen.control.loads`.

Which keys are heavy is a matter of their true frequency: rows of the source, counted by the sites (their top keys per
batch) and kept in the sliding window of lossy counters of Gedik's section 4.1.2, whole batches at a time. What they
cost is what their sites do for them: a key whose rows are combined before they travel is frequent and cheap.

Two additions to the paper. A new function is used only if what it predicts is worth what it moves: the load of the
busiest site must fall by more than chance explains, and by enough to pay for the state that moves within `HORIZON`
batches. And isolated keys that have cooled down go back to their partitions. `guarded=False` leaves the first out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluxen.control.loads import BYTES, ROWS, WORK, GroupLoads, balanced, key_loads, memory_alpha, resources_of
from fluxen.control.rerouting import returnable
from fluxen.operators.base import Operator
from fluxen.partitioning import Frequencies, HashPair, Loads, Partitioner, Ring, UniformFunction
from fluxen.sketches import LossyCounter, SlidingSketch
from fluxen.state.epoch import StageState
from fluxen.state.record import CommitRecord
from fluxen.state.routing import Routing, base_group
from fluxen.typing import Floats, Groups, Ints, Json

MAX_EXPLICIT = 1024
"""Heavy keys that may have groups of their own at a time."""
TRACKED = 256
"""Groups and keys a function may place anew, those with most load; the others stay where they are."""
HEAVY_SHARE = 0.001
"""Share of a load from which a key is considered heavy."""
COOL = 0.25 * HEAVY_SHARE
"""Share of all loads below which an isolated key is no longer worth it."""
QUIET = 24
"""Batches for which it must have been below."""
WINDOW_BATCHES, WINDOW_ROWS = 8, 50_000
"""The sketch hands over after so many batches and rows, or after eight times as many batches; it covers two to three
times as much."""
PATIENCE, MOST_PATIENCE = 3, 96
"""Batches between two attempts: a new function must show its effect first; more after every one in vain."""
MEMORY_ALPHA = 2.0
"""Tolerated ratio of state between sites whose memory is not limited."""
RELIEF = 0.05
"""Part by which the busiest site's load must fall at least."""
CERTAIN = 3.0
"""Standard deviations beyond which an imbalance, or the difference a new function makes, is not chance."""
HORIZON = 50.0
"""Batches in which a new function must pay for what it moves."""
COPY = 0.25
"""What moving a row of state costs, in rows processed."""
_OTHERS = -(2**63)
"""Stands for all rows whose keys the sites did not name."""


def group_keys(groups: Ints) -> Ints:
    """Key hashes that stand for partition groups: splitmix64 of the id."""
    with np.errstate(over="ignore"):
        z = (groups.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))).view(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Another routing table and what it is good for."""

    routing: Routing
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Items:
    """What a function places: all groups, less the heavy keys in them, and these keys."""

    routing: Routing
    heavy: Ints
    loads: dict[str, Floats]

    @property
    def keys(self) -> Ints:
        """The key by which a function places each item: a key's own hash, or a group's stand-in."""
        keys = group_keys(np.arange(self.routing.size, dtype=np.int64))
        keys[self.routing.explicit_groups] = self.routing.explicit
        return np.concatenate([keys, self.heavy])

    def sites(self, routing: Routing) -> Groups:
        """Where each item is under a table made from the items' own."""
        heavy = routing.sites_of(routing.groups(self.heavy))
        return np.concatenate([routing.table[: self.routing.size], heavy]).astype(np.int32)

    def per_site(self, name: str, routing: Routing) -> Floats:
        return _sums(self.sites(routing), self.loads[name], routing.sites)

    def stretch(self, names: Sequence[str], routing: Routing) -> float:
        """Load of the busiest site over the mean: the geometric mean over the resources (as Equation 11)."""
        found = [self.per_site(name, routing) for name in names]
        return float(np.prod([loads.max() / loads.mean() for loads in found if loads.sum() > 0]) ** (1 / len(names)))

    def best(self, names: Sequence[str], sites: int) -> float:
        """The least stretch any placement can have: an item cannot be divided."""
        totals = {name: float(self.loads[name].sum()) for name in names}
        least = [max(1.0, sites * float(self.loads[n].max()) / total) for n, total in totals.items() if total > 0]
        return float(np.prod(least) ** (1 / len(names)))

    def moved(self, after: Routing) -> float:
        """Bytes of items whose site changes."""
        return float(self.loads[BYTES][self.sites(self.routing) != self.sites(after)].sum())


class Repartitioner:
    """Watches the loads of groups and heavy keys; proposes a new routing when balance or the number of sites asks."""

    def __init__(
        self,
        partitioner: Partitioner,
        *,
        operator: Operator | None = None,
        divisible: bool = True,
        guarded: bool = True,
    ) -> None:
        self.partitioner, self.divisible, self.guarded = partitioner, divisible, guarded
        self.resources = balanced(resources_of(operator))
        self.loads = GroupLoads()
        self._sketch = SlidingSketch(LossyCounter(epsilon=HEAVY_SHARE / 4), window=WINDOW_ROWS)
        self._batches = 0  # since the sketch handed over
        self._source = 0.0
        self._keys: dict[int, tuple[float, float]] = {}
        """heavy key -> rows that come to its site per row of the source, bytes of its state"""
        self._quiet: dict[int, int] = {}
        self._rested, self._patience = 0, PATIENCE
        self._tried = 0.0  # stretch at the last attempt in vain
        self._promised: tuple[float, float] | None = None  # stretch before and as predicted

    # ---- what sites report

    def observe(self, routing: Routing, records: Sequence[CommitRecord]) -> None:
        """Take in what the sites reported about one batch."""
        if not any(sum(record.groups.arrived) for record in records):
            return
        past = self.loads.past
        self.loads.observe(routing, records)
        self._count(records, past)
        self._cool(routing)
        self._rested += 1

    def _count(self, records: Sequence[CommitRecord], past: float) -> None:
        """One batch of all sites at once: otherwise a large one would leave only the last sites in the window."""
        keys = np.array([h for record in records for h in record.heavy.key], dtype=np.int64)
        rows = np.array([n for record in records for n in record.heavy.rows], dtype=np.int64)
        total = sum(side.rows_in for record in records for side in record.sides)
        self._source += (1 - past) * (total - self._source)
        self._sketch.count(np.append(keys, _OTHERS), np.append(rows, max(0, total - int(rows.sum()))))
        self._batches += 1
        enough = self._batches >= WINDOW_BATCHES and self._sketch.since >= WINDOW_ROWS
        if enough or self._batches >= 8 * WINDOW_BATCHES:
            self._sketch.hand_over()
            self._batches = 0
        for record in records:
            heavy = record.heavy
            for h, n, arrived, held in zip(heavy.key, heavy.rows, heavy.arrived, heavy.bytes):
                self._keys[h] = (arrived / n, float(held))
        frequent = set(self._sketch.frequent(HEAVY_SHARE).keys.tolist())
        self._keys = {h: known for h, known in self._keys.items() if h in frequent}

    def _cool(self, routing: Routing) -> None:
        """For how many batches each isolated key has not been worth it."""
        quiet = {}
        for h, group in routing.own_groups().items():
            if all(self._part(name, group) < COOL for name in (ROWS, WORK)):
                quiet[h] = self._quiet.get(h, 0) + 1
        self._quiet = quiet

    def _part(self, name: str, group: int) -> float:
        mean = self.loads.mean[name]
        return float(mean[group] / max(mean.sum(), 1e-9))

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

    # ---- what to do about it

    def first(self, routing: Routing) -> Routing:
        """The table of a query that has seen no rows."""
        keys = group_keys(np.arange(routing.size, dtype=np.int64))
        placed = self.partitioner.build(None, Frequencies(), routing.sites).lookup(keys)
        return Routing(
            partitions=routing.partitions,
            sites=routing.sites,
            table=placed.astype(np.int32),
            explicit=routing.explicit,
            explicit_groups=routing.explicit_groups,
        )

    def rescaled(self, routing: Routing, sites: int, *, isolate: bool = True) -> Routing:
        """The table of a new function for `sites` sites; without `isolate`, no group changes but its site."""
        self.loads.sized(routing.size)
        self._rested, self._promised = 0, None
        items = self._items(routing, self._heavy(routing) if isolate else _none())
        alpha = self.partitioner.alpha
        return self._built(items, sites, {ROWS: alpha, WORK: alpha, BYTES: max(alpha, MEMORY_ALPHA)})

    def proposed(self, state: StageState, capacity: Floats) -> Proposal | None:
        """A table that is worth its moves, if there is one."""
        routing = state.routing
        if not self.loads.seen or routing.sites == 1:
            return None
        self._check_promise(routing)
        return self._rebalanced(routing, capacity) or self._returned(state)

    def _returned(self, state: StageState) -> Proposal | None:
        """The table without the keys that have cooled down and can go back."""
        quiet = np.array([h for h, batches in self._quiet.items() if batches >= QUIET], dtype=np.int64)
        keys = returnable(state, quiet)
        routing = state.routing
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
        following = self._built(items, routing.sites, alphas)
        after = items.stretch(self.resources, following)
        if self.guarded and not self._worth(items, following, 1 - after / stretch):
            self._in_vain(stretch)
            return None
        if np.array_equal(items.sites(routing), items.sites(following)):
            return None
        self._patience, self._promised = PATIENCE, (stretch, after)
        much = ", ".join(dict.fromkeys(f"{alphas[name]:g}" for name in over))
        return Proposal(routing=following, why=f"{' and '.join(over)} per site differ by more than {much}")

    def _ratio(self, items: _Items, name: str) -> float:
        """Load of the busiest site over that of the idlest, as far as it is not chance."""
        loads = items.per_site(name, items.routing)
        high, low = int(loads.argmax()), int(loads.argmin())
        doubt = [CERTAIN * self.loads.noise(name, np.flatnonzero(items.routing.table == site)) for site in (high, low)]
        if not self.guarded:
            doubt = [0.0, 0.0]
        return float((loads[high] - doubt[0]) / max(loads[low] + doubt[1], 1e-9))

    def _may_try(self, items: _Items, stretch: float) -> bool:
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
        now = self._items(routing, _none()).stretch(self.resources, routing)
        if now > (before + promised) / 2:
            self._in_vain(now)

    def _worth(self, items: _Items, following: Routing, relief: float) -> bool:
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

    def _alphas(self, items: _Items, capacity: Floats) -> dict[str, float]:
        alpha = self.partitioner.alpha
        memory = memory_alpha(float(items.loads[BYTES].sum()), capacity, max(alpha, MEMORY_ALPHA))
        return {ROWS: alpha, WORK: alpha, BYTES: memory}

    # ---- heavy keys and their loads

    def _items(self, routing: Routing, heavy: Ints) -> _Items:
        costs = self._costs(routing, heavy)
        loads = {}
        for name in (ROWS, WORK, BYTES):
            groups = self.loads.mean[name].copy()
            np.subtract.at(groups, base_group(heavy, routing.partitions), costs[name])
            loads[name] = np.concatenate([np.maximum(groups, 0.0), costs[name]])
        return _Items(routing=routing, heavy=heavy, loads=loads)

    def _heavy(self, routing: Routing) -> Ints:
        """Keys without a group of their own whose loads are worth one, most first."""
        if not self.divisible or self._sketch.total == 0:
            return _none()
        found = self._sketch.frequent(HEAVY_SHARE)
        sure = found.counts - CERTAIN * np.sqrt(found.counts) >= 2 * COOL * self._sketch.total
        keys = found.keys[sure & ~np.isin(found.keys, routing.explicit) & (found.keys != _OTHERS)]
        costs = self._costs(routing, keys)
        share = np.zeros(len(keys))
        for name in self.resources:
            share = np.maximum(share, costs[name] / max(float(self.loads.mean[name].sum()), 1e-9))
        order = np.argsort(-share, kind="stable")
        heavy: Ints = keys[order[share[order] >= HEAVY_SHARE][: TRACKED // 2]]
        return heavy

    def _costs(self, routing: Routing, keys: Ints) -> dict[str, Floats]:
        held = self._sketch.held()
        at = np.minimum(np.searchsorted(held.keys, keys), max(len(held.keys) - 1, 0))
        counts = np.where(held.keys[at] == keys, held.counts[at], 0) if len(held.keys) else np.zeros(len(keys))
        known = np.array([self._keys.get(h, (1.0, 0.0)) for h in keys.tolist()], dtype=np.float64).reshape(-1, 2)
        rows = counts * known[:, 0] * (self._source / max(self._sketch.total, 1))
        return key_loads(routing, self.loads, keys, rows, known[:, 1])

    def key_bytes(self, h: int) -> float:
        """State of a key without a group of its own, as its site reported it last."""
        return self._keys.get(h, (1.0, 0.0))[1]

    # ---- the function

    def _built(self, items: _Items, sites: int, alphas: dict[str, float]) -> Routing:
        routing = items.routing
        names = [name for name in self.resources if name in alphas and items.loads[name].sum() > 0]
        places = self._resting(items.keys, items.sites(routing), routing.sites, sites)
        at = self._tracked(items, names)
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
        return _table(routing, items.heavy, places, sites)

    def _tracked(self, items: _Items, names: Sequence[str]) -> Ints:
        """The items a function places: heavy keys, and the groups with most load."""
        if not names:
            return _none()
        share = np.mean([items.loads[name] / items.loads[name].sum() for name in names], axis=0)
        share[items.routing.size :] += 1.0
        order = np.argsort(-share, kind="stable")[:TRACKED]
        found: Ints = order[share[order] > 0]
        return found

    def _frequencies(
        self, items: _Items, names: Sequence[str], at: Ints, places: Groups, sites: int, alphas: Sequence[float]
    ) -> Frequencies:
        at = at[np.argsort(items.keys[at])]
        resting = np.ones(len(places), dtype=np.bool_)
        resting[at] = False
        parts = [items.loads[name] / items.loads[name].sum() for name in names]
        share = np.mean([part[at] for part in parts], axis=0)
        held = float(items.loads[BYTES].sum())
        loads = Loads(
            resources=tuple(part[at] for part in parts),
            base=tuple(_sums(places[resting], part[resting], sites) for part in parts),
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
            "sketch": self._sketch.to_dict(),
            "batches": self._batches,
            "source": self._source,
            "keys": [[h, ratio, held] for h, (ratio, held) in self._keys.items()],
            "quiet": list(self._quiet.items()),
            "rested": self._rested,
            "patience": self._patience,
            "tried": self._tried,
            "promised": self._promised,
        }

    def restore(self, state: dict[str, Any]) -> None:
        if "loads" not in state:
            return  # of an earlier version: a few batches tell it all again
        self.loads = GroupLoads.from_dict(state["loads"])
        self._sketch = SlidingSketch.from_dict(state["sketch"])
        self._batches, self._source = state["batches"], state["source"]
        self._keys = {h: (ratio, held) for h, ratio, held in state["keys"]}
        self._quiet = dict(state["quiet"])
        self._rested, self._patience, self._tried = state["rested"], state["patience"], state["tried"]
        self._promised = None if state["promised"] is None else (state["promised"][0], state["promised"][1])


def _table(routing: Routing, heavy: Ints, places: Groups, sites: int) -> Routing:
    """The table with groups in their places; keys that are elsewhere than theirs get groups of their own."""
    size = routing.size
    room = MAX_EXPLICIT - len(routing.explicit)
    following = Routing(
        partitions=routing.partitions,
        sites=sites,
        table=places[:size].astype(np.int32),
        explicit=routing.explicit,
        explicit_groups=routing.explicit_groups,
    )
    bases = base_group(heavy, routing.partitions)
    apart = (places[size:] >= 0) & (places[size:] != places[bases])
    for at in np.flatnonzero(apart)[: max(room, 0)].tolist():
        following = following.isolated(int(heavy[at]), int(places[size + at]))
    return following


def _sums(sites: Groups, loads: Floats, count: int) -> Floats:
    return np.bincount(sites, weights=loads, minlength=count).astype(np.float64)


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)
