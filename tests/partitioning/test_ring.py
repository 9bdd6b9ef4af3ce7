"""The hash and the ring: golden values, agreement with a 128-bit reference, consistency."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.effort import examples

from fluxen.errors import ConfigError
from fluxen.partitioning import Ring, Slots, UniformFunction
from fluxen.partitioning.hashing import as_keys, mix64, position

KEYS = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 20_000)
# a change of any of these moves every key of every running query
GOLDEN_MIX = [
    "0x0",
    "0xb456bcfc34c2cb2c",
    "0x3abf2a20650683e7",
    "0xba3a9e160a5f1419",
    "0x8f780810af31a493",
    "0x64b5720b4b825f21",
]
GOLDEN_POSITION = [
    "0x2c465c823e624786",
    "0x8b830efe41718549",
    "0x27ad4de52b28e274",
    "0x1062e5cd843cdadf",
    "0x837cb64dccf2923b",
    "0xa6a17cbba27ca439",
]
GOLDEN_RING = [4, 6, 3, 1, 4, 5, 3, 0, 3, 5, 5, 5, 4, 6, 6, 0]
GOLDEN_UNIFORM = [3, 6, 3, 0, 6, 4, 6, 1, 5, 0, 1, 0, 0, 0, 1, 0]
GOLDEN_SLOTS = [5, 6, 1, 2, 3, 1, 5, 6, 5, 1, 4, 3, 4, 1, 6, 4]


def test_the_hash_keeps_its_golden_values() -> None:
    words = np.array([0, 1, 2, 2**32, 2**63, 2**64 - 1], dtype=np.uint64)
    assert [hex(int(word)) for word in mix64(words)] == GOLDEN_MIX
    keys = np.array([-(2**63), -1, 0, 1, 42, 2**63 - 1], dtype=np.int64)
    assert [hex(int(word)) for word in position(as_keys(keys), 5, 0)] == GOLDEN_POSITION


def test_functions_keep_their_golden_sites() -> None:
    keys = np.arange(-8, 8, dtype=np.int64) * 1_234_567_891
    assert Ring(sites=7, seed=3).lookup(keys).tolist() == GOLDEN_RING
    assert UniformFunction(sites=7, seed=3).lookup(keys).tolist() == GOLDEN_UNIFORM
    assert Slots.fresh(sites=7, seed=3).lookup(keys).tolist() == GOLDEN_SLOTS


def test_the_hash_is_one_to_one() -> None:
    assert len(np.unique(mix64(np.arange(100_000, dtype=np.uint64)))) == 100_000


@given(sites=st.integers(1, 12), replicas=st.integers(1, 60), seed=st.integers(0, 2**31))
@examples(40)
def test_lookup_agrees_with_a_search_on_128_bits(sites: int, replicas: int, seed: int) -> None:
    points = []
    for site in range(sites):
        words = (np.uint64(site) << np.uint64(32)) | np.arange(replicas, dtype=np.uint64)
        high, low = position(words, seed, 2), position(words, seed, 3)
        points += [((int(h) << 64) | int(x), site) for h, x in zip(high, low)]
    points.sort()
    at = [place for place, _ in points]
    keys = KEYS[:300]
    high, low = position(as_keys(keys), seed, 0), position(as_keys(keys), seed, 1)
    expected = [points[bisect_left(at, (int(h) << 64) | int(x)) % len(points)][1] for h, x in zip(high, low)]
    assert Ring(sites=sites, replicas=replicas, seed=seed).lookup(keys).tolist() == expected


def test_a_tie_of_the_high_half_is_decided_by_the_low_half() -> None:
    ring = Ring(sites=2, replicas=1)
    key = KEYS[:1]
    high, low = (int(position(as_keys(key), 0, stream)[0]) for stream in (0, 1))
    other = (high + 2**63) % 2**64
    for below, owner in ((low - 1, 1), (low, 0), (low + 1, 0)):
        # site 0 sits exactly on the key's high half, just before or at or after it in the low half
        order = np.argsort(np.array([high, other], dtype=np.uint64))
        object.__setattr__(ring, "_high", np.array([high, other], dtype=np.uint64)[order])
        object.__setattr__(ring, "_low", np.array([below, 0], dtype=np.uint64)[order])
        owners = np.array([0, 1], dtype=np.int32)[order]
        object.__setattr__(ring, "_owner", np.append(owners, owners[0]).astype(np.int32))
        ring._cut_buckets()
        assert int(ring.lookup(key)[0]) == owner


@pytest.mark.parametrize("sites", [1, 2, 9, 40])
def test_a_new_site_only_takes(sites: int) -> None:
    before, after = Ring(sites=sites).lookup(KEYS), Ring(sites=sites + 1).lookup(KEYS)
    assert set(after[before != after].tolist()) == {sites}


@pytest.mark.parametrize("sites", [1, 5, 32])
def test_shares_are_the_arcs(sites: int) -> None:
    ring = Ring(sites=sites)
    assert ring.shares().sum() == pytest.approx(1.0)
    counted = np.bincount(ring.lookup(KEYS), minlength=sites) / len(KEYS)
    assert np.abs(counted - ring.shares()).max() < 5 / np.sqrt(len(KEYS) * sites)
    assert ring.shares().max() < 1.15 / sites
    assert ring.shares().min() > 0.85 / sites


def test_ids_of_partition_groups_spread_like_keys() -> None:
    counted = np.bincount(Ring(sites=4).lookup(np.arange(4096, dtype=np.int64)), minlength=4)
    assert counted.min() > 900
    assert counted.max() < 1150


@pytest.mark.parametrize(("sites", "replicas"), [(0, 10), (3, 0), (-1, 5)])
def test_an_impossible_ring_is_refused(sites: int, replicas: int) -> None:
    with pytest.raises(ConfigError, match="ring"):
        Ring(sites=sites, replicas=replicas)
