"""Watermarks through several stages, of hidden rows and of idle inputs, epoch by epoch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fluxen.testing as ft
from fluxen.arrays import MAX_TIME, MIN_TIME
from fluxen.control.advance import idle_due, rested
from fluxen.control.memory import spilling
from fluxen.operators.aggregate import functions as fx
from fluxen.state.epoch import StageState

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])
SECOND = 1_000_000


def rows(*seconds: int, k: int = 1) -> pa.Table:
    times = pa.array([second * SECOND for second in seconds], pa.int64()).cast(TIME)
    return pa.table([pa.array([k] * len(seconds)), times, pa.array(list(seconds), pa.int64())], schema=SCHEMA)


def joined(**options: Any) -> ft.LocalStage:
    return ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", **{"within": "10 seconds", **options})


def counted(stage: ft.LocalStage, time: str, seconds: int, **aggregates: Any) -> ft.LocalStage:
    return ft.aggregate(stage.schema, "k", time, window=f"{seconds} seconds", n=fx.count(), **aggregates)


def windows(*tables: pa.Table) -> dict[int, int]:
    found = [row for table in tables for row in table.to_pylist()]
    assert len({row["window"]["start"] for row in found}) == len(found)
    return {int(row["window"]["start"].timestamp()): row["n"] for row in found}


def marks(bench: ft.LocalEngine, stage: int) -> list[int | None]:
    """Watermarks in seconds; None before and after everything."""
    return [None if abs(w) >= MAX_TIME else w // SECOND for w in bench.epoch.stages[stage].watermarks]


def late(bench: ft.LocalEngine, stage: int) -> int:
    return sum(site["late"] for site in bench.epoch.stats["stages"][stage]["sites"])


def drained(bench: ft.LocalEngine) -> list[pa.Table]:
    found = []
    while bench.flush_due():
        found.append(bench.flush())
    return found


def test_results_of_an_input_that_lags_are_on_time_in_the_next_stage(tmp_path):
    first = joined()
    bench = ft.LocalEngine([first, counted(first, "a_ts", 5)], str(tmp_path))
    found = [bench.step(0, [rows(1, 9), rows(9)])]  # a result at second 9
    found.append(bench.step(1, [rows(), rows(10)]))
    assert marks(bench, 1) == [0]  # a is at 9, but b at 10: its next row may meet one of a of second 0
    found.append(bench.step(2, [rows(20), rows(11)]))
    assert late(bench, 1) == 0
    found.append(bench.flush(everything=True))
    assert windows(*found) == {0: 3, 5: 3, 20: 2}


def test_results_owed_by_generations_on_disk_are_on_time_in_the_next_stage(tmp_path):
    def spill(stage: int, state: StageState, epoch: int) -> StageState:
        return spilling.spill(state, range(state.routing.size), epoch) if stage == 0 else state

    first = joined(within="100 seconds")
    bench = ft.LocalEngine([first, counted(first, "a_ts", 5)], str(tmp_path))
    found = [bench.step(0, [rows(101), rows()], change=spill)]
    found.append(bench.step(1, [rows(140, k=2), rows(140, k=2)]))
    found.append(bench.step(2, [rows(195), rows(195)]))  # the pair of 101 and 195 is owed
    assert marks(bench, 1) == [95]
    found.append(bench.step(3, [rows(230, k=2), rows(230, k=2)]))
    assert marks(bench, 1) == [101]  # 130, but for what is owed
    found.append(bench.cleanup())
    assert late(bench, 1) == 0
    assert marks(bench, 1) == [130]
    found += drained(bench)
    assert windows(*found) == {100: 1}
    found.append(bench.flush(everything=True))
    totals = [row["n"] for table in found for row in table.to_pylist() if row["k"] == 1]
    assert sorted(totals) == [1, 1]


def test_a_row_that_is_on_time_but_too_old_for_rows_to_come_meets_what_a_cleanup_has_left(tmp_path):
    """It comes to its group in the very batch that cleans the group up, and is owed what is on disk."""

    def spill(stage: int, state: StageState, epoch: int) -> StageState:
        return spilling.spill(state, range(state.routing.size), epoch)

    def cleanup(stage: int, state: StageState, epoch: int) -> StageState:
        return spilling.cleanup(state, range(state.routing.size))

    names = {"a": SCHEMA, "b": SCHEMA, "c": SCHEMA}
    bounds = {("c", "a"): ("2 seconds", None), ("c", "b"): ("1 second", "5 seconds")}
    bench = ft.LocalEngine([ft.join(names, "k", "ts", between=bounds)], str(tmp_path))
    bench.step(0, [rows(), rows(0), rows(0)], change=spill)
    bench.step(1, [rows(1), rows(), rows()], change=spill)
    bench.step(2, [rows(), rows(), rows(2)], seen=[4 * SECOND, 4 * SECOND, None], change=cleanup)
    found = [bench.step(3, [rows(), rows(), rows(4)]), bench.step(4, [rows(), rows(), rows()]), bench.cleanup()]
    assert [table.num_rows for table in found] == [0, 0, 1]


def test_windows_of_each_stage_close_as_the_source_moves_on_and_when_it_pauses(tmp_path):
    first = joined()
    second = counted(first, "a_ts", 5, at=fx.max("a_ts"))
    third = ft.aggregate(second.schema, "k", "at", window="10 seconds", n=fx.sum("n"))
    bench = ft.LocalEngine([first, second, third], str(tmp_path))
    found = [bench.step(n, [rows(5 * n, 5 * n + 3), rows(5 * n + 1)]) for n in range(12)]
    held = windows(*found)
    assert set(held) >= {0, 10, 20}
    found += drained(bench)
    assert max(windows(*found)) >= max(held)
    assert marks(bench, 1) == [46]  # b is at 56
    assert marks(bench, 2) == [45]  # where the first window that the second stage has not emitted begins
    found.append(bench.flush(everything=True))
    assert sum(windows(*found).values()) == len(pairs(12))


def pairs(batches: int) -> list[tuple[int, int]]:
    a = [second for n in range(batches) for second in (5 * n, 5 * n + 3)]
    return [(x, y) for x in a for y in (5 * n + 1 for n in range(batches)) if abs(x - y) <= 10]


def test_a_flush_is_due_if_only_a_later_stage_has_something_to_emit(tmp_path):
    first = ft.aggregate(SCHEMA, "k", "ts", window="1 second", at=fx.max("ts"), n=fx.count())
    bench = ft.LocalEngine([first, counted(first, "at", 5)], str(tmp_path))
    bench.step(0, [rows(1, 2)], seen=[3 * SECOND])
    assert drained(bench)[0].num_rows == 0  # the first stage's windows are in an open one of the second
    bench.step(1, [rows()], seen=[30 * SECOND])
    assert (marks(bench, 0), marks(bench, 1)) == ([30], [3])
    assert windows(*drained(bench)) == {0: 2}
    assert not bench.flush_due()


def test_the_second_stages_own_lateness_counts_on_top(tmp_path):
    first = joined()
    second = ft.aggregate(first.schema, "k", "b_ts", window="5 seconds", lateness="3 seconds", n=fx.count())
    bench = ft.LocalEngine([first, second], str(tmp_path))
    bench.step(0, [rows(50), rows(40)])
    assert marks(bench, 0) == [50, 40]
    assert marks(bench, 1) == [40 - 3]


def test_bounds_decide_how_far_a_time_may_lie_back(tmp_path):
    first = joined(within=None, between={("b", "a"): ("0 seconds", "60 seconds")})
    bench = ft.LocalEngine([first, counted(first, "a_ts", 5)], str(tmp_path / "a"))
    bench.step(0, [rows(100), rows(130)])
    assert marks(bench, 1) == [70]
    bench = ft.LocalEngine([first, counted(first, "b_ts", 5)], str(tmp_path / "b"))
    bench.step(0, [rows(100), rows(130)])
    assert marks(bench, 1) == [100]
    open_ended = joined(within=None)
    bench = ft.LocalEngine([open_ended, counted(open_ended, "b_ts", 5)], str(tmp_path / "c"))
    bench.step(0, [rows(100), rows(130)])
    assert bench.epoch.stages[1].watermarks == (MIN_TIME,)


def test_a_column_that_is_no_event_time_of_the_stage_before_counts_like_a_sources(tmp_path):
    schema = SCHEMA.append(pa.field("made", TIME))
    first = ft.join({"a": schema, "b": SCHEMA}, "k", "ts", within="10 seconds")
    bench = ft.LocalEngine([first, counted(first, "a_made", 5)], str(tmp_path))
    given = rows(1).append_column("made", pa.array([500 * SECOND], pa.int64()).cast(TIME))
    bench.step(0, [given, rows(1)])
    assert marks(bench, 1) == [500]


def test_milliseconds_taken_for_seconds_are_event_times_as_well(tmp_path):
    """The year 58,000 is not the end of the input, and what is kept for ever is not forgotten because it has come."""
    far = 1_790_000_000_000
    first = joined()
    bench = ft.LocalEngine([first, counted(first, "a_ts", 5)], str(tmp_path / "windows"))
    found = [bench.step(n, [rows(far + 5 * n), rows(far + 5 * n)]) for n in range(8)]
    found += drained(bench)
    assert late(bench, 1) == 0
    assert sum(table.num_rows for table in found) == 5
    assert marks(bench, 1) == [far + 25]
    found.append(bench.flush(everything=True))
    assert sum(table.num_rows for table in found) == 8
    open_ended = ft.LocalEngine([joined(within=None)], str(tmp_path / "open"))
    open_ended.step(0, [rows(1), rows(1)])
    open_ended.step(1, [rows(far, k=2), rows(far, k=2)])
    assert sum(ref.rows for ref in open_ended.epoch.stages[0].segments) == 4
    firsts = ft.LocalEngine([ft.distinct(SCHEMA, "k", "ts")], str(tmp_path / "firsts"))
    found = [firsts.step(n, [rows(second)]) for n, second in enumerate([1, far, far + 1])]
    assert [table.num_rows for table in found] == [1, 0, 0]


# ---- rows that filters hide


def test_rows_that_do_not_come_to_the_sites_move_the_watermark(tmp_path):
    bench = ft.LocalEngine([joined()], str(tmp_path))
    bench.step(0, [rows(1), rows(2)], seen=[None, 70 * SECOND])
    assert marks(bench, 0) == [1, 70]


def test_an_epoch_in_which_no_site_ran_moves_the_watermark_and_nothing_else(tmp_path):
    stage = ft.aggregate(SCHEMA, "k", "ts", window="5 seconds", n=fx.count())
    bench = ft.LocalEngine([stage], str(tmp_path))
    bench.step(0, [rows(1)])
    assert not bench.flush_due()
    before = bench.epoch
    bench.epoch = rested(before, [stage.stage], batch=1, seen={(0, 0): 30 * SECOND})
    assert marks(bench, 0) == [30]
    assert bench.epoch.stages[0].segments == before.stages[0].segments
    assert windows(*drained(bench)) == {0: 1}


# ---- idle inputs


def test_an_idle_input_follows_the_others_and_lets_go_of_their_state(tmp_path):
    bench = ft.LocalEngine([joined(idle="1 minute")], str(tmp_path))
    bench.step(0, [rows(1), rows(2)])
    for number in range(1, 6):
        bench.step(number, [rows(30 * number), rows()], elapsed=20.0)
        assert marks(bench, 0) == ([30 * number, 2] if number < 3 else [30 * number, 30 * number])
    state = bench.epoch.stats["stages"][0]["sides"]
    assert (state[0]["state_rows"], state[1]["state_rows"]) == (2, 0)
    bench.step(6, [rows(), rows(100, 151)], elapsed=20.0)
    assert late(bench, 0) == 1
    assert marks(bench, 0) == [150, 151]


def test_a_restart_goes_on_counting_silence_but_not_the_time_it_was_down(tmp_path):
    stage = joined(idle="1 minute")
    bench = ft.LocalEngine([stage], str(tmp_path))
    bench.step(0, [rows(1), rows(2)])
    bench.step(1, [rows(50), rows()], elapsed=40.0)
    again = ft.LocalEngine([stage], str(tmp_path))
    assert again.epoch.stages[0].quiet == (0.0, 40.0)
    again.step(2, [rows(60), rows()], elapsed=5.0)
    assert marks(again, 0) == [60, 2]
    again.step(3, [rows(70), rows()], elapsed=20.0)
    assert marks(again, 0) == [70, 70]


def test_when_all_inputs_are_idle_an_epoch_without_rows_lets_windows_out(tmp_path):
    first = joined(idle="1 minute")
    bench = ft.LocalEngine([first, counted(first, "a_ts", 5)], str(tmp_path))
    found = [bench.step(0, [rows(1, 90), rows(2)])]
    stages = [first.stage]
    assert not bench.flush_due()
    assert not idle_due(bench.epoch, stages, 59.0)
    assert idle_due(bench.epoch, stages, 61.0)
    found.append(bench.flush(elapsed=61.0))
    assert marks(bench, 0) == [90, 90]
    assert not idle_due(bench.epoch, stages, 61.0)
    found += drained(bench)
    assert windows(*found) == {0: 1}


def test_silence_says_nothing_of_an_input_that_another_stage_feeds_where_no_site_ran_either(tmp_path):
    """What the first stage still has to say of second 1 is not late because filters let no row through meanwhile."""
    first = joined(within="100 seconds")
    third = pa.schema([("k", pa.int64()), ("a_ts", TIME)])
    inputs = {"pair": first.schema, "c": third}
    second = ft.join(inputs, "k", "a_ts", within="100 seconds", idle="1 minute").fed(0, None)
    bench = ft.LocalEngine([first, second], str(tmp_path))
    at = pa.table([[1], rows(90).column("ts")], schema=third)
    bench.step(0, [rows(1), rows(2, k=2), at])
    before = marks(bench, 1)
    assert before == [-98, 90]
    bench.epoch = rested(bench.epoch, [first.stage, second.stage], batch=1, elapsed=61.0)
    assert marks(bench, 1) == before
    found = bench.step(2, [rows(), rows(3), at.slice(0, 0)])
    assert late(bench, 1) == 0
    assert found.num_rows == 1


@pytest.mark.parametrize("plan", ["mjoin", "tree"])
def test_without_idle_a_silent_input_holds_the_others_for_ever(tmp_path, plan):
    bench = ft.LocalEngine([joined(plan=plan)], str(tmp_path))
    bench.step(0, [rows(1), rows(2)])
    bench.step(1, [rows(500), rows()], elapsed=1e6)
    assert marks(bench, 0) == [500, 2]


def test_rows_without_a_key_move_the_watermark_of_a_join(tmp_path):
    bench = ft.LocalEngine([joined()], str(tmp_path))
    keyless = pa.table([pa.nulls(1, pa.int64()), rows(60).column("ts"), pa.array([1])], schema=SCHEMA)
    bench.step(0, [pa.concat_tables([rows(1), keyless]), rows(2)])
    assert marks(bench, 0) == [60, 2]
