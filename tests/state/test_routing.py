"""Routing tables: every hash has one group and every group one site, whatever is moved, rescaled or isolated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxen.errors import ConfigError
from fluxen.state.routing import Routing, base_group, mask_of, ranges

HASHES = st.integers(-(2**63), 2**63 - 1)


@given(h=st.lists(HASHES, min_size=1), partitions=st.integers(1, 4096))
def test_groups_follow_the_order_of_hashes_and_cover_all_partitions(h, partitions):
    groups = base_group(np.sort(np.array(h)), partitions)
    assert (np.diff(groups) >= 0).all()
    assert 0 <= groups[0] <= groups[-1] < partitions
    assert base_group(np.array([-(2**63), 2**63 - 1]), partitions).tolist() == [0, partitions - 1]


@given(st.lists(st.booleans()))
def test_ranges_and_masks_are_each_others_inverse(bits):
    mask = np.array(bits, dtype=bool)
    assert mask_of(ranges(mask), len(bits)).tolist() == bits


@given(partitions=st.integers(1, 300), sites=st.integers(1, 300))
def test_even_routing_gives_every_site_a_fair_share(partitions, sites):
    if sites > partitions:
        with pytest.raises(ConfigError, match="sites must be between 1"):
            Routing.even(partitions=partitions, sites=sites)
        return
    counts = np.bincount(Routing.even(partitions=partitions, sites=sites).table, minlength=sites)
    assert counts.max() - counts.min() <= 1
    assert counts.sum() == partitions


def test_a_move_changes_the_moved_groups_only_and_leaves_the_old_table_alone():
    before = Routing.even(partitions=8, sites=2)
    after = before.moved(np.array([0, 5], dtype=np.int32), 1)
    assert np.flatnonzero(before.table != after.table).tolist() == [0]
    assert after.table[[0, 5]].tolist() == [1, 1]
    assert before.owned(0).sum() == 4


@given(partitions=st.integers(8, 256), first=st.integers(1, 8), second=st.integers(1, 8))
def test_rescaling_balances_and_moves_no_more_than_it_must(partitions, first, second):
    before = Routing.even(partitions=partitions, sites=first)
    after = before.rescaled(second)
    counts = np.bincount(after.table, minlength=second)
    assert len(counts) == second
    assert counts.max() - counts.min() <= 1
    held = np.bincount(before.table, minlength=max(first, second))
    share = -(-partitions // second)
    unavoidable = sum(max(0, int(n) - share) for n in held[:second]) + int(held[second:].sum())
    # whoever may hold one more than the others is a matter of rounding
    assert int((before.table != after.table).sum()) <= unavoidable + second


@given(h=st.lists(HASHES, min_size=1, max_size=6, unique=True), others=st.lists(HASHES, max_size=20))
def test_an_isolated_key_has_a_group_of_its_own_and_nobody_else_is_touched(h, others):
    plain = Routing.even(partitions=16, sites=3)
    routing = plain
    for number, key in enumerate(h):
        routing = routing.isolated(key, number % 3)
    keys = np.array(h)
    assert routing.groups(keys).tolist() == list(range(16, 16 + len(h)))
    assert routing.sites_of(routing.groups(keys)).tolist() == [n % 3 for n in range(len(h))]
    rest = np.array([x for x in others if x not in h], dtype=np.int64)
    assert routing.groups(rest).tolist() == plain.groups(rest).tolist()
    assert routing.isolated(h[0], 2).size == routing.size


@given(h=st.lists(HASHES, max_size=4, unique=True), sites=st.integers(1, 5), again=st.integers(1, 5))
def test_a_table_survives_json_and_rescaling_with_isolated_keys(h, sites, again):
    routing = Routing.even(partitions=16, sites=sites)
    for key in h:
        routing = routing.isolated(key, 0)
    routing = routing.rescaled(again)
    assert Routing.from_json(routing.to_json()).to_json() == routing.to_json()
    assert 0 <= routing.table.min() <= routing.table.max() < again
    assert len(routing.table) == 16 + len(h)
