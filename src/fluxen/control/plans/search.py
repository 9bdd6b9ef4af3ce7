"""The search for the cheapest join tree: dynamic programming over sets of inputs, as bit masks, a level at a time.

`fluxen.control.plans.optimizer` says what a tree costs and when to change it; here is only the search. What a node
costs depends on the sets below its children and not on how these were put together, so the best tree over a set is the
best node over the best trees of its parts. All ways to divide every set into two or three parts are listed once per
number of inputs; what they cost is then a handful of array operations: 10,795 ways for eight inputs, about a
millisecond."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fluxen.arrays import Floats, Ints
from fluxen.state.trees import Tree

__all__ = ["cheapest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """Every way to divide the sets of one size; `parts` is (ways, 3), with 0 for a third part that is not there."""

    sets: Ints
    parts: Ints
    starts: Ints
    """of each set's ways"""


def cheapest(table: Floats, *, probe: float, make: float, keep: float) -> tuple[Tree, float]:
    """The cheapest tree of binary and ternary nodes but the m-way join, and its price, less what every root makes.

    `table[i][S]` counts the combinations of the inputs in set S whose last row comes to input i; 0 if i is not in S.
    """
    inputs, size = table.shape
    made = table.sum(axis=0)
    by = _by(table)
    best = np.zeros(size)
    chosen: dict[int, Ints] = {}
    for level in _levels(inputs):
        first, second, third = level.parts.T
        price = probe * np.where(third > 0, 2, 1) * (made[first] + made[second] + made[third])
        price += (make + probe) * np.where(third > 0, _partials(by, first, second, third), 0.0)
        price += best[first] + best[second] + best[third]
        least = np.minimum.reduceat(price, level.starts)
        kept = 0.0 if level.sets[0] == size - 1 else (make + keep) * made[level.sets]
        best[level.sets] = least + kept
        ends = np.append(level.starts[1:], len(price))
        for whole, start, end in zip(level.sets.tolist(), level.starts.tolist(), ends.tolist()):
            chosen[whole] = level.parts[start + int(np.argmin(price[start:end]))]
    return _put_together(size - 1, chosen), float(best[size - 1])


def _by(table: Floats) -> Floats:
    """Combinations of the second set whose last row comes to one of the first set."""
    inputs, size = table.shape
    by = np.zeros((size, size))
    for i in range(inputs):
        by[1 << i : 2 << i] = by[: 1 << i] + table[i]
    return by


def _partials(by: Floats, first: Ints, second: Ints, third: Ints) -> Floats:
    """Partial combinations that a node of three children makes again for every row, the smaller partner first."""
    ab, ac, bc = first | second, first | third, second | third
    total = np.minimum(by[first, ab], by[first, ac]) + np.minimum(by[second, ab], by[second, bc])
    return np.asarray(total + np.minimum(by[third, ac], by[third, bc]), dtype=np.float64)


def _put_together(whole: int, chosen: dict[int, Ints]) -> Tree:
    if whole not in chosen:
        return whole.bit_length() - 1
    return tuple(_put_together(part, chosen) for part in chosen[whole].tolist() if part)


@lru_cache(maxsize=16)
def _levels(inputs: int) -> tuple[_Level, ...]:
    """The ways to divide every set, smaller sets first."""
    sets = sorted(range(1, 1 << inputs), key=lambda whole: (whole.bit_count(), whole))
    levels = []
    for count in range(2, inputs + 1):
        mine = [whole for whole in sets if whole.bit_count() == count]
        ways = [[way for way in _ways(whole) if count < inputs or not _single(way)] for whole in mine]
        starts = np.cumsum([0, *(len(way) for way in ways[:-1])])
        levels.append(_Level(sets=np.array(mine), parts=np.array([w for way in ways for w in way]), starts=starts))
    return tuple(levels)


def _ways(whole: int) -> list[tuple[int, int, int]]:
    """A set in two or three parts, each way once: the first part has the lowest member, the second that of the rest."""
    found = []
    for first in _subsets(whole):
        if not first & (whole & -whole) or first == whole:
            continue
        rest = whole & ~first
        for second in _subsets(rest):
            if second & (rest & -rest):
                found.append((first, second, rest & ~second))
    return found


def _single(way: tuple[int, int, int]) -> bool:
    """Whether each part is one input; as a root that is the m-way join, which costs something else."""
    return all(part.bit_count() <= 1 for part in way)


def _subsets(whole: int) -> list[int]:
    """All but the empty one."""
    found, subset = [], whole
    while subset:
        found.append(subset)
        subset = (subset - 1) & whole
    return found
