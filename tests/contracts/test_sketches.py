"""Every frequency sketch is found automatically and meets the same checks."""

from __future__ import annotations

import copy
import json
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fluxen.sketches as sketches
from fluxen.errors import CheckpointError, ConfigError
from fluxen.sketches import LossyCounter, SlidingSketch, SpaceSaving, sketch_from_dict
from tests.effort import examples

FACTORIES: dict[str, Callable[[], Any]] = {
    "LossyCounter": lambda: LossyCounter(epsilon=0.05),
    "SpaceSaving": lambda: SpaceSaving(capacity=19),
    # a window longer than any stream below, so that its guarantee covers all of it
    "SlidingSketch": lambda: SlidingSketch(LossyCounter(epsilon=0.05), window=10**9),
}
# few heavy keys among many light ones; negative keys too
KEYS = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1), st.integers(0, 60))
STREAMS = st.lists(st.lists(KEYS, max_size=60), max_size=8)
every = pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES.keys())


def arrays(stream: list[list[int]]) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    return [np.array(batch, dtype=np.int64) for batch in stream]


def check_guarantee(sketch: Any, truth: Counter[int], epsilon: float) -> None:
    total = sum(truth.values())
    held = sketch.held()
    assert sketch.total == total
    assert sketch.max_error <= epsilon * total
    seen = dict(zip(held.keys.tolist(), zip(held.counts.tolist(), held.errors.tolist())))
    assert held.keys.tolist() == sorted(seen)
    for key, (count, error) in seen.items():
        assert count <= truth[key] <= count + error
        assert error <= epsilon * total
    assert all(times <= sketch.max_error for key, times in truth.items() if key not in seen)
    for share in (0.06, 0.1, 0.3):
        frequent = set(sketch.frequent(share).keys.tolist())
        assert {key for key, times in truth.items() if total and times >= share * total} <= frequent
        assert all(truth[key] >= (share - epsilon) * total for key in frequent)


def test_every_registered_sketch_is_under_contract() -> None:
    assert {kind.__name__ for kind in sketches.SKETCHES.members.values()} == set(FACTORIES)


@every
@given(stream=STREAMS)
@examples(80)
def test_error_guarantee_and_space_bound_hold(factory: Callable[[], Any], stream: list[list[int]]) -> None:
    sketch, truth = factory(), Counter[int]()
    for batch in arrays(stream):
        sketch.update(batch)
        truth.update(batch.tolist())
        assert len(sketch) <= sketch.bound
        check_guarantee(sketch, truth, sketch.epsilon)


@every
@given(stream=STREAMS, weights=st.integers(1, 1000))
@examples(40)
def test_counts_per_key_are_as_good_as_single_rows(
    factory: Callable[[], Any], stream: list[list[int]], weights: int
) -> None:
    sketch, truth = factory(), Counter[int]()
    for batch in arrays(stream):
        counts = (np.arange(len(batch)) * 37 + weights) % 1000
        sketch.update(batch, counts)
        for key, count in zip(batch.tolist(), counts.tolist()):
            truth[key] += count
        check_guarantee(sketch, +truth, sketch.epsilon)
        assert len(sketch) <= sketch.bound


@every
@given(parts=st.lists(STREAMS, min_size=2, max_size=4))
@examples(40)
def test_merging_sites_keeps_the_guarantee(factory: Callable[[], Any], parts: list[list[list[int]]]) -> None:
    merged, truth = factory(), Counter[int]()
    for stream in parts:
        site = factory()
        for batch in arrays(stream):
            site.update(batch)
            truth.update(batch.tolist())
        before = site.to_dict()
        merged.merge(site)
        assert site.to_dict() == before
        assert len(merged) <= merged.bound
    check_guarantee(merged, truth, merged.epsilon)


@every
@given(stream=STREAMS, cut=st.integers(0, 8))
@examples(40)
def test_snapshot_and_restore_is_never_having_stopped(
    factory: Callable[[], Any], stream: list[list[int]], cut: int
) -> None:
    straight, stopped = factory(), factory()
    for number, batch in enumerate(arrays(stream)):
        if number == cut:
            stopped = sketch_from_dict(json.loads(json.dumps(stopped.to_dict())))
        straight.update(batch)
        stopped.update(batch)
    assert stopped.to_dict() == straight.to_dict()
    assert pickle.loads(pickle.dumps(stopped)).to_dict() == straight.to_dict()


@every
def test_an_empty_sketch_answers(factory: Callable[[], Any]) -> None:
    sketch = factory()
    sketch.update(np.empty(0, dtype=np.int64))
    assert (sketch.total, len(sketch), sketch.max_error) == (0, 0, 0)
    assert sketch.frequent(0.1).keys.tolist() == []


@every
def test_space_stays_bounded_over_a_long_stream_of_distinct_keys(factory: Callable[[], Any]) -> None:
    sketch = factory()
    for batch in np.array_split(np.arange(50_000, dtype=np.int64), 500):
        sketch.update(batch)
    assert len(sketch) <= 200 < sketch.total


@every
def test_bad_input_is_refused_and_nothing_is_counted(factory: Callable[[], Any]) -> None:
    sketch = factory()
    sketch.update(np.array([1, 2, 3]))
    before = copy.deepcopy(sketch.to_dict())
    with pytest.raises(ConfigError):
        sketch.update(np.array([1, 2]), np.array([1]))
    with pytest.raises(ConfigError):
        sketch.update(np.array([1, 2]), np.array([1, -1]))
    assert sketch.to_dict() == before


@every
@pytest.mark.parametrize("damage", [{"kind": "nonsense"}, {"kind": None}, {}])
def test_a_damaged_description_is_a_checkpoint_error(factory: Callable[[], Any], damage: dict[str, Any]) -> None:
    data = factory().to_dict()
    damaged = data | damage if damage else {"kind": data["kind"]}
    with pytest.raises(CheckpointError, match="sketch"):
        sketch_from_dict(damaged)
