"""Nothing churns: on stationary input every policy comes to rest and stays there (`tests.plant`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.plant import ROW, Input, Plant

import fluxen.testing as ft
from fluxen import policies
from fluxen.policies import (
    ActiveDisk,
    Auto,
    FluxHybrid,
    FluxLoad,
    FluxMemory,
    ForecastDisk,
    LazyDisk,
    LocalDisk,
    Policy,
)
from fluxen.policies.base import Move, Spill, Stats

pytestmark = pytest.mark.long

INPUTS: tuple[Input, ...] = ("uniform", "zipf", "hot")
SETTLING, QUIET = 20, 200
"""rounds in which a policy may adapt, and in which it must not"""
SPEEDS = {"equal": (1.0,) * 4, "half as fast": (1.0, 1.0, 1.0, 0.5), "three quarters": (1.0, 0.77, 1.0, 1.0)}
MEMORIES = {
    "ample": (1.6,) * 4,
    "just enough": (1.15,) * 4,
    "too little": (0.8,) * 4,
    "unlike": (1.6, 1.6, 1.6, 0.8),
    "unlike and too little": (0.9, 0.9, 0.9, 0.5),
}
DISK: dict[str, tuple[Callable[[], Policy], int]] = {
    "LocalDisk": (LocalDisk, 1),
    "LazyDisk": (lambda: LazyDisk(gap=2.0), 2),
    "ActiveDisk": (lambda: ActiveDisk(gap=2.0), 2),
    "ForecastDisk": (ForecastDisk, 1),
    "Auto": (Auto, 1),
}
"""and batches per round: where there are no collections, the gap between two relocations"""


def rest(plant: Plant, batches: int) -> dict[str, int]:
    """What is done in the quiet rounds; `batches` make one."""
    plant.run((SETTLING + QUIET) * batches)
    return {kind: plant.count(kind, SETTLING * batches + 1) for kind in ("move", "repartition", "unspill", "spill")}


def test_every_policy_but_two_is_here() -> None:
    tested = {"FluxLoad", "FluxMemory", "FluxHybrid", *DISK}  # Auto is in all of them
    known = {kind.__name__ for kind in policies.POLICIES.members.values()}
    assert known - tested == {"Static", "Random", "RiverDQ"}


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("speeds", SPEEDS)
@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("policy", [FluxLoad, Auto])
def test_load_balancing_comes_to_rest(policy: Any, given: Input, speeds: str, batches: int) -> None:
    """With one batch per collection (the usual case on Spark) and with several; 15 % noise."""
    collection: Any = "auto" if batches == 1 else float(batches)
    plant = Plant(policy=policy(min_collection=collection), input=given, speed=SPEEDS[speeds])
    before = unevenness(plant)
    assert rest(plant, batches)["move"] == 0
    # what is left is less than it was, unless it was little or is a single group
    assert unevenness(plant) <= max(1.4, 0.8 * before) or given == "hot"


def unevenness(plant: Plant) -> float:
    """Expected time of the slowest site over the fastest one's."""
    work = np.bincount(plant.table, weights=plant.share * (1 + plant.density), minlength=plant.sites)
    time = work / np.array(plant.speed)
    return float(time.max() / time.min())


