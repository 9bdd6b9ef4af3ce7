"""The simulated cluster behaves like the one in the paper, in small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fluxen.control import Action
from fluxen.policies import FluxHybrid, FluxLoad, FluxMemory, Random, Static
from fluxen.policies.base import Move, Policy
from fluxen.sim.cluster import Cluster
from fluxen.sim.load import CpuLoad, MemoryLoad, self_similar, zipf
from fluxen.sim.simulator import Result, Scenario, Simulator

pytestmark = pytest.mark.long

SMALL = Cluster(sites=4, groups_per_site=8)


def run(policy: Policy | None = None, **values: Any) -> Result:
    return Simulator(
        Scenario(**{"cluster": SMALL, "seconds": 3.0, "seed": 1, **values}), policy=policy or Static()
    ).run()


def test_an_undisturbed_cluster_works_at_its_peak() -> None:
    assert run().throughput == pytest.approx(SMALL.peak, rel=0.02)


def test_without_a_buffer_one_slow_site_sets_everybodys_pace() -> None:
    slow = run(cluster=replace(SMALL, buffer_tuples=0), loads=(CpuLoad(sites=(2,), share=0.4),))
    assert slow.throughput[-1] == pytest.approx(0.4 * SMALL.peak, rel=0.06)


def test_a_buffer_hides_a_slow_site_until_it_is_full() -> None:
    loads = (CpuLoad(sites=(2,), share=0.4),)
    result = run(cluster=replace(SMALL, buffer_tuples=5_000), loads=loads, seconds=8.0)
    assert result.throughput[0] > 0.8 * SMALL.peak
    assert result.throughput[-1] == pytest.approx(0.4 * SMALL.peak, rel=0.06)


def test_the_same_seed_gives_the_same_run_and_another_seed_another_one() -> None:
    values: dict[str, Any] = {"keys": "zipf", "loads": (CpuLoad(sites=(0,)),)}
    first, again, other = (run(FluxLoad(min_collection=0.05), **values, seed=s) for s in (1, 1, 2))
    assert first.throughput.tolist() == again.throughput.tolist()
    assert first.events == again.events
    assert first.throughput.tolist() != other.throughput.tolist()


@pytest.mark.parametrize("policy", [Static(), Random(moves=2), FluxLoad(), FluxMemory(), FluxHybrid()])
def test_no_tuple_and_no_group_is_lost_whatever_moves_and_spills(policy: Policy) -> None:
    cluster = replace(SMALL, memory=10e6)
    loads = (CpuLoad(sites=(0,)), MemoryLoad(sites=(1,), at=0.5, memory=3e6))
    simulator = Simulator(Scenario(cluster=cluster, seconds=4.0, loads=loads, seed=3), policy=policy)
    result = simulator.run()
    flow = simulator.flow
    held = flow.buffered.sum() + flow.open.sum() + flow.queued.sum() + flow.spool.sum()
    done = result.throughput.sum()  # one value per second
    assert done + held == pytest.approx(flow.produced, rel=1e-6)
    assert flow.buffered.min() >= -1e-6
    assert flow.buffered.sum() <= cluster.buffer * (1 + 1e-6)
    assert flow.in_queue.max() <= cluster.site_queue * (1 + 1e-6)
    assert len(result.placement) == cluster.groups
    assert ((result.placement >= 0) & (result.placement < 4)).all()


def test_load_balancing_recovers_what_static_loses() -> None:
    loads = (CpuLoad(sites=(0,)),)
    static = run(loads=loads, seconds=12.0)
    balanced = run(FluxLoad(min_collection=0.05), loads=loads, seconds=12.0)
    assert static.steady(3) < 0.5 * SMALL.peak
    assert balanced.steady(3) > 0.75 * SMALL.peak


def test_a_move_takes_at_least_the_time_its_bytes_need_and_the_others_go_on() -> None:
    simulator = Simulator(Scenario(cluster=SMALL, seconds=2.0), policy=Static())
    move = Move(pgs=(0,), donor=0, receiver=1, why="")
    simulator.moves.begin(Action(id=1, suggestion=move, started=0.0, bytes=0))
    running = np.ones(4, dtype=bool)
    for k in range(1, 1000):
        taken = simulator.flow.step(k * 2e-3, 2e-3, np.ones(4), running)
        if simulator.moves.step(k * 2e-3, 2e-3, taken, running):
            break
    assert SMALL.group_bytes / SMALL.pair_bandwidth < k * 2e-3 < 0.2
    assert simulator.flow.site[0] == 1
    assert simulator.flow.processed == pytest.approx(SMALL.peak * k * 2e-3, rel=0.1)


def test_many_moves_at_once_share_the_network() -> None:
    simulator = Simulator(Scenario(cluster=replace(SMALL, total_bandwidth=1e6)), policy=Static())
    for site in (0, 2):
        move = Move(pgs=(site,), donor=site, receiver=site + 1, why="")
        simulator.moves.begin(Action(id=site + 1, suggestion=move, started=0.0, bytes=0))
    running, done = np.ones(4, dtype=bool), 0
    for k in range(1, 3000):
        taken = simulator.flow.step(k * 2e-3, 2e-3, np.ones(4), running)
        done += len(simulator.moves.step(k * 2e-3, 2e-3, taken, running))
        if done == 2:
            break
    assert k * 2e-3 == pytest.approx(2 * SMALL.group_bytes / 1e6, rel=0.1)


def test_memory_pressure_spills_exactly_what_does_not_fit_and_every_group_gets_its_turn() -> None:
    cluster = replace(SMALL, memory=8 * 800_000)
    loads = (MemoryLoad(sites=(0,), at=0.1, memory=5 * 800_000),)
    simulator = Simulator(Scenario(cluster=cluster, loads=loads, seconds=6.0), policy=Static())
    away = set()
    for k in range(1, 3001):
        simulator._advance(k * 2e-3, 2e-3)
        away |= set(np.flatnonzero(simulator.flow.on_disk).tolist())
    assert simulator.flow.on_disk.sum() == 3
    assert (simulator.flow.site[simulator.flow.on_disk] == 0).all()
    assert away == set(np.flatnonzero(simulator.flow.site == 0).tolist())


def test_memory_policy_brings_everything_back_into_memory_and_latency_down() -> None:
    cluster = replace(SMALL, memory=12 * 800_000)
    loads = (MemoryLoad(sites=(0,), at=0.5, memory=5 * 800_000),)
    static = run(cluster=cluster, loads=loads, seconds=10.0)
    moved = run(FluxMemory(min_collection=0.05), cluster=cluster, loads=loads, seconds=10.0)
    assert static.latency[-3:].mean() > 100 * SMALL.service_time
    assert moved.latency[-3:].mean() == pytest.approx(SMALL.service_time, rel=0.05)
    assert moved.steady(3) > static.steady(3)


def test_a_site_that_waits_for_its_disk_delays_the_coordinator() -> None:
    cluster = replace(SMALL, group_bytes=6e6, memory=8 * 6e6)
    quiet = Simulator(Scenario(cluster=cluster, seconds=2.0), policy=Static(), clock=lambda: 0.0).run()
    loads = (MemoryLoad(sites=(0,), at=0.0, memory=6e6),)
    pressed = Simulator(Scenario(cluster=cluster, seconds=2.0, loads=loads), policy=Static(), clock=lambda: 0.0).run()
    assert len(pressed.decisions) < 0.3 * len(quiet.decisions)


def test_skewed_keys_add_up_and_are_skewed() -> None:
    for shares in (self_similar(64), zipf(64)):
        assert shares.sum() == pytest.approx(1)
        assert shares.max() > 4 / 64


def test_a_larger_cluster_needs_no_pairwise_state() -> None:
    cluster = Cluster(sites=600, total_groups=1500, packet_tuples=1, connection_tuples=2)
    result = run(FluxLoad(), cluster=cluster, seconds=0.2, step=0.02, report=0.02, loads=(CpuLoad(sites=(3,)),))
    assert result.throughput[-1] > 0.3 * cluster.peak
