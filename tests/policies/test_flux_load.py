"""FluxLoad picks what the paper says it picks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.effort import examples

from fluxen.errors import ConfigError
from fluxen.policies import FluxHybrid, FluxLoad, FluxMemory
from fluxen.policies.base import Move, Stats


def one_round(policy: Any, **columns: Any) -> list[tuple[tuple[int, ...], int, int]]:
    moves = policy.suggest(Stats.build(seconds=1.0, **columns), now=1.0)
    return [(move.pgs, move.donor, move.receiver) for move in moves]


def load(**settings: Any) -> FluxLoad:
    """The paper's policy: one group per pair and round, and no guards."""
    return FluxLoad(**{"min_collection": 1.0, "groups_per_move": 1, "guarded": False, **settings})


def busy(*utilization: float) -> dict[str, Any]:
    return {"sites": len(utilization), "busy": utilization, "idle": 1 - np.array(utilization)}


def test_sites_are_paired_from_both_ends_and_each_pair_moves_its_busiest_fitting_group() -> None:
    """Four sites: the busiest gives to the idlest, the second busiest to the second idlest."""
    placement = [0, 0, 0, 1, 1, 2, 3]
    rows = [40, 35, 25, 55, 15, 50, 20]
    got = one_round(load(), placement=placement, rows_in=rows, **busy(1.0, 0.7, 0.5, 0.2))
    assert got == [((0,), 0, 3), ((4,), 1, 2)]


def test_a_group_that_would_turn_the_imbalance_around_is_passed_over() -> None:
    got = one_round(load(), placement=[0, 0, 1], rows_in=[90, 10, 20], **busy(1.0, 0.2))
    assert got == [((1,), 0, 1)]


def test_a_receiver_is_never_predicted_to_be_overloaded() -> None:
    """Site 1 is slow: 10 rows kept it busy for 0.5 s, so 20 more would be too many although site 0 is fast."""
    got = one_round(load(), placement=[0, 0, 1], rows_in=[20, 4, 10], **busy(1.0, 0.5))
    assert got == [((1,), 0, 1)]


def test_a_receiver_that_processed_nothing_is_assumed_to_be_as_fast_as_the_donor() -> None:
    assert one_round(load(), placement=[0, 0, 0], rows_in=[40, 35, 25], **busy(1.0, 0.0)) == [((0,), 0, 1)]


@pytest.mark.parametrize(
    ("utilization", "settings"),
    [
        ((0.6, 0.55), {}),  # ratio below 1.2
        ((1.0, 0.8), {"imbalance": 1.3}),
        ((0.0, 0.0), {}),  # nothing happens at all
    ],
)
def test_a_pair_below_a_threshold_moves_nothing(utilization: tuple[float, float], settings: dict[str, Any]) -> None:
    assert one_round(load(**settings), placement=[0, 0, 1], rows_in=[10, 5, 5], **busy(*utilization)) == []


def test_more_groups_per_move_reach_balance_in_one_round() -> None:
    got = one_round(load(groups_per_move=20), placement=[0] * 10, rows_in=[10] * 10, **busy(1.0, 0.0))
    [(pgs, donor, receiver)] = got
    assert (len(pgs), donor, receiver) == (5, 0, 1)


def test_collection_lasts_as_long_as_the_last_move_and_halves_when_nothing_moves() -> None:
    policy = load(min_collection=0.1)
    values = {"sites": 2, "placement": [0, 0, 1], "rows_in": [10, 10, 2], "seconds": 0.1}
    hot = {**values, "busy": [0.1, 0.01], "idle": [0.0, 0.09]}
    [move] = policy.suggest(Stats.build(**hot), now=0.1)
    assert isinstance(move, Move)
    moving = [pg in move.pgs for pg in range(3)]
    assert list(policy.suggest(Stats.build(**hot, moving=moving), now=0.5)) == []
    moved = [1 if under_way else site for under_way, site in zip(moving, (0, 0, 1))]
    assert list(policy.suggest(Stats.build(**{**hot, "placement": moved}), now=0.9)) == []
    assert policy.collection == pytest.approx(0.8)  # from the suggestion at 0.1 to the end of the move at 0.9
    even = {**values, "placement": moved, "busy": [0.05, 0.05], "idle": [0.05, 0.05]}
    for i in range(1, 8):
        assert list(policy.suggest(Stats.build(**even), now=0.9 + 0.1 * i)) == []
        assert policy.collection == pytest.approx(0.8)
    policy.suggest(Stats.build(**even), now=1.7)
    assert policy.collection == pytest.approx(0.4)