@pytest.mark.parametrize("memory", [(1.6,) * 4, (1.6, 1.6, 1.6, 0.7), (0.9, 0.9, 0.9, 0.5)], ids=str)
@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("policy", [FluxMemory, FluxHybrid, Auto])
def test_memory_balancing_comes_to_rest(policy: Callable[[], Policy], given: Input, memory: tuple[float, ...]) -> None:
    """Groups take turns in memory where there is too little, as those of aggregates do."""
    plant = Plant(policy=policy(), input=given, speed=SPEEDS["three quarters"], memory=memory, rotation=True)
    assert rest(plant, 1)["move"] == 0


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("name", DISK)
def test_spilling_comes_to_rest(name: str, given: Input, memory: str) -> None:
    policy, batches = DISK[name]
    plant = Plant(policy=policy(), input=given, memory=MEMORIES[memory])
    done = rest(plant, batches)
    assert done["move"] == 0
    # ours also swaps groups by what they promise, now and then
    assert done["unspill"] <= (QUIET // 10 if name in ("ForecastDisk", "Auto") else 0)
    assert plant.overflow <= 0.5 * plant.rows * ROW  # half a batch, before anybody knows what a batch adds
    if memory in ("ample", "unlike") and name != "LocalDisk" and given != "hot":
        assert done["spill"] == 0  # there is memory for everything, and groups that fit into it


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("name", DISK)
def test_spills_come_where_memory_is_short_and_nowhere_else(name: str, memory: str) -> None:
    policy, batches = DISK[name]
    plant = Plant(policy=policy(), input="zipf", memory=MEMORIES[memory])
    reasons: list[bool] = []

    class Watched(Policy):
        def suggest(self, stats: Stats, now: float) -> Any:
            made = inner.suggest(stats, now)
            batch = plant.rows * ROW / plant.sites
            for suggestion in made:
                if isinstance(suggestion, Spill):
                    short = stats.site_bytes + 4 * batch > stats.capacity
                    everywhere = stats.site_bytes.sum() + stats.site_spilled.sum() > 0.9 * stats.capacity.sum()
                    reasons.append(bool(short[suggestion.site] or everywhere))
            return made

        def snapshot(self) -> Any:
            return inner.snapshot()

        def restore(self, state: Any) -> None:
            inner.restore(state)

    inner = plant.policy
    plant.manager.policy = Watched()
    plant.run(120 * batches)
    assert all(reasons)
    assert reasons or "too little" not in memory


@pytest.mark.parametrize("policy", [FluxLoad, Auto])
def test_a_processor_hog_beside_one_of_two_sites_is_answered_once(policy: Any) -> None:
    """The hog takes a share that differs from batch to batch: 25 % noise. Before, 19 of 20 batches moved a group."""
    plant = Plant(policy=policy(), speed=(1.0, 0.5), groups=32, noise=0.25)
    before = unevenness(plant)
    assert rest(plant, 1)["move"] == 0
    assert 0 < plant.count("move") <= 6
    assert unevenness(plant) <= 1.45 < before


@pytest.mark.parametrize("policy", [FluxLoad, Auto])
def test_a_site_that_becomes_slow_after_a_long_rest_is_relieved(policy: Any) -> None:
    plant = Plant(policy=policy(), groups=64).run(300)
    assert plant.count("move", 21) == 0
    plant.speed = (1.0, 1.0, 1.0, 0.43)
    plant.run(40)
    assert plant.count("move", 301) > 0
    assert unevenness(plant) <= 1.6
    assert plant.run(200).count("move", 341) == 0


@pytest.mark.parametrize("name", ["LazyDisk", "ActiveDisk", "ForecastDisk"])
def test_a_move_that_waits_for_its_copy_is_not_taken_for_growth(name: str) -> None:
    """The group stays at its donor for some batches; nothing grows meanwhile, and nothing has to spill."""
    policy = DISK[name][0]()
    moved: list[Move] = []

    def report(placement: list[int], moving: list[bool], i: int) -> None:
        held = np.array([25.0, 60.0, 9.0, 1.0]) + 0.1 * i
        stats = Stats.build(
            sites=2, placement=placement, bytes=held, capacity=[100, 100], moving=moving, rows_out=[4, 3, 2, 1]
        )
        made = policy.suggest(stats, float(i))
        assert not [s for s in made if isinstance(s, Spill)]
        moved.extend(s for s in made if isinstance(s, Move))

    still = [False] * 4
    report([0, 0, 1, 1], still, 0)
    assert moved
    pgs, times = moved[0].pgs, len(moved)
    for i in range(1, 6):
        report([0, 0, 1, 1], [pg in pgs for pg in range(4)], i)
    assert len(moved) == times or name == "ForecastDisk"
    where = [moved[0].receiver if pg in pgs else site for pg, site in enumerate([0, 0, 1, 1])]
    report(where, still, 6)
    report(where, still, 7)
    growth = policy.snapshot()["growth"]
    assert max(growth) <= 0.4 + 1e-9


def test_memory_balancing_rests_where_windows_make_state_swing(tmp_path):
    """The engine itself as the plant: state with a window grows and falls as segments merge and expire."""
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    stage = ft.distinct(schema, "k", "ts", within="20 seconds")
    bench = ft.LocalEngine([stage], str(tmp_path), sites=2, partitions=32, memory=3_500, policy=FluxMemory)
    rng, weights = np.random.default_rng(7), 1 / np.arange(1, 201)
    for second in range(300):
        keys = rng.choice(200, 60, p=weights / weights.sum())
        times = pa.array(np.full(60, second * 1_000_000)).cast(pa.timestamp("us", "UTC"))
        bench.step(second, [pa.table([pa.array(keys), times], schema=schema)])
    moves = [event["epoch"] for event in bench.log.events() if event["kind"] == "move" and event["outcome"] == "done"]
    assert [epoch for epoch in moves if epoch > 100] == []
