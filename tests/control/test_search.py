"""The search for the cheapest tree finds it, and is quick enough for every site and batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from fluxen.control.plans.optimizer import Costs, Observed, best_tree, price
from fluxen.control.plans.search import _levels
from fluxen.state.trees import Tree, members


def observed(rng: np.random.Generator, inputs: int) -> Observed:
    """Rows and partners of random inputs; products of counts are their own, as far as sites report them."""
    fanout = []
    for i in range(inputs):
        singles = {j: float(rng.lognormal(-0.5, 1.2)) for j in range(inputs) if j != i}
        means = {str(1 << j): mean for j, mean in singles.items()}
        for size in range(2, inputs if inputs <= 5 else 2):
            for chosen in itertools.combinations(singles, size):
                mask = sum(1 << j for j in chosen)
                means[str(mask)] = float(np.prod([singles[j] for j in chosen]) * rng.lognormal(0.0, 0.5))
        fanout.append(means)
    rows = tuple(float(n) for n in rng.lognormal(4.0, 1.5, inputs))
    return Observed(rows, tuple(fanout), tuple(float(n) for n in rng.lognormal(-0.5, 1.0, inputs)))


def trees(inputs: tuple[int, ...]) -> Iterator[Tree]:
    """All trees of binary and ternary nodes over these inputs."""
    if len(inputs) == 1:
        yield inputs[0]
        return
    for parts in (2, 3):
        for labels in itertools.product(range(parts), repeat=len(inputs)):
            split = [tuple(i for i, label in zip(inputs, labels) if label == n) for n in range(parts)]
            if all(split) and split == sorted(split):
                yield from itertools.product(*(list(trees(part)) for part in split))


@pytest.mark.parametrize("inputs", [2, 3, 4, 5])
def test_the_tree_found_is_the_cheapest_of_all(inputs: int) -> None:
    every = [*trees(tuple(range(inputs))), tuple(range(inputs))]
    rng = np.random.default_rng(inputs)
    for _ in range(40 if inputs < 5 else 12):
        seen = observed(rng, inputs)
        costs = Costs(probe=1.0, make=float(rng.uniform(0, 2)), keep=float(rng.uniform(0, 4)))
        tree, cost = best_tree(seen, costs)
        assert cost == pytest.approx(price(tree, seen, costs))
        assert cost == pytest.approx(min(price(other, seen, costs) for other in every))


@pytest.mark.parametrize("inputs", [6, 7, 8])
def test_larger_trees_cost_what_the_search_says(inputs: int) -> None:
    seen = observed(np.random.default_rng(inputs), inputs)
    tree, cost = best_tree(seen, Costs())
    assert members(tree) == tuple(range(inputs))
    assert cost == pytest.approx(price(tree, seen, Costs()))
    assert cost <= price(tuple(range(inputs)), seen, Costs())


def test_the_search_looks_at_every_way_to_divide_a_set_once() -> None:
    """Stirling numbers of the second kind: ways to divide all subsets of eight inputs into two and three parts."""
    parts = np.concatenate([level.parts for level in _levels(8)])
    assert len(parts) == len(np.unique(parts, axis=0)) == 3025 + 7770