def test_moves_done_between_two_reports_cost_no_report() -> None:
    """On micro-batches the switch happens between two epochs: the next report already shows the new placement."""
    policy = load()
    values = {"sites": 2, "rows_in": [10] * 10, "busy": [1.0, 0.1], "idle": [0.0, 0.9]}
    table = np.zeros(10, dtype=int)
    for now in (1.0, 2.0, 3.0):
        [move] = policy.suggest(Stats.build(**values, placement=table), now)
        assert isinstance(move, Move)
        table[list(move.pgs)] = move.receiver
    assert table.sum() >= 3  # each of the three reports moved a group to site 1


def test_guarded_the_batch_in_which_receivers_read_belongs_to_the_move() -> None:
    policy = load(min_collection=0.1, guarded=True)
    values: dict[str, Any] = {"sites": 2, "rows_in": [10] * 10, "busy": [1.0, 0.1], "idle": [0.0, 0.9], "seconds": 1.0}
    table = np.zeros(10, dtype=int)
    [move] = policy.suggest(Stats.build(**values, placement=table), 1.0)
    assert isinstance(move, Move)
    table[list(move.pgs)] = move.receiver
    assert list(policy.suggest(Stats.build(**values, placement=table), 2.0)) == []
    assert policy.collection == pytest.approx(1.0)  # as long as that batch
    assert len(policy.suggest(Stats.build(**values, placement=table), 3.0)) == 1


def test_a_refused_move_does_not_stop_the_rounds() -> None:
    policy = load()
    values = {"sites": 2, "placement": [0, 0, 1], "rows_in": [10, 10, 2], "busy": [1, 0.1], "idle": [0, 0.9]}
    assert len(policy.suggest(Stats.build(**values), 1.0)) == 1
    assert len(policy.suggest(Stats.build(**values), 2.0)) == 1


@examples(80)
@given(seed=st.integers(0, 10_000), groups_per_move=st.sampled_from([1, 3]))
def test_every_move_brings_its_pair_closer_by_the_papers_formula(seed: int, groups_per_move: int) -> None:
    rng = np.random.default_rng(seed)
    sites, groups = int(rng.integers(2, 9)), 40
    placement = rng.integers(0, sites, groups)
    rows = rng.integers(0, 100, groups).astype(float)
    u = rng.random(sites).round(3)
    policy = load(groups_per_move=groups_per_move)
    moves = policy.suggest(Stats.build(placement=placement, rows_in=rows, seconds=1.0, **busy(*u)), now=1.0)
    total = np.bincount(placement, weights=rows, minlength=sites)
    involved = [site for move in moves for site in (move.donor, move.receiver)]  # type: ignore[union-attr]
    assert len(involved) == len(set(involved))
    for move in moves:
        assert isinstance(move, Move)
        shifted = rows[list(move.pgs)].sum()
        assert (placement[list(move.pgs)] == move.donor).all()
        assert u[move.donor] >= u.mean()
        assert u[move.donor] >= 1.2 * u[move.receiver]
        high = u[move.donor] * (1 - shifted / total[move.donor])
        speed = u[move.receiver] / total[move.receiver] if total[move.receiver] else u[move.donor] / total[move.donor]
        low = u[move.receiver] + shifted * speed
        assert abs(high - low) < u[move.donor] - u[move.receiver]
        assert low <= 1 + 1e-9


def test_memory_moves_the_largest_group_in_memory_first() -> None:
    got = one_round(
        FluxMemory(min_collection=1.0, groups_per_move=1),
        sites=2,
        placement=[0, 0, 0, 1],
        bytes=[5, 7, 0, 5],
        spilled=[0, 0, 9, 0],
        capacity=[12, 40],
    )
    assert got == [((1,), 0, 1)]


def test_memory_shares_disk_work_out_when_everything_is_full() -> None:
    """Both sites are beyond their memory, the first by far; only groups on disk are left to move."""
    got = one_round(
        FluxMemory(min_collection=1.0, groups_per_move=1),
        sites=2,
        placement=[0, 0, 0, 1],
        bytes=[0, 0, 0, 0],
        spilled=[6, 6, 6, 6],
        capacity=[5, 5],
    )
    assert got == [((0,), 0, 1)]


