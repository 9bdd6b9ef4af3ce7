"""Re-planning per site and moves between unlike plans, decided by the real control loop, run in the bench."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluxen.testing as ft
from fluxen.control import collect
from fluxen.control.adaptation import Adaptation
from fluxen.control.plans.optimizer import Costs, Observed, Optimizer, best_tree, price
from fluxen.control.plans.replanning import MSLB_STEPS, PTLB_STEPS, StagePlans
from fluxen.errors import ConfigError
from fluxen.operators.aggregate import functions as fx
from fluxen.policies.base import Move
from fluxen.policies.random import Random
from fluxen.state.epoch import StageState
from fluxen.state.record import GroupStats, SideStats, SiteRecord, read_records
from fluxen.state.routing import Routing
from fluxen.state.trees import height, intermediates, read, write
from fluxen.testing import oracle

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])
NAMES = ("a", "b", "c")


def rows(rng: np.random.Generator, count: int, start: float, seconds: float, keys: int = 5) -> pa.Table:
    times = np.sort(rng.integers(int(start * 1e6), int((start + seconds) * 1e6), count))
    return pa.table(
        {
            "k": rng.integers(0, keys, count),
            "ts": pa.array(times).cast(TIME),
            "v": rng.integers(0, 1000, count),
        },
        schema=SCHEMA,
    )


class Story:
    """A bench whose epochs the control loop adapts, and everything that was emitted."""

    def __init__(self, directory: Any, stage: ft.LocalStage, policy: Any = None, **planning: Any) -> None:
        self.results: list[dict[str, Any]] = []
        self.planning = StagePlans(stage.stage.operator, **planning)
        self.adaptation = Adaptation(policy=policy, planning=self.planning)
        self.requests: list[Any] = []
        self.events: list[dict[str, Any]] = []
        self.given: list[list[pa.Table]] = []
        self.bench = ft.LocalEngine(
            [stage],
            str(directory),
            sites=2,
            partitions=4,
            sink=lambda _, t: self.results.extend(t.to_pylist()),
            replan=False,  # the story's own adaptation decides
        )

    def step(self, *tables: pa.Table) -> None:
        def adapt(stage: int, state: Any, epoch: int) -> Any:
            found = read_records(self.bench.store, epoch)
            records = [found[0, site] for site in range(state.routing.sites)]
            requests, self.requests = self.requests, []
            state = self.adaptation.after(state, records, float(epoch), requests, seconds=1.0, epoch=epoch)
            self.events += self.adaptation.events()
            return state

        self.given.append(list(tables))
        self.bench.step(len(self.given) - 1, list(tables), change=adapt)

    @property
    def state(self) -> Any:
        return self.bench.epoch.stages[0]

    def messages(self, kind: str) -> list[str]:
        return [event["detail"]["message"] for event in self.events if event["kind"] == kind]

    def check_join(self, within: float) -> None:
        inputs = {name: [batch[i] for batch in self.given] for i, name in enumerate(NAMES)}
        expected = oracle.join(
            inputs,
            {name: ["k"] for name in NAMES},
            dict.fromkeys(NAMES, "ts"),
            lambda times: max(times.values()) - min(times.values()) <= within * 1e6,
        )
        assert Counter(oracle.canonical_rows(self.results)) == Counter(oracle.canonical_rows(expected))


def joined(within: str = "10 seconds", tree: str = "") -> ft.LocalStage:
    return ft.join(dict.fromkeys(NAMES, SCHEMA), "k", "ts", within=within, plan="tree", tree=tree)


def run_slowing(story: Story, batches: int, *, slow_from: int) -> None:
    """All inputs at one rate, then b and c slow down, as in Zhu and Rundensteiner, section 5.2."""
    rng = np.random.default_rng(7)
    for number in range(batches):
        few = 1 if number >= slow_from else 8
        story.step(*(rows(rng, count, number, 1.0) for count in (8, few, few)))


@pytest.mark.long
def test_sites_join_the_slow_inputs_first_once_they_are_slow(tmp_path):
    story = Story(tmp_path, joined(tree="((0 1) 2)"), replan=Optimizer(cooldown=2.0))
    run_slowing(story, 30, slow_from=12)
    assert set(story.state.trees.sites) == {"(0 (1 2))"}
    assert any(event["kind"] == "replan" and "(a (b c)) costs" in event["why"] for event in story.events)
    story.check_join(10)


def test_a_site_keeps_its_tree_while_the_gain_is_small_or_it_rests():
    even = {str(mask): 1.0 for mask in range(1, 8)}
    optimizer = Optimizer(gain=0.3, cooldown=5.0, weight=1.0)
    seen = Observed((10.0, 9.0, 9.0), (even, even, even), (50.0, 50.0, 50.0))
    optimizer.observe(0, seen.to_json())
    assert optimizer.suggest(0, "((0 1) 2)", 0.0) is None
    skewed = Observed((100.0, 1.0, 1.0), (even, even, even), (50.0, 50.0, 50.0))
    optimizer.observe(0, skewed.to_json())
    assert optimizer.suggest(0, "((0 1) 2)", 0.0) is not None
    optimizer.changed(0, 0.0)
    assert optimizer.suggest(0, "((0 1) 2)", 4.0) is None
    assert optimizer.suggest(0, "((0 1) 2)", 5.0) is not None


def test_intermediate_results_that_are_rarely_reused_are_not_kept():
    # a finds ten rows of b and of c, but hardly ever both: the m-way join drops such rows before it combines anything
    pairs = {"1": 10.0, "2": 10.0, "4": 10.0, "3": 0.1, "5": 0.1, "6": 0.1}
    rare = Observed((100.0, 100.0, 100.0), (pairs, pairs, pairs), (0.05, 0.05, 0.05))
    assert best_tree(rare, Costs())[0] == (0, 1, 2)
    # few results of the first step, which every row of the busy third input would make again
    few = {"1": 0.1, "2": 0.1, "4": 5.0, "3": 0.5, "5": 0.5, "6": 0.01}
    often = Observed((10.0, 10.0, 1000.0), (few, few, {"1": 5.0, "2": 5.0, "3": 5.0}), (5.0, 5.0, 10.0))
    tree, cost = best_tree(often, Costs())
    assert tree == ((0, 1), 2)
    assert cost == price(tree, often, Costs()) < price((0, 1, 2), often, Costs())


@pytest.mark.parametrize("protocol", ["mslb", "ptlb"])
def test_a_move_logs_the_steps_of_its_protocol_in_order(tmp_path, protocol):
    story = Story(tmp_path, joined("3 seconds"), move_protocol=protocol, replan=False)
    rng = np.random.default_rng(1)
    for number in range(12):
        if number == 4:
            group = int(np.flatnonzero(story.state.routing.table == 0)[0])
            story.requests = [Move(pgs=(group,), donor=0, receiver=1, why="test")]
        story.step(*(rows(rng, 6, number, 1.0) for _ in NAMES))
    assert story.messages(protocol) == list(MSLB_STEPS if protocol == "mslb" else PTLB_STEPS)
    [move] = [event for event in story.events if event["kind"] == "move"]
    assert move["outcome"] == "done"
    # the window is three seconds and a batch one: old rows need as long to go, moved state is there with the next batch
    assert move["duration"] == (1.0 if protocol == "mslb" else pytest.approx(4.0, abs=1.0))
    assert story.state.tracks == ()
    story.check_join(3)


@pytest.mark.long
def test_a_group_may_go_on_or_come_back_while_its_first_move_is_under_way(tmp_path):
    from fluxen.control.moves.parallel_track import move_by_track

    story = Story(tmp_path, joined("5 seconds"), replan=False)
    rng = np.random.default_rng(2)
    there_and_back = {3: 1, 4: 0, 5: 1, 6: 0}
    for number in range(14):
        tables = [rows(rng, 6, number, 1.0, keys=2) for _ in NAMES]
        story.given.append(tables)

        def change(stage: int, state: Any, epoch: int) -> Any:
            if epoch in there_and_back:
                for group in range(4):
                    state = move_by_track(story.planning.operator, state, group, there_and_back[epoch], epoch=epoch)
            return state

        story.bench.step(number, tables, change=change)
        if number == 6:
            assert len(story.state.tracks) == 16
    assert story.state.tracks == ()
    story.check_join(5)


@pytest.mark.long
def test_one_move_by_parallel_track_after_the_other_loses_nothing(tmp_path):
    story = Story(tmp_path, joined("3 seconds"), policy=Random(seed=4), move_protocol="ptlb", replan=False)
    rng = np.random.default_rng(6)
    for number in range(40):
        story.step(*(rows(rng, 6, number, 1.0) for _ in NAMES))
    moves = [event for event in story.events if event["kind"] == "move" and event["outcome"] == "done"]
    assert len(moves) >= 5
    assert story.state.routing.size <= 4 + 2  # ids of ended copies are taken again
    story.check_join(3)


def test_auto_moves_what_fits_and_tracks_what_is_large_but_slow(tmp_path):
    fits = Story(tmp_path / "fits", joined("10 seconds"), replan=False)
    rng = np.random.default_rng(3)
    for number in range(6):
        fits.step(*(rows(rng, 20, number, 1.0) for _ in NAMES))
    records = [read_records(fits.bench.store, 5)[0, site] for site in range(2)]
    stats = collect(fits.state, records, seconds=1.0)
    group = int(stats.pg[(stats.placement == 0) & (stats.bytes > 0)][0])
    move = Move(pgs=(group,), donor=0, receiver=1, why="")
    assert fits.planning.predict(fits.state, move, stats, records).better == "mslb"
    # the receiver has another tree, so a large state would have to be recomputed; and hardly any rows come now
    from dataclasses import replace

    unlike = replace(fits.state, trees=fits.state.trees.replanned(1, read("(0 (1 2))")))
    fits.planning._rates[0] = 0.5
    assert fits.planning.predict(unlike, move, stats, records).better == "ptlb"


def test_without_a_window_only_moving_state_is_possible(tmp_path):
    stage = ft.join(dict.fromkeys(NAMES, SCHEMA), "k", "ts", plan="tree")
    story = Story(tmp_path, stage, move_protocol="ptlb", replan=False)
    rng = np.random.default_rng(4)
    for number in range(4):
        if number == 2:
            group = int(np.flatnonzero(story.state.routing.table == 0)[0])
            story.requests = [Move(pgs=(group,), donor=0, receiver=1, why="test")]
        story.step(*(rows(rng, 4, number, 1.0) for _ in NAMES))
    assert story.messages("mslb") == list(MSLB_STEPS)
    assert story.messages("ptlb") == []


def test_open_windows_of_an_aggregate_stay_with_the_sender(tmp_path):
    stage = ft.aggregate(SCHEMA, "k", "ts", window="4 seconds", n=fx.count(), total=fx.sum("v"))
    story = Story(tmp_path, stage, move_protocol="ptlb")
    rng = np.random.default_rng(5)
    tables = [rows(rng, 12, number, 1.0) for number in range(14)]
    for number, table in enumerate(tables):
        if number == 5:
            moved = np.flatnonzero(story.state.routing.table == 0)
            story.requests = [Move(pgs=tuple(moved.tolist()), donor=0, receiver=1, why="test")]
        story.step(table)
        if number == 5:
            assert story.state.tracks
    assert story.messages("ptlb") == list(PTLB_STEPS)
    story.bench.flush()
    expected = oracle.tumbling(tables, ["k"], "ts", 4_000_000, 0, {"n": fx.count(), "total": fx.sum("v")})
    assert Counter(oracle.canonical_rows(story.results)) == Counter(oracle.canonical_rows(expected))


def test_while_distinct_moves_the_sender_decides_about_the_keys_it_has_seen(tmp_path):
    stage = ft.distinct(SCHEMA, ["k"], "ts", within="4 seconds")
    story = Story(tmp_path, stage, move_protocol="ptlb")

    def step(number: int, *keys: int) -> list[int]:
        # a row of each key every second: whether one is kept depends on all that were kept before
        ts = [int((number + i / len(keys)) * 1e6) for i in range(len(keys))]
        story.step(pa.table({"k": keys, "ts": pa.array(ts).cast(TIME), "v": [number] * len(keys)}, schema=SCHEMA))
        sites = story.bench.epoch.stats["stages"][0]["sites"]
        assert sum(site["rows_in"] for site in sites) == len(keys)  # each row is one site's
        return [site["rows_in"] for site in sites]

    for number in range(5):
        step(number, 0, 1, 2, 3)
    everything = tuple(np.flatnonzero(story.state.routing.table == 0).tolist())
    story.requests = [Move(pgs=everything, donor=0, receiver=1, why="test")]
    # further keys turn up while the move is under way; they are the receiver's
    sender = [step(number, *(range(4) if number < 8 else range(8)))[0] for number in range(5, 16)]
    assert sender[1] > 0
    assert sender[1] == sender[3]
    assert sender[-1] == 0
    assert story.messages("ptlb") == list(PTLB_STEPS)
    assert story.state.tracks == ()
    assert (story.state.routing.table[:4] == 1).all()
    expected = oracle.distinct([batch[0] for batch in story.given], ["k"], "ts", 4_000_000, 0)
    assert Counter(oracle.canonical_rows(story.results)) == Counter(oracle.canonical_rows(expected))


def test_auto_never_tracks_distinct_whose_keys_the_receiver_must_read_anyway(tmp_path):
    story = Story(tmp_path, ft.distinct(SCHEMA, ["k"], "ts", within="4 seconds"))
    rng = np.random.default_rng(8)
    for number in range(4):
        if number == 2:
            group = int(np.flatnonzero(story.state.routing.table == 0)[0])
            story.requests = [Move(pgs=(group,), donor=0, receiver=1, why="test")]
        story.step(rows(rng, 10, number, 1.0))
    assert story.messages("ptlb") == []
    assert story.state.tracks == ()
    assert [event["outcome"] for event in story.events if event["kind"] == "move"] == ["done"]


@pytest.mark.parametrize(
    "stage",
    [
        ft.distinct(SCHEMA, ["k"], "ts"),
        ft.aggregate(SCHEMA, "k", "ts", n=fx.count()),
        ft.aggregate(SCHEMA, "k", "ts", last=3, n=fx.count()),
    ],
    ids=["distinct for ever", "running", "last n"],
)
def test_a_group_whose_state_never_expires_moves_with_it_whatever_was_asked_for(tmp_path, stage):
    from fluxen.control.moves.parallel_track import move_by_track

    story = Story(tmp_path, stage, move_protocol="ptlb")
    rng = np.random.default_rng(9)
    for number in range(4):
        if number == 2:
            group = int(np.flatnonzero(story.state.routing.table == 0)[0])
            story.requests = [Move(pgs=(group,), donor=0, receiver=1, why="test")]
        story.step(rows(rng, 10, number, 1.0))
    assert story.state.tracks == ()
    assert story.state.routing.table[group] == 1
    with pytest.raises(ConfigError, match="would never end; move it with its state"):
        move_by_track(stage.stage.operator, story.state, group, 0, epoch=9)


def test_a_stored_combination_joins_only_if_all_its_times_fit(tmp_path):
    # ((a b) c): b is four seconds after a; a late c within five seconds of a, but not of b
    stage = ft.join(dict.fromkeys(NAMES, SCHEMA), "k", "ts", within="5 seconds", lateness="60 seconds", plan="tree")
    bench = ft.LocalEngine([stage], str(tmp_path), sites=1, partitions=1)

    def at(second: float) -> pa.Table:
        return pa.table({"k": [1], "ts": pa.array([int(second * 1e6)]).cast(TIME), "v": [1]}, schema=SCHEMA)

    none = SCHEMA.empty_table()
    bench.step(0, [at(10), at(14), none])
    assert bench.step(1, [none, none, at(8)]).num_rows == 0
    assert bench.step(2, [none, none, at(9)]).num_rows == 1


def test_trees_are_known_by_what_their_nodes_hold():
    assert write(read("((0 1) (2 3))")) == "((0 1) (2 3))"
    assert intermediates(read("((0 1) (2 3))")) == {(0, 1), (2, 3)}
    assert [height(read(text)) for text in ("(0 1 2)", "((0 1) 2)", "(((0 1) 2) 3)")] == [1, 2, 3]


def test_trees_that_put_the_same_inputs_together_in_another_order_share_their_states(tmp_path):
    schemas = {name: pa.schema([("k", pa.int64()), (f"of_{name}", pa.int64())]) for name in "abcd"}
    stage = ft.join(schemas, "k", plan="tree", tree="(((0 2) 3) 1)")
    bench = ft.LocalEngine([stage], str(tmp_path), sites=1, partitions=4)

    def row(name: str, value: int) -> pa.Table:
        return pa.table({"k": [1], f"of_{name}": [value]})

    def other_order(stage, state, epoch):
        return replace(state, trees=state.trees.replanned(0, (((0, 3), 2), 1)))

    none = schemas["b"].empty_table()
    bench.step(0, [row("a", 1), none, row("c", 1), row("d", 1)], change=other_order)
    bench.step(1, [row("a", 2), none, row("c", 2), row("d", 2)])
    found = bench.step(
        2, [schemas["a"].empty_table(), row("b", 1), schemas["c"].empty_table(), schemas["d"].empty_table()]
    )
    assert found.num_rows == 2 * 2 * 2


def test_a_track_that_begins_and_a_spill_elsewhere_go_into_one_boundary():
    """The track's copy has a group id that no statistics of the batch know."""
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
    operator = ft.join({"a": schema, "b": schema}, "k", "ts", within="1 minute").stage.operator
    planning = StagePlans(operator, move_protocol="ptlb")
    adaptation = Adaptation(operator=operator, memory=100, planning=planning)
    state = StageState(routing=Routing.even(partitions=4, sites=4), watermarks=(0, 0), emitted=(0, 0))
    records = [
        SiteRecord(
            epoch=0,
            stage=0,
            site=site,
            sides=[SideStats(rows_in=1), SideStats()],
            groups=GroupStats(group=[site], rows_in=[1], rows_out=[1], worked=[1], bytes=[held], rank=[0], backlog=[0]),
        )
        for site, held in enumerate((10, 10, 500, 10))
    ]
    moves = [Move(pgs=(0,), donor=0, receiver=1, why="by hand")]
    state = adaptation.after(state, records, 1.0, moves, epoch=0)
    assert [track.of for track in state.tracks] == [0]
    assert state.routing.table.tolist() == [1, 1, 2, 3, 0]
    done = [event.kind for event in adaptation.manager.events if event.outcome == "done"]
    assert "spill" in done
    assert state.history.spilled.tolist() == [0.0, 0.0, 500.0, 0.0, 0.0]
