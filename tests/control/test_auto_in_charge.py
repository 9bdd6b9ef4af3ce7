"""Auto in charge of a stage, without the query: its suggestions are carried out, logged and kept across restarts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluxen as fx
import fluxen.testing as ft
from fluxen.control.adaptation import Adaptation
from fluxen.control.plans.replanning import StagePlans
from fluxen.control.stats import collect
from fluxen.engine.adapting import adaptations
from fluxen.engine.options import AdaptOptions
from fluxen.errors import ConfigError
from fluxen.policies import Auto, FluxLoad, Static
from fluxen.policies.base import Move, Replan, Rescale, Suggestion
from fluxen.state.epoch import StageState
from fluxen.state.record import GroupStats, HeavyKeys, SideStats, SiteRecord
from fluxen.state.routing import Routing
from fluxen.state.trees import Trees

ROWS = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
STAGE = ft.distinct(ROWS, by="k", time="ts").stage
TWO = ft.join({"a": ROWS, "b": ROWS}, on="k", time="ts", within="1 minute").stage


class Keys:
    """So many rows of each key per batch, and sites that take a microsecond for each."""

    def __init__(self, rows: dict[int, int]) -> None:
        self.keys = np.array(sorted(rows), dtype=np.int64)
        self.rows = np.array([rows[key] for key in sorted(rows)])

    def records(self, routing: Routing, epoch: int, asked: bool) -> list[SiteRecord]:
        groups = routing.groups(self.keys)
        sites = routing.sites_of(groups)
        made = []
        for site in range(routing.sites):
            mine = sites == site
            counts = np.bincount(groups[mine], weights=self.rows[mine], minlength=routing.size).astype(int).tolist()
            named = self.keys[mine] if asked else self.keys[:0]
            amounts = self.rows[mine].tolist() if asked else []
            made.append(
                SiteRecord(
                    epoch=epoch,
                    stage=0,
                    site=site,
                    sides=[SideStats(rows_in=sum(counts))],
                    groups=GroupStats(
                        group=list(range(routing.size)), rows_in=counts, worked=counts, rows_out=counts, arrived=counts
                    ),
                    heavy=HeavyKeys(
                        key=named.tolist(),
                        rows=amounts,
                        arrived=amounts,
                        bytes=[0] * len(amounts),
                        inputs=[[n, 0] for n in amounts],
                    ),
                    seconds={"operator": sum(counts) * 1e-6},
                )
            )
        return made


class Driven:
    def __init__(self, keys: Keys, **options: Any) -> None:
        self.keys, self.options, self.epoch = keys, options, 0
        self.adaptation = self.fresh()
        self.state = StageState(routing=Routing.even(partitions=8, sites=2), watermarks=(0,), emitted=(0,))
        self.events: list[Any] = []

    def fresh(self) -> Adaptation:
        return Adaptation(**{"policy": Auto(min_collection=0.5), "operator": STAGE.operator, **self.options})

    def run(self, batches: int, *requests: Suggestion, restarts: bool = False) -> Driven:
        for number in range(batches):
            records = self.keys.records(self.state.routing, self.epoch, self.adaptation.asks_for_keys)
            asked = requests if number == 0 else ()
            self.state = self.adaptation.after(self.state, records, float(self.epoch), asked, epoch=self.epoch)
            self.events += self.adaptation.events()
            self.epoch += 1
            if restarts:
                again = self.fresh()
                again.restore(json.loads(json.dumps(self.adaptation.snapshot())))
                self.adaptation = again
        return self

    def busiest(self) -> float:
        """The busiest site's share of the rows."""
        sites = self.state.routing.sites_of(self.state.routing.groups(self.keys.keys))
        return float(np.bincount(sites, weights=self.keys.rows).max() / self.keys.rows.sum())


def two_hot_keys() -> Keys:
    """Both in the first partition group, with nearly all rows."""
    low = -(2**63)
    others = {low + 2**61 + n * 2**58: 500 for n in range(50)}
    return Keys({low + 5: 50_000, low + 9: 45_000, **others})


def test_of_two_hot_keys_that_share_a_group_one_is_isolated_and_moves():
    driven = Driven(two_hot_keys())
    assert driven.busiest() > 0.85
    driven.run(30)
    assert len(driven.state.routing.explicit) == 1
    assert driven.busiest() < 0.65
    kinds = [event["kind"] for event in driven.events if event["outcome"] == "done"]
    assert kinds.index("repartition") < len(kinds) - 1 - kinds[::-1].index("move")
    isolated = next(event for event in driven.events if event["kind"] == "repartition")
    assert isolated["why"].startswith("saves 0.0")
    assert [event for event in driven.events if event["outcome"] in ("refused", "failed")] == []


