"""The local optimizer: which join tree is cheapest at a site, and whether changing to it is worth it.

Prices come from what the sites observed (`fluxen.operators.join.observe`): a new row of input i finds on average
F_i(S) combinations of the inputs S among what came before, so a node over the inputs S makes

    R(S) = sum over i in S of  rows_i * F_i(S without i)

combinations per batch. A node costs one probe per new row of a child and other child, and work for every combination
it makes; a node that is not the root also stores them. A node of more than two children stores nothing in between and
makes the partial combinations again for every row. So a tree wins where intermediate results are few or often reused,
the m-way join where they are many and rarely reused, and a mixture in between; all are searched together.

Guarantee: the tree returned is the cheapest of all trees of binary and ternary nodes and the m-way join.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluxen.arrays import Floats, Json
from fluxen.control.plans.search import cheapest
from fluxen.errors import ConfigError
from fluxen.state.trees import Tree, canonical, members, nodes, read, write

__all__ = ["Costs", "Observed", "Optimizer", "best_tree", "price"]

SETTLED = 16
"""Batches after which a tree is kept unless another one is clearly better."""
_LASTING = 1.25
"""Times `gain` that a tree must save by what is seen in the long run, if lately it did not save much more."""
_STEADY = 0.1
"""Weight of the newest batch in what is seen in the long run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Work per row of each kind, in units of one probe, as `python -m fluxen_lab.benchmarks.costs` measures it."""

    probe: float = 1.0
    make: float = 0.3
    """a combination put together"""
    keep: float = 1.5
    """a combination stored, merged and expired"""
    move: float = 0.3
    """a stored row that another site reads from now on; about one probe where it must be fetched from another host"""


@dataclass(frozen=True, slots=True)
class Observed:
    """Rows per batch of each input and the partners they find; means over recent batches."""

    rows: tuple[float, ...]
    fanout: tuple[Mapping[str, float], ...]
    spread: tuple[float, ...]

    @staticmethod
    def of(data: Json) -> Observed:
        return Observed(tuple(data["rows"]), tuple(data["fanout"]), tuple(data["spread"]))

    @property
    def inputs(self) -> int:
        return len(self.rows)

    def partners(self, i: int, others: Sequence[int]) -> float:
        """F_i(others)."""
        mask = sum(1 << j for j in others)
        if str(mask) in self.fanout[i] or not others:
            return self.fanout[i].get(str(mask), 1.0)
        found = 1.0
        for j in others:
            found *= self.fanout[i].get(str(1 << j), 0.0)
        return found

    def made(self, wanted: Sequence[int], by: Sequence[int] | None = None) -> float:
        """Combinations of `wanted` per batch, or only those whose last row came to one of `by`."""
        return sum(self.rows[i] * self.partners(i, [j for j in wanted if j != i]) for i in by or wanted)

    def blended(self, newer: Observed, weight: float) -> Observed:
        def mix(a: float, b: float) -> float:
            return (1 - weight) * a + weight * b

        fanout = []
        for before, after, came in zip(self.fanout, newer.fanout, newer.rows):
            # an input without rows has shown nothing about its partners
            fanout.append({k: mix(before.get(k, 0.0), after.get(k, 0.0)) for k in after} if came else dict(before))
        spread = [mix(a, b) if came else a for a, b, came in zip(self.spread, newer.spread, newer.rows)]
        rows = tuple(mix(a, b) for a, b in zip(self.rows, newer.rows))
        return Observed(rows, tuple(fanout), tuple(spread))

    def to_json(self) -> Json:
        return {"rows": list(self.rows), "fanout": [dict(f) for f in self.fanout], "spread": list(self.spread)}


def price(tree: Tree, seen: Observed, costs: Costs) -> float:
    """Work per batch of a tree, less the final results, which every tree makes."""
    total = 0.0
    for node in nodes(tree):
        total += _node_price([members(child) for child in node], members(node) == members(tree), seen, costs)
    return total


def _node_price(children: Sequence[tuple[int, ...]], root: bool, seen: Observed, costs: Costs) -> float:
    whole = tuple(i for child in children for i in child)
    total = 0.0 if root else (costs.make + costs.keep) * seen.made(whole)
    flat = root and all(len(child) == 1 for child in children)
    for child in children:
        others = [other for other in children if other is not child]
        total += costs.probe * len(others) * seen.made(child)
        if flat:
            total += (costs.make + costs.probe) * seen.rows[child[0]] * seen.spread[child[0]]
        elif len(others) > 1:
            # partial combinations of this child's new rows, the smallest partner first
            reached = list(child)
            partials = sorted(others, key=lambda other: seen.made((*child, *other), by=child))[:-1]
            for other in partials:
                reached += other
                total += (costs.make + costs.probe) * seen.made(reached, by=child)
    return total


def best_tree(seen: Observed, costs: Costs) -> tuple[Tree, float]:
    """The cheapest tree and its price.

    >>> few = {"1": 0.1, "2": 0.1, "4": 0.1, "3": 0.01, "5": 0.01, "6": 0.01}
    >>> seen = Observed((1000.0, 10.0, 10.0), (few, few, few), (0.1, 0.1, 0.1))
    >>> best_tree(seen, Costs())[0]
    (0, (1, 2))
    """
    inputs = tuple(range(seen.inputs))
    flat = price(inputs, seen, costs)
    if len(inputs) == 2:
        return inputs, flat
    tree, cost = cheapest(_combinations(seen), probe=costs.probe, make=costs.make, keep=costs.keep)
    # the m-way join is a node of its own kind: it passes over rows that lack a partner before it combines anything
    return (inputs, flat) if flat < cost else (canonical(tree), cost)


def _combinations(seen: Observed) -> Floats:
    """rows_i * F_i(S without i) for every input i and every set S with it, by bit mask."""
    size = 1 << seen.inputs
    masks = np.arange(size)
    table = np.zeros((seen.inputs, size))
    for i, fanout in enumerate(seen.fanout):
        found = np.ones(size)
        for j in range(seen.inputs):
            found = np.where(masks >> j & 1, found * fanout.get(str(1 << j), 0.0), found)
        for mask, mean in fanout.items():
            found[int(mask)] = mean
        table[i] = np.where(masks >> i & 1, seen.rows[i] * found[masks & ~(1 << i)], 0.0)
    return table


class Optimizer:
    """Suggests another tree for a site when that is cheaper by a share of at least `gain`, one at a time.

    gain      share of the work the new tree must save
    cooldown  seconds a site keeps a tree at least
    weight    of the newest batch among those observed
    guarded   whether noise is kept from changing trees back and forth: a site goes back to the tree it has just left
              only if that saves `gain` twice over; one that has kept its tree for `SETTLED` batches changes it only for
              one that saves `gain` in the long run as well, and a quarter more if lately it did not save it twice over

    Where what was seen has hardly changed since a search that found nothing better, there is no other search.

    Example::

        tree = fx.join({"a": clicks, "b": more_clicks}, on="user", time="ts", within="1 minute", plan="tree")
        tree.adapt(replan=fx.Optimizer(gain=0.3, cooldown=30.0))
    """

    def __init__(
        self,
        *,
        gain: float = 0.2,
        cooldown: float = 5.0,
        weight: float = 0.5,
        costs: Costs | None = None,
        guarded: bool = True,
    ) -> None:
        if not 0 <= gain < 1 or cooldown < 0 or not 0 < weight <= 1:
            raise ConfigError(
                "Optimizer: expected gain in [0, 1), cooldown >= 0 and weight in (0, 1], got "
                f"{gain}, {cooldown} and {weight}"
            )
        self.gain, self.cooldown, self.weight, self.costs = gain, cooldown, weight, costs or Costs()
        self.guarded = guarded
        self.seen: dict[int, Observed] = {}
        self._steady: dict[int, Observed] = {}
        self._batches: dict[int, int] = {}  # site -> batches since its tree changed, up to what matters
        self._left: dict[int, str] = {}  # site -> the tree it had before
        self._in_vain: dict[int, int] = {}  # site -> what was seen at the last search that found nothing better
        self._rest: dict[int, float] = {}

    def observe(self, site: int, data: Json) -> None:
        newest = Observed.of(data)
        known = self.seen.get(site)
        if known is None or known.inputs != newest.inputs:
            self.seen[site] = self._steady[site] = newest
            self._batches[site] = 0
            return
        self.seen[site] = known.blended(newest, self.weight)
        weight = max(_STEADY, 1 / (self._batches[site] + 2))
        self._steady[site] = self._steady[site].blended(newest, weight)
        self._batches[site] = min(self._batches[site] + 1, max(SETTLED, round(1 / _STEADY)))

    def suggest(self, site: int, tree: str, now: float) -> tuple[Tree, float, float] | None:
        """(a better tree, its price, the present one's) for a site that runs `tree`, or None."""
        seen = self.seen.get(site)
        if seen is None or sum(seen.rows) <= 0 or now < self._rest.get(site, now):
            return None
        mark = _mark(seen, tree)
        if self._in_vain.get(site) == mark:
            return None
        present = price(read(tree), seen, self.costs)
        found, cost = best_tree(seen, self.costs)
        if write(found) == tree or cost >= (1 - self.gain) * present:
            self._in_vain[site] = mark
            return None
        return None if self.guarded and self._doubtful(site, tree, found, cost / present) else (found, cost, present)

    def _doubtful(self, site: int, tree: str, found: Tree, ratio: float) -> bool:
        """Whether the new tree may only look better by chance."""
        clear = ratio < (1 - self.gain) ** 2
        if self._batches[site] < SETTLED:
            return not clear and self._left.get(site) == write(found)
        steady = self._steady[site]
        lasting = price(found, steady, self.costs) / price(read(tree), steady, self.costs)
        return lasting >= 1 - (1.0 if clear else _LASTING) * self.gain

    def changed(self, site: int, now: float, left: str = "") -> None:
        """A site has another tree than `left` from now on."""
        self._rest[site] = now + self.cooldown
        self._batches[site] = 0
        self._left[site] = left

    def forget(self, sites: int) -> None:
        """Drop what is known of sites beyond the first `sites`: they do not exist any more."""
        self.seen = {site: seen for site, seen in self.seen.items() if site < sites}
        self._rest = {site: end for site, end in self._rest.items() if site < sites}

    def snapshot(self) -> Json:
        return {
            "seen": {str(site): seen.to_json() for site, seen in self.seen.items()},
            "steady": {str(site): seen.to_json() for site, seen in self._steady.items()},
            "batches": {str(site): count for site, count in self._batches.items()},
            "left": {str(site): tree for site, tree in self._left.items()},
            "in_vain": {str(site): mark for site, mark in self._in_vain.items()},
            "rest": {str(site): end for site, end in self._rest.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seen = {int(site): Observed.of(seen) for site, seen in state["seen"].items()}
        self._steady = {int(site): Observed.of(seen) for site, seen in state.get("steady", state["seen"]).items()}
        self._batches = {site: int(state.get("batches", {}).get(str(site), 0)) for site in self.seen}
        self._left = {int(site): str(tree) for site, tree in state.get("left", {}).items()}
        self._in_vain = {int(site): int(mark) for site, mark in state.get("in_vain", {}).items()}
        self._rest = {int(site): float(end) for site, end in state["rest"].items()}


def _mark(seen: Observed, tree: str) -> int:
    """The same as long as a site has this tree and nothing observed changes by more than about a tenth."""
    values = [*seen.rows, *seen.spread, *(mean for fanout in seen.fanout for _, mean in sorted(fanout.items()))]
    steps = np.round(np.log(np.maximum(values, 1e-6)) / np.log(1.1)).astype(np.int64)
    return zlib.crc32(steps.tobytes(), zlib.crc32(tree.encode()))
