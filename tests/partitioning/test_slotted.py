"""Slots, bands and the construction made of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.effort import examples

from fluxen.errors import CheckpointError, ConfigError
from fluxen.partitioning import Frequencies, HashPair, Redist, Resources, Ring, Slots, Slotted
from fluxen.partitioning.leveling import band
from fluxen.partitioning.metrics import imbalance, migration, objective

PATHS = st.lists(st.integers(1, 20), min_size=1, max_size=6)


@given(path=PATHS)
@examples(60)
def test_dealing_evens_out_and_moves_no_more_than_it_must(path: list[int]) -> None:
    table = Slots.fresh(sites=path[0], bits=8)
    for sites in path[1:]:
        after = table.deal(sites)
        counts = after.counts()
        assert counts.sum() == 256
        assert counts.max() - counts.min() <= 1
        have = table.counts()
        have = np.pad(have, (0, max(0, sites - len(have))))
        must = int(np.maximum(counts - have[:sites], 0).sum())
        assert int((after.table != table.table).sum()) == must
        table = after


@given(path=PATHS, ratio=st.floats(1.0, 1.5))
@examples(60)
def test_dealing_within_a_band_stays_in_it_and_moves_less(path: list[int], ratio: float) -> None:
    table = Slots.fresh(sites=path[0], bits=10)
    for sites in path[1:]:
        after, even = table.deal(sites, ratio), table.deal(sites)
        counts = after.counts()
        assert counts.max() <= ratio * counts.min() + ratio + 1  # whole slots
        moved, moved_even = (int((other.table != table.table).sum()) for other in (after, even))
        assert moved <= moved_even + sites
        table = after


def test_dealing_to_the_same_number_changes_nothing() -> None:
    table = Slots.fresh(sites=5).deal(7, 1.05)
    assert table.deal(7, 1.05) == table


@given(
    loads=st.lists(st.floats(0.0, 10.0), min_size=2, max_size=12).filter(lambda loads: sum(loads) > 0.1),
    ratio=st.floats(1.01, 1.5),
)
@examples(100)
def test_no_other_band_of_the_same_ratio_is_cheaper(loads: list[float], ratio: float) -> None:
    x = np.array(loads)

    def cost(low: float) -> float:
        return max(float(np.maximum(low - x, 0).sum()), float(np.maximum(x - ratio * low, 0).sum()))

    low, high = band(x, ratio)
    assert high == pytest.approx(ratio * low)
    assert cost(low) <= min(cost(other) for other in np.linspace(0, x.max(), 200)) + 1e-6


def test_a_site_that_cannot_come_down_does_not_pull_the_band_up() -> None:
    low, high = band(np.array([10.0, 1.0, 1.0, 0.0]), 1.1, np.array([10.0, 0.0, 0.0, 0.0]))
    assert high < 1.0
    assert low == pytest.approx(2 / (2 * 1.1 + 1))


def zipf(keys: int, z: float, seed: int) -> Frequencies:
    weight = 1.0 / np.arange(1, keys + 1) ** z
    hashes = np.unique(np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, keys))
    return Frequencies(keys=hashes, share=np.random.default_rng(seed).permutation(weight / weight.sum()), domain=keys)


@pytest.mark.parametrize("z", [0.6, 0.9])
def test_growing_balances_better_than_redist_and_migrates_no_more(z: float) -> None:
    results = {}
    for made in (Slotted, Redist):
        found = []
        for seed in range(4):
            known, function = zipf(20_000, z, seed), None
            for sites in range(1, 9):
                function, before = made(seed=seed).build(function, known, sites), function
            assert before is not None
            old, new = before.lookup(known.keys), function.lookup(known.keys)
            b = imbalance(new, known.share, 8, Resources(), alpha=1.2)["b"]
            found.append((b, migration(old, new, known.share, (7, 8), Resources())))
        results[made] = np.mean(found, axis=0)
    assert results[Slotted][0] < results[Redist][0]
    assert results[Slotted][1] < results[Redist][1] * 1.02
    assert objective(*results[Slotted]) < objective(*results[Redist])


def test_shrinking_moves_little_beyond_the_removed_sites() -> None:
    known, function = zipf(20_000, 1.0, 3), None
    for sites in range(1, 9):
        function = Slotted().build(function, known, sites)
    assert function is not None
    smaller = Slotted().build(function, known, 6)
    old, new = function.lookup(known.keys), smaller.lookup(known.keys)
    assert migration(old, new, known.share, (8, 6), Resources()) < 1.2
    assert imbalance(new, known.share, 6, Resources.of("LLL"), alpha=1.2)["b"] < 1.0


def test_when_every_item_is_tracked_partition_groups_are_placed_one_by_one() -> None:
    # a caller with P partition groups can hand in their measured shares under their ids
    share = np.random.default_rng(0).dirichlet(np.ones(256) * 3)
    groups = Frequencies(keys=np.arange(256), share=share, domain=256)
    function = Slotted(sigma=0.01).build(None, groups, 8)
    loads = np.bincount(function.lookup(groups.keys), weights=share, minlength=8)
    ring = np.bincount(Ring(sites=8).lookup(groups.keys), weights=share, minlength=8)
    assert loads.max() / loads.min() < 1.1 < ring.max() / ring.min()


@pytest.mark.parametrize("table", [[0, 1, 2], [0], []])
def test_a_table_must_be_a_power_of_two_with_a_slot_per_site(table: list[int]) -> None:
    with pytest.raises(ConfigError, match="slot table"):
        Slots(sites=2, table=np.array(table, dtype=np.int32))


def test_a_table_naming_an_unknown_site_is_damaged() -> None:
    with pytest.raises(CheckpointError, match="site 2"):
        Slots.from_dict({"kind": "slots", "sites": 2, "seed": 0, "table": [0, 1, 2, 1]})


def test_an_explicit_map_with_an_unknown_site_is_refused() -> None:
    with pytest.raises(ConfigError, match="outside"):
        HashPair.of({1: 5}, Ring(sites=3))