def test_a_key_that_could_not_be_isolated_because_of_a_rescale_is_isolated_later():
    low = -(2**63)
    keys = (
        {low + 5: 50_000} | {low + 10 + n: 200 for n in range(150)} | {low + 2**61 + n * 2**58: 500 for n in range(50)}
    )
    undisturbed = Driven(Keys(keys)).run(30)
    [when] = [int(event["when"]) for event in undisturbed.events if event["kind"] == "repartition"]
    driven = Driven(Keys(keys)).run(when).run(40, Rescale(sites=3, why="by hand"))
    outcomes = [
        (event["kind"], event["outcome"]) for event in driven.events if event["kind"] in ("rescale", "repartition")
    ]
    assert {("rescale", "done"), ("repartition", "refused"), ("repartition", "done")} <= set(outcomes)
    assert len(driven.state.routing.explicit) == 1


def test_restarts_change_nothing():
    straight, stopping = Driven(two_hot_keys()).run(40), Driven(two_hot_keys()).run(40, restarts=True)
    assert stopping.state.routing.to_json() == straight.state.routing.to_json()
    told = [(event["what"], event["why"]) for event in straight.events]
    assert [(event["what"], event["why"]) for event in stopping.events] == told


def test_predictions_are_compared_with_what_came_of_them():
    driven = Driven(two_hot_keys()).run(60)
    compared = [event for event in driven.events if event["kind"] == "prediction"]
    assert compared
    assert all(event["detail"]["found"] == pytest.approx(event["detail"]["predicted"], rel=0.1) for event in compared)
    assert driven.adaptation.manager.policy.predictions


def test_beside_a_partitioner_nothing_moves_and_no_key_is_asked_for():
    driven = Driven(two_hot_keys(), policy=Auto(relocates=False), partitioner=fx.ConsistentHash()).run(30)
    assert not driven.adaptation.asks_for_keys
    assert [event for event in driven.events if event["kind"] == "move"] == []


# ---- a key that is more than a site should do


class Halves(Keys):
    """Keys whose rows are all of the first input: each member of a family has its part of them."""

    def records(self, routing: Routing, epoch: int, asked: bool) -> list[SiteRecord]:
        whole = self.keys, self.rows
        for family in routing.families:
            at = int(np.flatnonzero(self.keys == family.h)[0])
            each = self.rows[at] // len(family.members)
            self.keys = np.append(np.delete(self.keys, at), family.members)
            self.rows = np.append(np.delete(self.rows, at), [each] * len(family.members))
        made = super().records(routing, epoch, asked)
        self.keys, self.rows = whole
        return [replace(record, heavy=self.headed(routing, record.heavy)) for record in made]

    @staticmethod
    def headed(routing: Routing, heavy: HeavyKeys) -> HeavyKeys:
        """Sites name a member by its key."""
        return replace(heavy, key=routing.heads(np.array(heavy.key, dtype=np.int64)).tolist())


HOT = -(2**63) + 5


def one_hot_key(rows: int) -> Halves:
    return Halves({HOT: rows} | {-(2**63) + 2**59 + n * 2**57: 500 for n in range(100)})


def of(driven: Driven, kind: str) -> list[int]:
    return [int(event["when"]) for event in driven.events if (event["kind"], event["outcome"]) == (kind, "done")]


def dealing(rows: int = 200_000, **options: Any) -> Driven:
    driven = Driven(one_hot_key(rows), operator=TWO.operator, **options)
    driven.state = StageState(routing=driven.state.routing, watermarks=(0, 0), emitted=(0, 0))
    return driven


@pytest.mark.parametrize("restarts", [False, True])
def test_a_key_that_is_nearly_all_of_the_work_is_dealt_and_merged_when_it_has_cooled(restarts):
    driven = dealing()
    driven.run(30, restarts=restarts)
    assert len(of(driven, "split")) == 1
    [family] = driven.state.routing.families
    assert (family.h, family.dealt, len(set(driven.state.routing.table[driven.state.routing.members(family)]))) == (
        HOT,
        0,
        2,
    )
    assert driven.adaptation.asks_for_keys
    driven.keys = one_hot_key(10)
    driven.run(40, restarts=restarts)
    assert len(of(driven, "merge")) == 1
    assert driven.state.routing.families == ()
    driven.run(200, restarts=restarts)
    assert (len(of(driven, "split")), len(of(driven, "merge"))) == (1, 1)
    assert not driven.adaptation.asks_for_keys
    assert driven.adaptation.snapshot()["repartitioner"] is None
    assert len(driven.state.routing.explicit) == 0


