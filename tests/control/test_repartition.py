"""Partitioning functions in a running query, without the query: loads in, tables out, and no more than needed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluxen as fx
import fluxen.testing as ft
from fluxen.control.adaptation import Adaptation
from fluxen.control.keys import placing
from fluxen.control.keys.hotkeys import HotKeys
from fluxen.control.keys.loads import BYTES, ROWS, WORK, balanced
from fluxen.control.keys.repartition import Repartitioner
from fluxen.control.moves.sizes import moved_bytes
from fluxen.policies.base import Rescale
from fluxen.state.epoch import StageState
from fluxen.state.record import GroupStats, HeavyKeys, SideStats, SiteRecord
from fluxen.state.routing import Routing

PARTITIONERS = [fx.UniformHash(), fx.ConsistentHash(), fx.Scan(), fx.Redist(), fx.Readj(), fx.Slotted()]
ROW = 100
"""Bytes of a row of state."""


class Stream:
    """Keys with shares, and what the sites of a table would report of a batch of them."""

    def __init__(self, shares: Any, rows: int, *, seed: int = 0, combined: int | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.keys = np.sort(self.rng.integers(-(2**63), 2**63 - 1, len(shares)))
        self.shares = self.rng.permutation(np.asarray(shares) / np.sum(shares))
        self.rows, self.combined = rows, combined
        self.held = np.zeros(len(shares))

    def batch(self, routing: Routing, epoch: int) -> list[SiteRecord]:
        rows = self.rng.poisson(self.rows * self.shares)
        arrived = rows if self.combined is None else np.minimum(rows, self.combined)
        self.held = 0.9 * self.held + arrived
        groups = routing.groups(self.keys)
        sites = routing.sites_of(groups)
        return [self._record(s, sites == s, rows, arrived, groups, routing.size, epoch) for s in range(routing.sites)]

    def _record(self, site: int, mine: Any, rows: Any, arrived: Any, groups: Any, size: int, epoch: int) -> SiteRecord:
        def summed(values: Any) -> list[int]:
            return np.bincount(groups[mine], weights=values[mine], minlength=size).astype(int).tolist()

        top = np.flatnonzero(mine)[np.argsort(-rows[mine], kind="stable")[:64]]
        top = top[rows[top] > 1]
        held = (self.held * ROW).astype(int)
        return SiteRecord(
            epoch=epoch,
            stage=0,
            site=site,
            sides=[SideStats(rows_in=int(rows[mine].sum()), state_rows=int(self.held[mine].sum()))],
            groups=GroupStats(
                group=list(range(size)),
                rows_in=summed(rows),
                rows_out=summed(arrived),
                worked=summed(arrived),
                arrived=summed(arrived),
                bytes=summed(held),
            ),
            heavy=HeavyKeys(
                key=self.keys[top].tolist(),
                rows=rows[top].tolist(),
                arrived=arrived[top].tolist(),
                bytes=held[top].tolist(),
            ),
        )


def uniform(keys: int = 1000) -> Any:
    return np.ones(keys)


def zipf(keys: int = 1000) -> Any:
    return 1.0 / np.arange(1, keys + 1)


def one_of_forty_percent(keys: int = 1000) -> Any:
    return np.append(np.full(keys - 1, 0.6 / (keys - 1)), 0.4)


class Stage:
    """A stage under a partitioner, stepped batch by batch; notes in which batches its table changed."""

    def __init__(
        self, partitioner: Any, stream: Stream, *, sites: int = 4, placement: Any = None, **options: Any
    ) -> None:
        partitions = options.pop("partitions", 64)
        self.adaptation = Adaptation(partitioner=partitioner, **options)
        routing = Routing.even(partitions=partitions, sites=sites)
        routing = self.adaptation.first(routing) if placement is None else routing.shared(placement)
        self.state = StageState(routing=routing, watermarks=(0,), emitted=(0,))
        self.stream, self.epoch = stream, 0
        self.changes: list[int] = []
        self.events: list[Any] = []

    def run(self, batches: int, requests: Any = ()) -> None:
        for _ in range(batches):
            before = self.state.routing
            records = self.stream.batch(before, self.epoch)
            self.state = self.adaptation.after(self.state, records, float(self.epoch), requests, epoch=self.epoch)
            if self.state.routing.to_json() != before.to_json():
                self.changes.append(self.epoch)
            self.events += self.adaptation.events()
            self.epoch += 1

    def loads(self) -> Any:
        routing = self.state.routing
        sites = routing.sites_of(routing.groups(self.stream.keys))
        return np.bincount(sites, weights=self.stream.shares, minlength=routing.sites)


@pytest.mark.long
@pytest.mark.parametrize("placement", [None, (0.55, 0.25, 0.15, 0.05)], ids=["equal", "unequal"])
@pytest.mark.parametrize("shares", [uniform, zipf, one_of_forty_percent])
@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=lambda p: type(p).__name__)
def test_nothing_changes_on_a_stationary_stream_once_it_is_balanced(partitioner, shares, placement):
    stage = Stage(partitioner, Stream(shares(), rows=4000), placement=placement)
    stage.run(220)
    assert [epoch for epoch in stage.changes if epoch >= 20] == []


@pytest.mark.parametrize(
    "partitioner", [fx.Scan(), fx.Redist(), fx.Readj(), fx.Slotted()], ids=lambda p: type(p).__name__
)
@pytest.mark.parametrize("shares", [zipf, one_of_forty_percent])
def test_what_can_be_balanced_is(partitioner, shares):
    stage = Stage(partitioner, Stream(shares(), rows=4000), placement=(0.55, 0.25, 0.15, 0.05))
    stage.run(20)
    best = max(stage.stream.shares.max(), 1 / 4)
    assert stage.loads().max() <= 1.15 * best


def test_a_hot_key_that_another_one_follows_is_followed():
    stage = Stage(fx.Readj(), Stream(one_of_forty_percent(), rows=4000))
    stage.run(60)
    first = int(stage.stream.keys[stage.stream.shares.argmax()])
    assert stage.loads().max() <= 0.42
    shares = np.roll(stage.stream.shares, 350)
    shares[stage.stream.shares.argmax()] = 0.0
    stage.stream.shares = shares
    second = int(stage.stream.keys[stage.stream.shares.argmax()])
    was = len(stage.changes)
    stage.run(60)
    assert len(stage.changes) > was
    assert stage.loads().max() <= 0.46
    assert second in stage.state.routing.explicit or stage.loads().max() <= 0.42
    assert first not in stage.state.routing.explicit  # it has cooled down


def test_guards_can_be_switched_off():
    stage = Stage(fx.Readj(), Stream(one_of_forty_percent(), rows=4000), guarded=False)
    stage.run(60)
    assert len([epoch for epoch in stage.changes if epoch >= 20]) > 5


def test_a_batch_larger_than_the_window_leaves_the_keys_of_all_sites_in_it():
    routing = Routing.even(partitions=8, sites=4)
    hot = HotKeys()
    keys = [int(-(2**63) + (2 * site + 1) * 2**61) for site in range(4)]
    for _ in range(3):
        records = [
            SiteRecord(
                epoch=0,
                stage=0,
                site=site,
                sides=[SideStats(rows_in=8_000_000)],
                groups=GroupStats(group=[2 * site], arrived=[8_000_000], rows_out=[0]),
                heavy=HeavyKeys(key=[keys[site]], rows=[3_000_000], arrived=[3_000_000], bytes=[0]),
            )
            for site in range(4)
        ]
        hot.observe(routing, records, 0.0)
    assert sorted(hot.frequent(routing).tolist()) == sorted(keys)
    assert hot.rows(np.array(keys)).tolist() == [3e6] * 4


def test_a_key_that_is_combined_before_it_travels_is_known_as_frequent_and_not_isolated_as_costly():
    stage = Stage(fx.Readj(), Stream(one_of_forty_percent(), rows=40_000, combined=4))
    stage.run(20)
    hottest = int(stage.stream.keys[stage.stream.shares.argmax()])
    repartitioner = stage.adaptation.repartitioner
    assert repartitioner is not None
    assert hottest in repartitioner.hot.frequent(stage.state.routing)
    assert repartitioner.hot.rows(np.array([hottest]))[0] == pytest.approx(4, rel=0.05)
    assert hottest not in stage.state.routing.explicit


def test_no_more_keys_are_isolated_than_allowed_whatever_ids_there_are(monkeypatch):
    monkeypatch.setattr(placing, "MAX_EXPLICIT", 3)
    stage = Stage(fx.Readj(), Stream(zipf(), rows=4000), sites=8)
    copies = np.append(stage.state.routing.table, np.zeros(40, dtype=np.int32))  # ids of moves that have ended
    routing = Routing.from_json({**stage.state.routing.to_json(), "table": copies.tolist()})
    stage.state = StageState(routing=routing, watermarks=(0,), emitted=(0,))
    stage.run(20)
    assert 0 < len(stage.state.routing.explicit) <= 3
    assert stage.state.routing.size == 64 + 40


def test_bytes_of_a_key_that_leaves_its_group_count_as_moved():
    before = Routing.even(partitions=4, sites=2)
    h = -(2**63) + 5  # of group 0, at site 0
    held = np.array([100.0, 10.0, 10.0, 10.0])
    after = before.isolated(h, 1)
    assert moved_bytes(before, after, held, {h: 70.0}) == 70
    assert moved_bytes(before, before.isolated(h, 0), held, {h: 70.0}) == 0
    rest = before.isolated(h, 0).moved(np.array([0], dtype=np.int32), 1)
    assert moved_bytes(before, rest, held, {h: 70.0}) == 30  # all of the group moves but the key
    assert moved_bytes(after, after.returned(h), np.append(held, 70.0), {}) == 70


def test_the_event_of_an_isolated_key_says_how_much_moved():
    stage = Stage(fx.Readj(), Stream(one_of_forty_percent(), rows=4000), placement=(0.25, 0.25, 0.25, 0.25))
    stage.run(20)
    [first, *_] = [event for event in stage.events if event["kind"] == "repartition"]
    assert first["bytes"] > 0
    assert "rows" in first["why"]


@pytest.mark.parametrize("sites", [6, 3])
def test_a_restart_with_other_sites_goes_through_the_partitioner_and_keeps_isolated_keys(sites):
    stage = Stage(fx.Slotted(), Stream(zipf(), rows=4000))
    stage.run(20)
    before = stage.state.routing
    assert len(before.explicit)
    restarted = Adaptation(partitioner=fx.Slotted())
    restarted.restore(json.loads(json.dumps(stage.adaptation.snapshot())))
    stage.state = restarted.resumed(stage.state, sites)
    assert stage.state.routing.own_groups() == before.own_groups()
    assert len(stage.loads()) == sites
    assert stage.loads().max() <= 1.1 * max(stage.stream.shares.max(), 1 / sites)


@pytest.mark.parametrize("partitioner", PARTITIONERS[2:], ids=lambda p: type(p).__name__)
def test_a_restart_goes_on_where_it_was(partitioner):
    stages = [Stage(partitioner, Stream(zipf(), rows=4000, seed=3)) for _ in range(2)]
    stages[0].run(12)
    stages[1].run(2)
    again = Adaptation(partitioner=partitioner)
    again.restore(json.loads(json.dumps(stages[1].adaptation.snapshot())))
    stages[1].adaptation = again
    stages[1].run(10)
    assert stages[0].changes
    assert stages[0].state.routing.to_json() == stages[1].state.routing.to_json()


def test_what_is_kept_of_a_stream_stays_small():
    stage = Stage(fx.Readj(), Stream(zipf(20_000), rows=50_000), sites=8)
    sizes = []
    for _ in range(4):
        stage.run(30)
        sizes.append(len(json.dumps(stage.adaptation.snapshot()["repartitioner"])))
    assert max(sizes) < 60_000
    assert sizes[-1] < 1.2 * sizes[1]


def test_resources_follow_from_the_operator():
    schema = pa.schema([("k", pa.int64())])
    join = ft.join({"a": schema, "b": schema}, on="k").stage.operator
    running = ft.aggregate(schema, "k", n=fx.count()).stage.operator
    assert balanced(join.resources) == (ROWS, WORK, BYTES)
    assert balanced(running.resources) == (ROWS,)
    assert Repartitioner(fx.Readj(), operator=join).resources == (ROWS, WORK, BYTES)


@pytest.mark.parametrize("partitioner", [fx.Slotted(), fx.Readj()], ids=lambda p: type(p).__name__)
def test_a_rescale_moves_little_more_than_it_must_departing_keys_included(partitioner):
    last = ft.aggregate(pa.schema([("k", pa.int64())]), "k", n=fx.count(), last=3).stage.operator
    stage = Stage(partitioner, Stream(zipf(2000), rows=1000), operator=last, partitions=256)
    stage.run(5)
    for sites, least in ((7, 3 / 7), (5, 2 / 7)):
        isolated = len(stage.state.routing.explicit)
        held = stage.stream.held.sum() * ROW
        stage.run(1, [Rescale(sites=sites, why="test")])
        [event] = [event for event in stage.events if event["kind"] == "rescale" and f"{sites} sites" in event["what"]]
        assert 0.8 * least * held < event["bytes"] < 1.5 * least * held
        assert len(stage.state.routing.explicit) > isolated or sites == 5
        stage.run(5)


def test_beside_a_policy_that_moves_groups_a_partitioner_only_isolates_keys():
    class Mover(fx.Policy):
        def suggest(self, stats: Any, now: float) -> Any:
            return ()

    stream = Stream(one_of_forty_percent(), 20_000)
    alone = Stage(fx.Readj(), stream, placement=(0.4, 0.2, 0.2, 0.2))
    beside = Stage(fx.Readj(), Stream(one_of_forty_percent(), 20_000), placement=(0.4, 0.2, 0.2, 0.2), policy=Mover())
    before = beside.state.routing
    alone.run(20)
    beside.run(20)
    after = beside.state.routing
    assert not np.array_equal(alone.state.routing.table[: before.partitions], before.table)
    assert np.array_equal(after.table[: before.partitions], before.table)
    assert len(after.explicit)
    assert beside.adaptation.repartitioner.keys_only
    assert not Adaptation(policy=fx.LocalDisk(), partitioner=fx.Readj()).repartitioner.keys_only
