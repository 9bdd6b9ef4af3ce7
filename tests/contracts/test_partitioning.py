"""Every partitioning function is found automatically and meets the same checks."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fluxen.partitioning as partitioning
from fluxen.errors import CheckpointError
from fluxen.partitioning import Frequencies, from_dict
from fluxen.partitioning.metrics import imbalance, migration
from fluxen.partitioning.resources import Resources
from tests.effort import examples

PARTITIONERS: list[Any] = list(partitioning.PARTITIONERS.members.values())
BALANCING = [made for made in PARTITIONERS if "sigma" in {field.name for field in dataclasses.fields(made)}]
FEW_REPLICAS = {made: {"replicas": 50} for made in PARTITIONERS if hasattr(made(), "replicas")}  # rings built quickly
PROBES = np.random.default_rng(7).integers(-(2**63), 2**63 - 1, 20_000)


def skewed(keys: int = 400, z: float = 1.0, seed: int = 0) -> Frequencies:
    weight = 1.0 / np.arange(1, keys + 1) ** z
    hashes = np.unique(np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, keys))
    return Frequencies(
        keys=hashes, share=np.random.default_rng(seed + 1).permutation(weight / weight.sum()), domain=keys
    )


@st.composite
def frequencies(draw: st.DrawFn) -> Frequencies:
    keys = draw(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=40))
    weights = draw(st.lists(st.integers(1, 1000), min_size=len(keys), max_size=len(keys)))
    rest = draw(st.integers(0, 1000))
    total = sum(weights) + rest
    return Frequencies.counted(
        np.array(keys, dtype=np.int64), np.array(weights, dtype=np.int64), max(1, total), domain=500
    )


def test_the_contract_sees_all_six_constructions() -> None:
    assert {made.__name__ for made in PARTITIONERS} == {
        "ConsistentHash",
        "Readj",
        "Redist",
        "Scan",
        "Slotted",
        "UniformHash",
    }
    assert len(BALANCING) == 4


@pytest.mark.parametrize("made", PARTITIONERS)
@given(known=frequencies(), path=st.lists(st.integers(1, 9), min_size=1, max_size=4))
@examples(30)
def test_total_every_key_has_a_site(made: Any, known: Frequencies, path: list[int]) -> None:
    partitioner, function = made(**FEW_REPLICAS.get(made, {})), None
    for sites in path:
        function = partitioner.build(function, known, sites)
        found = function.lookup(np.concatenate([PROBES[:500], known.keys]))
        assert function.sites == sites
        assert found.dtype == np.int32
        assert found.min() >= 0
        assert found.max() < sites
        assert all(0 <= site < sites for site in function.explicit().values())


@pytest.mark.parametrize("made", PARTITIONERS)
def test_deterministic_and_different_under_another_seed(made: Any) -> None:
    known = skewed()
    one, two, other = (made(seed=seed).build(None, known, 7) for seed in (3, 3, 4))
    assert one == two
    assert np.array_equal(one.lookup(PROBES), two.lookup(PROBES))
    assert not np.array_equal(one.lookup(PROBES), other.lookup(PROBES))


@pytest.mark.parametrize("made", PARTITIONERS)
@given(known=frequencies(), sites=st.integers(1, 9))
@examples(20)
def test_survives_json_and_pickle(made: Any, known: Frequencies, sites: int) -> None:
    partitioner = made(**FEW_REPLICAS.get(made, {}))
    function = partitioner.build(partitioner.build(None, known, 3), known, sites)
    probes = np.concatenate([PROBES[:500], known.keys])
    for copy in (from_dict(json.loads(json.dumps(function.to_dict()))), pickle.loads(pickle.dumps(function))):
        assert copy == function
        assert np.array_equal(copy.lookup(probes), function.lookup(probes))
        # what is built from the copy is what would have been built from the original
        assert partitioner.build(copy, known, sites + 1) == partitioner.build(function, known, sites + 1)


@pytest.mark.parametrize("made", PARTITIONERS)
@given(known=frequencies(), path=st.lists(st.integers(1, 9), min_size=1, max_size=3))
@examples(30)
def test_stable_no_key_moves_when_nothing_changed(made: Any, known: Frequencies, path: list[int]) -> None:
    partitioner, function = made(**FEW_REPLICAS.get(made, {})), None
    for sites in path:
        function = partitioner.build(function, known, sites)
    again = partitioner.build(function, known, path[-1])
    probes = np.concatenate([PROBES[:500], known.keys])
    assert np.array_equal(function.lookup(probes), again.lookup(probes))


@pytest.mark.parametrize("made", PARTITIONERS)
def test_explicit_keys_go_where_the_map_says(made: Any) -> None:
    known = skewed()
    function = made().build(made().build(None, known, 4), known, 5)
    explicit = function.explicit()
    keys = np.array(sorted(explicit), dtype=np.int64)
    assert function.size == len(explicit)
    assert function.lookup(keys).tolist() == [explicit[int(key)] for key in keys]


@pytest.mark.parametrize("made", PARTITIONERS)
def test_lookup_of_nothing_and_of_one(made: Any) -> None:
    function = made().build(None, skewed(), 5)
    assert function.lookup(np.empty(0, dtype=np.int64)).shape == (0,)
    assert [int(function.lookup(PROBES[i : i + 1])[0]) for i in range(50)] == function.lookup(PROBES[:50]).tolist()


@pytest.mark.parametrize("made", [made for made in PARTITIONERS if made.__name__ != "UniformHash"])
@pytest.mark.parametrize(("old", "new"), [(4, 5), (5, 4), (4, 7), (7, 5), (6, 2)])
def test_rescaling_moves_a_bounded_part_in_both_directions(made: Any, old: int, new: int) -> None:
    known = skewed(keys=3000, z=0.8)
    before = made().build(None, known, old)
    after = made().build(before, known, new)
    moved = migration(before.lookup(known.keys), after.lookup(known.keys), known.share, (old, new), Resources())
    assert moved < 2.0  # uniform hash is at 4 and above for one site more


@pytest.mark.long
@pytest.mark.parametrize("made", BALANCING)
@pytest.mark.parametrize(("old", "new"), [(5, 6), (6, 5), (4, 7), (7, 5)])
def test_balance_beats_consistent_hash_under_skew(made: Any, old: int, new: int) -> None:
    better = []
    for seed in range(5):
        known = skewed(keys=3000, z=1.0, seed=seed)
        function = made(seed=seed).build(made(seed=seed).build(None, known, old), known, new)
        plain = partitioning.ConsistentHash(seed=seed).build(None, known, new)
        b, base = (
            imbalance(f.lookup(known.keys), known.share, new, Resources.of("LLL"), alpha=1.2)["b"]
            for f in (function, plain)
        )
        better.append(b / base)
    assert np.mean(better) < 0.9


@pytest.mark.parametrize("made", BALANCING)
@pytest.mark.parametrize("letters", ["LCL", "LLL", "LQL", "CCL"])
def test_builds_for_every_resource_function(made: Any, letters: str) -> None:
    known = skewed()
    function = made(resources=letters).build(made(resources=letters).build(None, known, 3), known, 4)
    assert set(np.unique(function.lookup(PROBES))) == {0, 1, 2, 3}


@pytest.mark.parametrize("made", PARTITIONERS)
@pytest.mark.parametrize("other", PARTITIONERS)
def test_takes_over_from_any_other_construction(made: Any, other: Any) -> None:
    known = skewed()
    assert made().build(other().build(None, known, 4), known, 5).sites == 5


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data | {"format": 99},
        lambda data: data | {"kind": "nonsense"},
        lambda data: {key: value for key, value in data.items() if key != "keys"},
        lambda data: data | {"places": [99] * len(data["places"])},
        lambda data: data | {"keys": data["keys"][::-1]},
        lambda data: data | {"fallback": {"kind": "ring"}},
    ],
)
def test_a_damaged_description_is_a_checkpoint_error(damage: Any) -> None:
    data = partitioning.Readj().build(None, skewed(), 4).to_dict()
    assert len(data["keys"]) > 1
    with pytest.raises(CheckpointError, match="partitioning function"):
        from_dict(damage(data))
