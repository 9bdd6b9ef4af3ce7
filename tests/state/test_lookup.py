"""Tables without collisions: every key is found in its slot and no other key is."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fluxen.state.lookup import CollisionFree

HASHES = st.integers(-(2**63), 2**63 - 1)


@given(keys=st.lists(HASHES, min_size=1, max_size=40, unique=True), others=st.lists(HASHES, max_size=40))
def test_keys_are_found_and_others_are_not(keys, others):
    table = CollisionFree.of(np.array(keys, dtype=np.int64))
    asked = np.array([*keys, *others], dtype=np.int64)
    found = table.keys[table.slots(asked)] == asked
    assert found.tolist() == [h in keys for h in asked.tolist()]


def test_a_thousand_keys_take_a_few_thousand_slots_even_where_their_low_bits_are_equal():
    rng = np.random.default_rng(1)
    spread = np.unique(rng.integers(-(2**63), 2**63 - 1, 1000))
    for keys in (spread, np.arange(1000), np.arange(1000) << 32, np.append(spread, [0, -1, 2**63 - 1, -(2**63)])):
        table = CollisionFree.of(keys)
        assert (table.keys[table.slots(keys)] == keys).all()
        assert (table.tags[table.slots(keys)] == keys.view(np.uint64) >> np.uint64(57)).all()
        assert len(table.keys) <= 8192
    hashed = CollisionFree.of(spread)
    assert max(hashed.shifts.max(), hashed.flips.max(), hashed.tags.max()) < 128
    assert len(hashed.keys) == 2048
