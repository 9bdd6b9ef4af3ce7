"""Every policy, found automatically, meets the same contract."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
import pkgutil
from typing import Any

import numpy as np
import pytest

import fluxen.policies
from fluxen.control import Limits, Manager, next_placement
from fluxen.policies.base import Policy, Stats, decode, encode

POLICIES = {kind.__name__: kind for kind in fluxen.policies.POLICIES.members.values()}
SITES, GROUPS = 6, 48


def reports(count: int, seed: int = 3) -> list[Stats]:
    """A stage with busy and idle, full and roomy sites; the placement is filled in by the caller."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        busy = np.clip(np.linspace(1.0, 0.2, SITES) + rng.normal(0, 0.05, SITES), 0, 1)
        held = rng.integers(1, 100, GROUPS).astype(float)
        spilled = np.where(rng.random(GROUPS) < 0.1, held, 0.0)
        made.append(
            Stats.build(
                sites=SITES,
                placement=np.arange(GROUPS) % SITES,
                rows_in=rng.integers(0, 1000, GROUPS),
                rows_out=rng.integers(0, 1000, GROUPS),
                busy=busy,
                idle=1 - busy,
                bytes=np.where(spilled > 0, 0.0, held),
                spilled=spilled,
                capacity=np.linspace(200, 2000, SITES),
            )
        )
    return made


def drive(policy: Policy, stats: list[Stats]) -> list[Any]:
    """Run a policy under a manager that completes every move one report later; what it decided at each report."""
    table = np.arange(GROUPS) % SITES
    manager = Manager(policy=policy, limits=Limits(rotation=True))
    log = []
    for i, report in enumerate(stats):
        for action in manager.running:
            table = next_placement(np.arange(GROUPS), table, [action])
            manager.finish(action.id, now=float(i))
        values = {f: getattr(report, f) for f in report.__slots__ if not f.startswith("site_")}
        actions = manager.step(Stats.build(sites=SITES, **{**values, "placement": table}), now=float(i))
        log.append([encode(action.suggestion) for action in actions])
    return log


def test_every_policy_of_the_package_is_registered() -> None:
    found = set()
    for module in pkgutil.walk_packages(fluxen.policies.__path__, "fluxen.policies."):
        loaded = importlib.import_module(module.name)
        mine = [cls for cls in vars(loaded).values() if inspect.isclass(cls) and cls.__module__ == loaded.__name__]
        found |= {cls for cls in mine if issubclass(cls, Policy) and not inspect.isabstract(cls)}
    assert found == set(POLICIES.values())


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_is_a_special_case_of_another(name: str) -> None:
    assert not [base for base in POLICIES[name].__mro__[1:] if base in POLICIES.values()]


@pytest.mark.parametrize("name", POLICIES)
def test_it_is_a_policy(name: str) -> None:
    assert isinstance(POLICIES[name](), Policy)


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_reports_give_the_same_suggestions(name: str) -> None:
    first, again = drive(POLICIES[name](), reports(30)), drive(POLICIES[name](), reports(30))
    assert first == again
    assert any(first) == (name != "Static")


@pytest.mark.parametrize("name", POLICIES)
def test_it_suggests_only_what_a_manager_accepts(name: str) -> None:
    """On a stage at rest, with nothing in flight, no suggestion names a wrong owner, site or group."""
    policy = POLICIES[name]()
    manager = Manager(policy=policy, limits=Limits(rotation=True))
    for i, report in enumerate(reports(20)):
        for action in manager.step(report, now=float(i)):
            manager.finish(action.id, now=float(i), error="not carried out")
    assert [event.reason for event in manager.events if event.outcome == "refused"] == []


@pytest.mark.parametrize("name", POLICIES)
def test_snapshot_and_restore_equals_never_stopped(name: str) -> None:
    stats = reports(30)
    straight, stopping = POLICIES[name](), POLICIES[name]()
    expected, got = [], []
    for i, report in enumerate(stats):
        expected.append([encode(s) for s in straight.suggest(report, float(i))])
        fresh = POLICIES[name]()
        fresh.restore(json.loads(json.dumps(stopping.snapshot())))
        stopping = fresh
        got.append([encode(s) for s in stopping.suggest(report, float(i))])
    assert got == expected


@pytest.mark.parametrize("name", POLICIES)
def test_its_snapshot_does_not_grow_with_time(name: str) -> None:
    policy = POLICIES[name]()
    sizes = []
    for i, report in enumerate(reports(120)):
        policy.suggest(report, float(i))
        sizes.append(len(json.dumps(policy.snapshot())))
    assert max(sizes[60:]) <= 1.5 * max(sizes[:60])


@pytest.mark.parametrize("name", POLICIES)
def test_it_pickles(name: str) -> None:
    policy = POLICIES[name]()
    for i, report in enumerate(reports(5)):
        policy.suggest(report, float(i))
    assert pickle.loads(pickle.dumps(policy)).snapshot() == policy.snapshot()


@pytest.mark.parametrize("name", POLICIES)
def test_a_single_idle_site_and_a_stage_without_groups_are_left_alone(name: str) -> None:
    for stats in (Stats.build(sites=1, placement=[0, 0]), Stats.build(sites=3, placement=[])):
        policy = POLICIES[name]()
        for now in range(5):
            assert list(policy.suggest(stats, float(now))) == []


@pytest.mark.parametrize("name", POLICIES)
def test_it_survives_a_change_of_sites_and_groups(name: str) -> None:
    policy = POLICIES[name]()
    for i, report in enumerate(reports(4)):
        policy.suggest(report, float(i))
    bigger = Stats.build(
        sites=9,
        placement=np.arange(50) % 9,
        pg=[*range(48), 5000, 5001],
        rows_in=np.arange(50),
        busy=np.linspace(0.1, 1, 9),
        idle=1 - np.linspace(0.1, 1, 9),
    )
    for now in range(4, 10):
        for suggestion in policy.suggest(bigger, float(now)):
            assert decode(json.loads(json.dumps(encode(suggestion)))) == suggestion