def test_a_key_that_cannot_be_dealt_is_not_asked_for_for_ever():
    driven = Driven(one_hot_key(200_000)).run(60)
    assert of(driven, "split") == []
    isolated = dealing(policy=Static()).run(60)
    assert of(isolated, "split") == []
    assert not isolated.adaptation.asks_for_keys


# ---- after a restart


def test_another_policy_after_a_restart_knows_what_is_under_way():
    driven = Driven(two_hot_keys(), remote=True, policy=FluxLoad(min_collection=0.5))
    driven.run(8)
    waiting = driven.adaptation.manager.submit(
        [Move(pgs=(7,), donor=1, receiver=0, why="by hand")], collect(driven.state, []), 8.0
    )
    driven.adaptation.manager.wait(waiting[0].id)
    again = Adaptation(policy=Auto(), operator=STAGE.operator)
    again.restore(json.loads(json.dumps(driven.adaptation.snapshot())))
    assert [action.id for action in again.manager.running] == [waiting[0].id]
    before = [event["id"] for event in driven.events]
    driven.adaptation = again
    driven.adaptation.manager.finish(waiting[0].id, 9.0)
    driven.run(30)
    fresh = [event["id"] for event in driven.events[len(before) :] if event["kind"] != "relocation"]
    assert min(fresh) > max(event for event in before if event)


# ---- policies of users


TREES = ft.join(dict.fromkeys("abc", ROWS), on="k", time="ts", within="1 minute", plan="tree").stage


@pytest.mark.parametrize(
    ("stage", "suggestion", "reason"),
    [
        (STAGE, Rescale(sites=9, why=""), "there are 8 partitions"),
        (STAGE, Replan(site=0, tree="(0 1)", why=""), "no join tree"),
        (TREES, Replan(site=0, tree="(0 1)", why=""), "joins 2 inputs of 3"),
        (TREES, Replan(site=0, tree="a tree", why=""), "is not a join tree"),
    ],
)
def test_what_a_policy_asks_for_in_vain_fails_and_the_query_goes_on(stage: Any, suggestion: Any, reason: str):
    driven = Driven(two_hot_keys(), operator=stage.operator, policy=Static(), planning=StagePlans(stage.operator))
    if stage.operator.plans is not None:
        driven.state = replace(driven.state, trees=Trees.start(stage.operator.plans.start, driven.state.routing))
    before = driven.state
    driven.run(1, suggestion)
    assert (driven.state.routing.to_json(), driven.state.trees) == (before.routing.to_json(), before.trees)
    [event] = driven.events
    assert event["outcome"] == "failed"
    assert reason in event["reason"]


# ---- options


def policy_of(**options: Any) -> Any:
    (made,) = adaptations([TWO], AdaptOptions(**options), cores=4)
    return made.manager.policy


def test_auto_decides_where_nobody_says_otherwise():
    assert isinstance(policy_of(), Auto)
    assert isinstance(policy_of(policy="auto"), Auto)
    assert isinstance(policy_of(sites="auto"), Auto)
    assert isinstance(policy_of(policy="static"), Static)
    assert isinstance(policy_of(policy=fx.FluxLoad()), FluxLoad)


def test_sites_are_bounded_by_the_option_the_cores_and_the_partitions():
    assert AdaptOptions(sites=3).bounds(4) is None
    assert AdaptOptions(sites="auto").bounds(4) == (1, 4)
    assert AdaptOptions(sites=(2, 8)).bounds(4) == (2, 4)
    assert AdaptOptions(sites=(6, 8)).bounds(4) == (6, 6)
    assert AdaptOptions(sites=[1, 64], partitions=16).bounds(32) == (1, 16)
    assert AdaptOptions(sites=(6, 8)).first_sites(4) == 6
    assert AdaptOptions(sites=(1, 2)).first_sites(4) == 2
    assert AdaptOptions().first_sites(4) == 4
    assert AdaptOptions(sites=3).first_sites(4) == 3


@pytest.mark.parametrize("bad", ["some", (0, 4), (4, 2), (1, 2, 3), (1.0, 2), True])
def test_sites_that_mean_nothing_are_refused(bad: Any):
    with pytest.raises(ConfigError, match="sites must be"):
        AdaptOptions(sites=bad)


def test_each_stage_has_a_policy_of_its_own():
    first, second = adaptations([TWO, STAGE], replace(AdaptOptions(), sites="auto", policy=Auto()), cores=4)
    assert first.manager.policy is not second.manager.policy
