"""The skew buffer: what waits, in which order it is processed, what holds the watermark back, and who decides."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import fluxen as fx
import fluxen.testing as ft
from fluxen.control.memory.pacing import LEAST, budgets
from fluxen.control.moves.parallel_track import move_by_track
from fluxen.errors import FluxenError
from fluxen.site.backlog import Backlog
from fluxen.site.context import SiteContext, SkewBuffer
from fluxen.state.epoch import Epoch, StageState
from fluxen.state.routing import Routing
from fluxen.testing import oracle

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
LAST = ft.aggregate(SCHEMA, "k", "ts", last=2, total=fx.sum("v"))
TUMBLING = ft.aggregate(SCHEMA, "k", "ts", window="10 seconds", n=fx.count())
ROOMY = SkewBuffer(seconds=1.0, bytes=1 << 20, piece_rows=1)


def rows(keys: list[int], at: int, value: int = 1) -> pa.Table:
    return pa.table({"k": keys, "ts": [at * SECOND] * len(keys), "v": [value] * len(keys)}, SCHEMA)


def slow() -> Iterator[float]:
    """A clock on which every activity takes longer than any budget."""
    return itertools.count(0.0, 10.0)


def bench(directory: Any, stage: ft.LocalStage, limit: SkewBuffer | None = ROOMY, **options: Any) -> ft.LocalEngine:
    ticks = slow()
    options = {"sites": 1, "partitions": 16, "clock": lambda: next(ticks), **options}
    return ft.LocalEngine([stage], str(directory), buffer=limit, **options)


def waiting(found: ft.LocalEngine) -> int:
    return sum(site["waiting_rows"] for site in found.epoch.stats["stages"][0]["sites"])


def test_a_site_without_time_leaves_rows_for_later_and_loses_none(tmp_path):
    keys = list(range(20))
    query = bench(tmp_path, LAST)
    first = query.step(0, [rows(keys, 0)])
    assert 0 < first.num_rows < 20
    assert waiting(query) == 20 - first.num_rows
    found = [first]
    while query.flush_due():
        found.append(query.flush())
    assert sorted(pa.concat_tables(found).column("k").to_pylist()) == keys


def test_rows_of_a_key_are_processed_in_the_order_of_their_batches(tmp_path):
    batches = [rows(list(range(12)), at, value) for at, value in ((5, 1), (3, 10), (4, 100))]
    query = bench(tmp_path, LAST)
    found = [query.step(number, [table]) for number, table in enumerate(batches)]
    assert len(query.epoch.stages[0].waiting) > 1
    while query.flush_due():
        found.append(query.flush())
    expected = oracle.last(batches, ["k"], "ts", 2, {"total": fx.sum("v")})
    assert oracle.canonical_rows(pa.concat_tables(found).to_pylist()) == oracle.canonical_rows(expected)


@pytest.mark.parametrize(
    ("stage", "key", "value"),
    [
        pytest.param(ft.aggregate(SCHEMA, "k", n=fx.sum("v")), ["k"], "n", id="running"),
        pytest.param(
            ft.aggregate(SCHEMA, "k", "ts", window="10 seconds", emit="update", n=fx.sum("v")),
            ["k", "window"],
            "n",
            id="window in update mode",
        ),
        pytest.param(ft.top(SCHEMA, "k", 1, [("v", "desc")]), ["k", "rank"], "v", id="top"),
    ],
)
def test_a_batch_that_catches_up_brings_one_update_per_key_the_last(tmp_path, stage, key, value):
    """Batches 1 and 2 change what batch 0 left waiting; with time at last all three are processed in one."""
    batches = [rows(list(range(12)), at, amount) for at, amount in ((5, 1), (6, 10), (7, 100))]
    now = [slow()]
    query = bench(tmp_path, stage, clock=lambda: next(now[0]))
    before = [query.step(number, [table]) for number, table in enumerate(batches)]
    arrivals = query.epoch.stages[0].waiting
    assert len(arrivals) > 1
    now[0] = itertools.repeat(0.0)
    caught_up = query.flush()
    assert not query.flush_due()
    named = [tuple(str(row[column]) for column in key) for row in caught_up.to_pylist()]
    assert len(named) == len(set(named)) > 0
    final = {row["k"]: row[value] for table in [*before, caught_up] for row in table.to_pylist()}
    assert final == dict.fromkeys(range(12), 100 if value == "v" else 111)


def test_a_full_buffer_is_back_pressure(tmp_path):
    query = bench(tmp_path, LAST, SkewBuffer(seconds=1.0, bytes=1, piece_rows=1))
    assert query.step(0, [rows(list(range(20)), 0)]).num_rows == 20
    assert waiting(query) == 0


def test_without_a_budget_a_site_stops_when_the_others_are_expected_to_be_done(tmp_path):
    """Three sites in a row on one clock; the second one takes ten times as long for its rows."""
    now = [0.0]
    slow = [False]

    def clock() -> float:
        now[0] += 1.0 if slow[0] else 0.1
        return now[0]

    query = bench(tmp_path, LAST, SkewBuffer(seconds=None, bytes=1 << 20, piece_rows=1), sites=3, clock=clock)
    evaluate = query.runtime.next_attempt

    def attempt() -> str:
        name = evaluate()
        slow[0] = int(name, 16) % 3 == 2  # of the attempts of a batch, the second site's
        return name

    query.runtime.next_attempt = attempt
    found = [query.step(0, [rows(list(range(60)), 0)])]
    assert waiting(query) == 0  # nothing was known about the others
    for number in range(1, 4):
        found.append(query.step(number, [rows(list(range(60)), number)]))
        sites = query.epoch.stats["stages"][0]["sites"]
        assert [site["waiting_rows"] > 0 for site in sites] == [False, True, False]
    given = budgets(query.epoch, 0)
    assert given is not None
    assert given[1] < min(given[0], given[2])
    while query.flush_due():
        found.append(query.flush())
    expected = oracle.last([rows(list(range(60)), n) for n in range(4)], ["k"], "ts", 2, {"total": fx.sum("v")})
    assert oracle.canonical_rows(pa.concat_tables(found).to_pylist()) == oracle.canonical_rows(expected)


def test_the_time_that_others_are_given_follows_from_what_they_have_to_do():
    def site(busy: float, came: int, processed: int, waits: int) -> dict[str, Any]:
        return {"busy_seconds": busy, "rows_in": came, "delays": [[0, processed]], "waiting_rows": waits}

    def given(*sites: dict[str, Any], count: int | None = None) -> tuple[float, ...] | None:
        routing = Routing.even(partitions=8, sites=count or len(sites))
        stage = StageState(routing=routing, watermarks=(0,), emitted=(0,))
        return budgets(Epoch(number=3, batch=3, stages=(stage,), stats={"stages": [{"sites": list(sites)}]}), 0)

    # the slow site may work as long as the others; that it leaves rows does not shorten anybody's time
    even, slow = site(2.0, 100, 100, 0), site(2.5, 100, 40, 60)
    assert given(even, even, slow) == pytest.approx((1.25 * 6.0, 1.25 * 6.0, 1.25 * 2.0))
    # all were stopped halfway: all need twice as long next time
    assert given(*[site(1.0, 100, 50, 50)] * 2) == pytest.approx((3.75, 3.75))
    assert given(*[site(0.01, 100, 100, 0)] * 2) == (LEAST, LEAST)
    idle = site(0.0, 0, 0, 0)
    assert given(even, idle, idle) == pytest.approx((float("inf"), 1.25 * 2.0, 1.25 * 2.0))  # nobody waits for it
    assert given(even) is None  # nobody to wait for
    assert given(even, even, count=3) is None  # sites that have not worked yet
    assert given(*[site(0.0, 0, 0, 0)] * 2) is None


def test_waiting_rows_hold_the_watermark_back_but_not_the_judgement_of_late_ones(tmp_path):
    query = bench(tmp_path, TUMBLING)
    query.step(0, [rows(list(range(20)), 1)])
    query.step(1, [rows([100], 25)])  # closes [0, 10), of which some rows still wait
    stage = query.epoch.stages[0]
    assert stage.watermarks[0] == 1 * SECOND - 1
    assert stage.frontier[0] == 25 * SECOND
    query.step(2, [rows([5], 2)])  # late by the frontier, though its window is open
    found = []
    while query.flush_due():
        found.append(query.flush())
    closed = pa.concat_tables(found)
    assert sorted(closed.column("k").to_pylist()) == list(range(20))
    assert set(closed.column("n").to_pylist()) == {1}


def test_waiting_rows_move_with_their_group(tmp_path):
    query = bench(tmp_path, LAST, sites=2)
    first = query.step(0, [rows(list(range(40)), 0)], reroute=lambda stage, routing: routing.moved(range(16), 1))
    assert waiting(query) > 0
    query = bench(tmp_path, LAST, None, sites=2)  # and a limit that is gone leaves nothing behind
    rest = query.flush()
    assert not query.flush_due()
    assert sorted([*first.column("k").to_pylist(), *rest.column("k").to_pylist()]) == list(range(40))


def backlog(query: ft.LocalEngine, limit: SkewBuffer | None = ROOMY, *, follow: bool = False) -> Backlog:
    context = SiteContext(
        store=query.store,
        epoch=0,
        stage=0,
        operator=LAST.stage.operator,
        before=query.epoch.stages[0],
        buffer=limit,
        follow=follow,
    )
    return Backlog(context, 0, [LAST.encode(0, rows(list(range(20)), 0))])


def taken(work: Backlog, pieces: int) -> list[Any]:
    """Let the time be over after so many pieces."""
    done: list[Any] = []
    for piece in work.pieces(lambda: 10.0 if len(done) >= pieces else 0.0):
        done.append(piece)
    return done


def groups_of(pieces: list[Any]) -> set[int]:
    return {int(group) for piece in pieces for group in piece.groups.nonzero()[0]}


def test_attempts_of_a_batch_follow_the_first_decision(tmp_path):
    query = bench(tmp_path, LAST)
    first = backlog(query)
    expected = groups_of(taken(first, 3))
    for limit in (ROOMY, None):  # a restart may have switched the buffer off: the epoch's results stay what they were
        again = backlog(query, limit, follow=True)
        assert groups_of(taken(again, 99)) == expected
        assert groups_of(again.waiting) == groups_of(first.waiting)


def test_an_attempt_that_was_behind_the_one_that_decided_catches_up(tmp_path):
    query = bench(tmp_path, LAST)
    late, winner = backlog(query), backlog(query)
    expected = groups_of(taken(winner, 5))
    assert groups_of(taken(late, 2)) == expected
    assert groups_of(late.waiting) == groups_of(winner.waiting)


def test_an_attempt_that_was_ahead_of_the_one_that_decided_gives_up(tmp_path):
    query = bench(tmp_path, LAST)
    ahead, winner = backlog(query), backlog(query)
    taken(winner, 2)
    with pytest.raises(FluxenError, match="another attempt"):
        taken(ahead, 5)


def test_a_batch_begun_without_a_limit_is_not_cut_by_one_that_a_restart_brings(tmp_path):
    query = bench(tmp_path, LAST)
    again = backlog(query, ROOMY, follow=True)
    assert groups_of(taken(again, 2)) == set(range(16))
    assert again.waiting == []


@pytest.mark.parametrize("limits", [(ROOMY, None), (None, ROOMY)])
def test_a_decision_outlives_a_crash_of_the_recovery(tmp_path, limits):
    """The results of an epoch were delivered, its commit failed, and the next start died while it swept up."""
    delivered: list[pa.Table] = []

    def dies(_: int, results: pa.Table) -> None:
        delivered.append(results)
        raise ft.SimulatedCrash("between sink and commit")

    with pytest.raises(ft.SimulatedCrash):
        bench(tmp_path, LAST, limits[0], sink=dies).step(0, [rows(list(range(20)), 0)])
    bench(tmp_path, LAST, limits[1])  # sweeps up, and is gone
    again = bench(tmp_path, LAST, limits[1]).step(0, [rows(list(range(20)), 0)])
    assert oracle.canonical_rows(again.to_pylist()) == oracle.canonical_rows(delivered[0].to_pylist())


def test_rows_of_a_group_that_goes_to_two_sites_do_not_wait_and_those_of_others_do(tmp_path):
    stage = ft.aggregate(SCHEMA, "k", "ts", window="10 seconds", n=fx.count())
    operator = stage.stage.operator
    keys = list(range(40))
    query = bench(tmp_path, stage, sites=2)

    def begin(number: int, state: StageState, epoch: int) -> StageState:
        return move_by_track(operator, state, 0, 1, epoch=epoch)

    query.step(0, [rows(keys[:1], 0)], change=begin)
    [track] = query.epoch.stages[0].tracks
    query.step(1, [rows(keys, 1)])
    state = query.epoch.stages[0]
    waits = {group for ref in state.buffer for low, high in ref.live for group in range(low, high)}
    assert waits
    assert waits.isdisjoint({0, track.group})
    busy = next(iter(waits))
    assert move_by_track(operator, state, busy, 1 - int(state.routing.table[busy]), epoch=1) == state
    while query.flush_due():
        query.flush()
    found = query.flush(everything=True).to_pylist()
    assert sorted((row["k"], row["n"]) for row in found) == [(0, 2), *((key, 1) for key in keys[1:])]
