"""The optimizer changes trees for a reason that lasts: not because of noise, and soon when rates have changed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.control.test_search import observed

from fluxen.control.plans import optimizer as module
from fluxen.control.plans.optimizer import Observed, Optimizer, best_tree, price
from fluxen.state.trees import left_deep, read, write

NOISE = 0.15


def sample(rng: np.random.Generator, seen: Observed) -> Observed:
    """One batch's observation: Poisson rows, partners counted in a sample."""
    rows = tuple(float(rng.poisson(10 * n)) for n in seen.rows)
    fanout = tuple({mask: mean * float(rng.lognormal(0, NOISE)) for mask, mean in f.items()} for f in seen.fanout)
    return Observed(rows, fanout, tuple(mean * float(rng.lognormal(0, NOISE)) for mean in seen.spread))


def follow(
    site: Optimizer, rng: np.random.Generator, seen: Observed, tree: str, batches: range
) -> tuple[str, list[int]]:
    """What tree a site ends up with, and the batches after which it changed."""
    changes = []
    for batch in batches:
        site.observe(0, sample(rng, seen).to_json())
        better = site.suggest(0, tree, float(batch))
        if better is not None:
            site.changed(0, float(batch), tree)
            tree = write(better[0])
            changes.append(batch)
    return tree, changes


@pytest.mark.parametrize("inputs", [3, 4, 6])
def test_on_stationary_input_a_site_comes_to_rest(inputs: int) -> None:
    changed = 0
    for seed in range(4):
        rng = np.random.default_rng([inputs, seed])
        seen = observed(rng, inputs)
        tree, changes = follow(Optimizer(), rng, seen, write(left_deep(inputs)), range(220))
        assert [batch for batch in changes if batch >= 20] == []
        tenfold = Observed(tuple(10 * n for n in seen.rows), seen.fanout, seen.spread)
        assert price(read(tree), tenfold, module.Costs()) <= 1.3 * best_tree(tenfold, module.Costs())[1]
        changed += len(changes)
    assert changed > 0


def test_without_guards_it_goes_back_and_forth() -> None:
    """Two trees that cost nearly the same, and partners that scatter: what the guards are for."""
    even = {str(mask): 1.0 for mask in range(1, 8)}
    seen = Observed((10.0, 10.0, 10.0), (even, even, even), (1.2, 1.2, 1.2))
    loud = Optimizer(gain=0.1, cooldown=0.0, guarded=False)
    _, changes = follow(loud, np.random.default_rng(1), seen, "((0 1) 2)", range(220))
    assert len([batch for batch in changes if batch >= 20]) > 5
    calm = Optimizer(gain=0.1, cooldown=0.0)
    _, changes = follow(calm, np.random.default_rng(1), seen, "((0 1) 2)", range(220))
    assert len([batch for batch in changes if batch >= 20]) <= 1


def test_a_change_of_rates_after_a_long_rest_is_followed_within_some_batches() -> None:
    few = {"1": 0.5, "2": 0.5, "4": 0.5, "3": 0.2, "5": 0.2, "6": 0.2}
    rng, site = np.random.default_rng(2), Optimizer()
    before = Observed((10.0, 100.0, 100.0), (few, few, few), (0.1, 0.1, 0.1))
    tree, _ = follow(site, rng, before, write(best_tree(before, site.costs)[0]), range(100))
    after = Observed((2000.0, 10.0, 10.0), (few, few, few), (0.1, 0.1, 0.1))
    tree, changes = follow(site, rng, after, tree, range(100, 140))
    assert tree == "(0 (1 2))"
    assert changes
    assert changes[0] < 112


def test_there_is_no_search_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = []
    monkeypatch.setattr(module, "best_tree", lambda *given: searches.append(1) or best_tree(*given))
    seen = observed(np.random.default_rng(1), 8)
    tree = write(best_tree(seen, module.Costs())[0])
    site = Optimizer()
    for batch in range(20):
        site.observe(0, seen.to_json())
        assert site.suggest(0, tree, float(batch)) is None
    assert len(searches) == 1
    more = Observed(tuple(3 * n for n in seen.rows), seen.fanout, seen.spread)
    site.observe(0, more.to_json())
    site.suggest(0, tree, 20.0)
    assert len(searches) == 2


def test_it_goes_on_after_a_restart_as_if_there_had_been_none() -> None:
    seen = observed(np.random.default_rng(5), 4)
    straight, stopped = Optimizer(gain=0.05, cooldown=2.0), Optimizer(gain=0.05, cooldown=2.0)
    tree = write(left_deep(4))
    rng = np.random.default_rng(6)
    for batch in range(40):
        data = sample(rng, seen).to_json()
        fresh = Optimizer(gain=0.05, cooldown=2.0)
        fresh.restore(json.loads(json.dumps(stopped.snapshot())))
        stopped = fresh
        straight.observe(0, data)
        stopped.observe(0, data)
        better, same = (site.suggest(0, tree, float(batch)) for site in (straight, stopped))
        assert better == same
        if better is not None:
            for site in (straight, stopped):
                site.changed(0, float(batch), tree)
            tree = write(better[0])