def test_memory_leaves_equal_sites_and_sites_without_limits_alone() -> None:
    policy = FluxMemory(min_collection=1.0)
    assert one_round(policy, sites=2, placement=[0, 0, 1], bytes=[5, 5, 9], capacity=[20, 20]) == []
    assert one_round(FluxMemory(min_collection=1.0), sites=2, placement=[0, 0, 1], bytes=[5, 5, 1]) == []


def test_hybrid_uses_memory_while_anything_is_on_disk_and_load_afterwards() -> None:
    values: dict[str, Any] = {"placement": [0, 0, 1, 2], "rows_in": [60, 40, 50, 20], **busy(1.0, 0.5, 0.2)}
    spilling = one_round(
        FluxHybrid(min_collection=1.0), **values, bytes=[5, 5, 0, 5], spilled=[0, 0, 5, 0], capacity=[50, 4, 20]
    )
    assert [(donor, receiver) for _, donor, receiver in spilling] == [(1, 0)]
    resident = one_round(FluxHybrid(min_collection=1.0), **values, bytes=[5, 5, 5, 5], capacity=[50, 50, 50])
    assert [(donor, receiver) for _, donor, receiver in resident] == [(0, 2)]


def test_hybrid_passes_over_an_idle_site_without_memory() -> None:
    """Site 2 is the least busy but full: its place in the pair goes to site 1, instead of blocking the busiest site."""
    values: dict[str, Any] = {"placement": [0, 0, 1, 2], "rows_in": [60, 40, 30, 20], **busy(1.0, 0.3, 0.2)}
    got = one_round(FluxHybrid(min_collection=1.0), **values, bytes=[5, 5, 5, 5], capacity=[50, 50, 6])
    assert got == [((0,), 0, 1)]


@pytest.mark.parametrize(
    "bad",
    [
        {"min_collection": 0},
        {"min_collection": -1.0},
        {"imbalance": 0.5},
        {"groups_per_move": 0},
    ],
)
def test_settings_out_of_range_are_errors(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        FluxLoad(**bad)


def test_results_count_as_work() -> None:
    """Group 1 has half of the rows and nearly all of the results: its site would be idle without it."""
    columns = {"placement": [0, 0, 0, 1], "rows_in": [10, 30, 20, 200]}
    assert one_round(load(), **columns, **busy(1.0, 0.5)) == [((1,), 0, 1)]
    assert one_round(load(), **columns, rows_out=[0, 500, 0, 0], **busy(1.0, 0.5)) == [((2,), 0, 1)]


def turning_back(second: float, quiet: int = 0, **settings: Any) -> list[tuple[tuple[int, ...], int, int]]:
    """Site 0 gives group 0 to site 1; after `quiet` even rounds site 0 is as busy as `second`, site 1 all the time."""
    policy = load(**settings)
    rows = [40, 35, 25, 15, 5]
    assert one_round(policy, placement=[0, 0, 0, 1, 1], rows_in=rows, **busy(1.0, 0.2)) == [((0,), 0, 1)]
    policy.restore(policy.snapshot())
    after = {"placement": [1, 0, 0, 1, 1], "rows_in": rows, "seconds": 1.0}
    now = 2.0
    for _ in range(quiet):
        assert policy.suggest(Stats.build(**after, **busy(1.0, 1.0)), now=now) == ()
        now += 1.0
    moves = policy.suggest(Stats.build(**after, **busy(second, 1.0)), now=now)
    return [(move.pgs, move.donor, move.receiver) for move in moves]


def test_a_pair_does_not_turn_round_because_of_one_noisy_sample() -> None:
    assert turning_back(0.78) == []


def test_a_pair_turns_round_when_the_load_has_clearly_changed() -> None:
    assert turning_back(0.4) == [((0,), 1, 0)]


def test_a_pair_may_turn_round_some_rounds_later() -> None:
    assert turning_back(0.78, quiet=8) == [((4,), 1, 0)]


def test_the_hybrid_does_not_turn_round_because_of_one_noisy_sample_either() -> None:
    policy = FluxHybrid(min_collection=1.0, groups_per_move=1, guarded=False)
    columns = {"rows_in": [40, 35, 25, 15, 5], "bytes": [1] * 5, "capacity": [100, 100]}
    assert one_round(policy, placement=[0, 0, 0, 1, 1], **columns, **busy(1.0, 0.2)) == [((0,), 0, 1)]
    after = Stats.build(seconds=1.0, placement=[1, 0, 0, 1, 1], **columns, **busy(0.78, 1.0))
    assert policy.suggest(after, now=2.0) == ()
