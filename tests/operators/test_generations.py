"""Generations of a join: stories of what is owed, and when it may be forgotten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import fluxen.testing as ft
from fluxen.cli.inspect import inspect
from fluxen.control import spilling
from fluxen.errors import DamagedError, StorageError
from fluxen.operators import spilling as site_spilling
from fluxen.operators.backlog import SkewBuffer
from fluxen.operators.join import Join, OutputColumn, pair_bounds
from fluxen.policies import ActiveDisk, ForecastDisk, LazyDisk, LocalDisk
from fluxen.state.generations import chosen, left_on_disk, on_disk, owing, relabeled, settled
from fluxen.state.segment import SegmentRef, _verified

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])
GROUPS = list(range(8))
SIDE = 10_000_000


def rows(*triples: tuple[int, int, int]) -> pa.Table:
    """(key, second, value) of each row."""
    k, s, v = zip(*triples) if triples else ((), (), ())
    times = pa.array([second * 1_000_000 for second in s], pa.int64()).cast(TIME)
    return pa.table([pa.array(k, pa.int64()), times, pa.array(v, pa.int64())], schema=SCHEMA)


def bench(directory, **options):
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", **options)
    return ft.Bench([stage], str(directory), sites=2, partitions=8)


def pairs(results: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(results.column("a_v").to_pylist(), results.column("b_v").to_pylist()))


def to_disk(stage, state, epoch):
    return spilling.spill(state, GROUPS, epoch)


def bring_back(stage, state, epoch):
    return spilling.unspill(state, GROUPS)


def clean(stage, state, epoch):
    return spilling.cleanup(state, GROUPS)


def test_a_spilled_group_meets_later_rows_only_in_the_cleanup(tmp_path):
    query = bench(tmp_path)
    query.step(0, [rows((1, 0, 10)), rows()], change=to_disk)
    assert pairs(query.step(1, [rows((1, 1, 11)), rows((1, 1, 20))])) == [(11, 20)]
    assert spilling.owes(query.epoch)
    assert pairs(query.cleanup()) == [(10, 20)]
    assert not spilling.owes(query.epoch)


def test_what_was_cleaned_up_stays_one_generation_and_owes_only_to_newer_rows(tmp_path):
    query = bench(tmp_path)
    query.step(0, [rows((1, 0, 10)), rows()], change=to_disk)
    query.step(1, [rows(), rows((1, 1, 20))])
    assert pairs(query.cleanup()) == [(10, 20)]
    assert pairs(query.step(2, [rows((1, 2, 11)), rows((1, 2, 21))])) == [(11, 21)]
    assert pairs(query.cleanup()) == [(10, 21), (11, 20)]


def test_a_group_that_comes_back_owes_its_past_at_once_and_then_works_as_if_it_had_never_left(tmp_path):
    query = bench(tmp_path)
    query.step(0, [rows((1, 0, 10)), rows()], change=to_disk)
    query.step(1, [rows(), rows((1, 1, 20))], change=bring_back)
    assert pairs(query.step(2, [rows((1, 2, 11)), rows()])) == [(10, 20), (11, 20)]
    assert pairs(query.step(3, [rows(), rows((1, 3, 21))])) == [(10, 21), (11, 21)]
    assert not on_disk(query.epoch.stages[0].segments, 8).any()


def test_rows_that_owe_results_outlive_their_window_until_they_are_cleaned_up(tmp_path):
    query = bench(tmp_path, within="10 seconds")
    found = pairs(query.step(0, [rows((1, 0, 10)), rows()], change=to_disk))
    found += pairs(query.step(1, [rows((1, 5, 11)), rows((1, 5, 20))]))
    for number, second in enumerate([100, 200, 300], start=2):  # the window is long closed
        found += pairs(query.step(number, [rows((2, second, 0)), rows((2, second, 0))]))
    found += pairs(query.cleanup())
    assert [pair for pair in sorted(found) if pair != (0, 0)] == [(10, 20), (11, 20)]
    query.step(5, [rows((3, 400, 0)), rows((3, 400, 0))])
    oldest = min(ref.t_min for ref in query.epoch.stages[0].segments)
    assert oldest >= 300 * 1_000_000, "nothing is kept that owes nothing and can meet nobody"


def test_a_generation_that_owes_nothing_expires_like_any_state(tmp_path):
    query = bench(tmp_path, within="10 seconds")
    query.step(0, [rows((1, 0, 10)), rows((1, 0, 20))], change=to_disk)
    query.step(1, [rows((2, 100, 0)), rows((2, 100, 0))])
    query.step(2, [rows((2, 200, 0)), rows((2, 200, 0))])
    assert not owing(query.epoch.stages[0].segments, 8).any()
    assert not on_disk(query.epoch.stages[0].segments, 8).any()


def test_spilled_state_is_compressed_by_the_next_epoch_and_no_batch_opens_it(tmp_path):
    query = bench(tmp_path)
    many = rows(*((key, 0, key) for key in range(2000)))
    query.step(0, [many, many.slice(0, 0)], change=to_disk)
    before = sum(ref.bytes for ref in query.epoch.stages[0].segments)
    query.step(1, [rows(), rows()])
    packed = query.epoch.stages[0].segments
    assert all(ref.packed and ref.generation for ref in packed)
    assert sum(ref.rows for ref in packed) == 2000
    assert sum(ref.bytes for ref in packed) < 0.7 * before
    for ref in packed:
        (tmp_path / ref.name).unlink()
    query.step(2, [rows((1, 2, 1)), rows((1, 2, 2))])  # reads none of them


def test_a_group_larger_than_a_piece_is_cleaned_up_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(site_spilling, "PIECE_ROWS", 64)
    query = bench(tmp_path)
    keys = range(1000)
    query.step(0, [rows(*((key, 0, key) for key in keys)), rows()], change=to_disk)
    query.step(1, [rows(), rows(*((key, 0, key + 5000) for key in keys))])
    assert pairs(query.cleanup()) == [(key, key + 5000) for key in keys]


@pytest.mark.parametrize("harm", ["deleted", "damaged"])
def test_a_missing_or_damaged_generation_is_named_and_the_cleanup_succeeds_once_it_is_restored(tmp_path, harm):
    query = bench(tmp_path)
    many = rows(*((key, 0, key) for key in range(50)))
    query.step(0, [many, many.slice(0, 0)], change=to_disk)
    query.step(1, [rows(), rows((7, 1, 20))])
    path = tmp_path / next(ref.name for ref in query.epoch.stages[0].segments if ref.packed)
    whole = path.read_bytes()
    if harm == "deleted":
        path.unlink()
    else:
        path.write_bytes(whole[:-40] + bytes(40))
        _verified.clear()
    committed = query.epoch.number
    with pytest.raises(DamagedError, match=path.name):
        query.cleanup()
    path.write_bytes(whole)
    _verified.clear()
    assert query.log.numbers()[-1] == committed
    delivered = []
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts")
    again = ft.Bench(
        [stage], str(tmp_path), sites=2, partitions=8, sink=lambda epoch, results: delivered.extend(pairs(results))
    )
    assert delivered == [(7, 20)]  # the restart finishes the cleanup that was under way
    assert not spilling.owes(again.epoch)


def test_groups_come_back_in_segments_of_bounded_size(tmp_path):
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts")
    query = ft.Bench([stage], str(tmp_path), sites=1, partitions=8, piece_bytes=2000, merge_limit=8000)
    keys = range(2000)
    query.step(0, [rows(*((key, 0, key) for key in keys)), rows()], change=to_disk)
    query.step(1, [rows(), rows()], change=bring_back)
    query.step(2, [rows(), rows()])
    sizes = [ref.rows for ref in query.epoch.stages[0].segments]
    assert sum(sizes) == 2000
    assert max(sizes) < 500
    found = query.step(3, [rows(), rows(*((key, 0, key + 5000) for key in keys))])
    assert pairs(found) == [(key, key + 5000) for key in keys]


def test_a_full_disk_during_a_spill_loses_nothing(tmp_path, monkeypatch):
    query = bench(tmp_path)
    query.step(0, [rows((1, 0, 10)), rows()], change=to_disk)
    real = ft.FaultyStore._write

    def full(self, name, data):
        if "g" in name.rsplit("-", 1)[-1]:  # what a spill packs
            raise OSError(28, "No space left on device")
        real(self, name, data)

    monkeypatch.setattr(ft.FaultyStore, "_write", full)
    with pytest.raises(StorageError, match="the disk is full"):
        query.step(1, [rows(), rows((1, 1, 20))])
    monkeypatch.setattr(ft.FaultyStore, "_write", real)
    again = bench(tmp_path)
    assert again.epoch.number == 0
    assert pairs(again.step(1, [rows(), rows((1, 1, 20))])) == []
    assert pairs(again.cleanup()) == [(10, 20)]


def test_generations_of_many_inputs_produce_exactly_what_is_missing():
    """Equation 1 for four inputs and three generations, by counting."""
    names = ["a", "b", "c", "d"]
    output = (OutputColumn(name="h", side=0, column="_h"),)
    join = Join(names=tuple(names), low=pair_bounds(names, None, None), output=output, described={})
    table = pa.table({"_h": np.zeros(2, dtype=np.int64), "_t": np.zeros(2, dtype=np.int64)})
    sides = [[(generation, table) for generation in (0, 4, 9)]] * 4
    assert sum(results.num_rows for results in join.owed(sides)) == (3 * 2) ** 4 - 3 * 2**4


def test_inspect_tells_what_is_on_disk(tmp_path):
    query = bench(tmp_path)
    many = rows(*((key, 0, key) for key in range(500)))
    query.step(0, [many, many.slice(0, 0)], change=to_disk)
    query.step(1, [rows((1, 1, 1)), rows()])
    found = inspect(str(tmp_path))
    groups = found["stages"][0]["groups"]
    assert sum(group["spilled_rows"] for group in groups) == 500
    assert sum(group["rows"] for group in groups) == 1
    assert {entry["side"] for entry in found["stages"][0]["generations"]} == {0}


def test_a_row_whose_window_closes_in_the_batch_that_cleans_up_still_owes_to_that_batch(tmp_path):
    query = bench(tmp_path, within="3 seconds")
    query.step(0, [rows((1, 0, 10)), rows()], change=to_disk)
    query.step(1, [rows((2, 0, 0)), rows((2, 0, 0))], change=clean)
    # new rows do not see groups that are being cleaned up, and the watermark passes what is on disk
    found = pairs(query.step(2, [rows((2, 20, 0)), rows((1, 2, 20), (2, 20, 0))]))
    for number, second in enumerate([30, 40, 50], start=3):
        found += pairs(query.step(number, [rows((2, second, 0)), rows((2, second, 0))]))
    assert [pair for pair in found if pair != (0, 0)] == [(10, 20)]
    assert min(ref.t_min for ref in query.epoch.stages[0].segments) >= 30 * 1_000_000


def test_merging_active_runs_keeps_dead_rows_that_owe_to_a_generation_on_disk(tmp_path):
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", within="10 seconds")
    query = ft.Bench([stage], str(tmp_path), sites=1, partitions=8)
    query.step(0, [rows(), rows((1, 0, 20), (1, 9, 21))], change=to_disk)
    query.step(1, [rows((1, 1, 10), (3, 9, 0)), rows()])
    for number, second in enumerate([12, 12, 13, 13], start=2):  # the watermark passes second 11
        query.step(number, [rows((3, second, 0)), rows((4, second, 0))])
    runs = [ref for ref in query.epoch.stages[0].segments if ref.side == 0 and not ref.generation]
    assert any(ref.first_epoch == 1 and ref.last_epoch > 1 for ref in runs), "the runs were merged"
    found = [pair for second in (40, 50) for pair in pairs(query.step(second, [rows((5, second, 0))] * 2))]
    assert [pair for pair in found if pair != (0, 0)] == [(10, 20), (10, 21)]


def test_a_row_that_is_dead_on_arrival_still_owes_to_groups_cleaned_up_in_that_batch(tmp_path):
    query = bench(tmp_path, within="3 seconds")
    query.step(0, [rows((1, 0, 10)), rows()], change=to_disk)
    query.step(1, [rows((2, 100, 0)), rows()], change=clean)  # a is far ahead, b has shown nothing
    found = pairs(query.step(2, [rows(), rows((1, 2, 20))]))
    found += pairs(query.step(3, [rows(), rows()])) + pairs(query.cleanup())
    assert found == [(10, 20)]


@pytest.mark.parametrize("spilled", [True, False])
def test_rows_in_pieces_keep_what_they_owe_to_active_rows_being_cleaned_up(tmp_path, spilled):
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", within="3 seconds", lateness="60 seconds")
    limit = SkewBuffer(seconds=1e9, bytes=1, piece_rows=1)
    query = ft.Bench([stage], str(tmp_path), sites=1, partitions=8, buffer=limit)
    query.step(0, [rows((1, 50, 12), (3, 50, 13)), rows()], change=to_disk if spilled else None)
    query.step(1, [rows((1, 0, 10), (3, 0, 11)), rows()])  # active, older than what is on disk
    query.step(2, [rows((2, 200, 0)), rows()], change=clean)
    found = pairs(query.step(3, [rows(), rows((1, 2, 20), (3, 2, 21))]))
    found += pairs(query.step(4, [rows(), rows()])) + pairs(query.cleanup())
    assert found == [(10, 20), (11, 21)]


def test_a_generation_out_of_reach_of_all_others_goes_without_a_cleanup(tmp_path):
    query = bench(tmp_path, within="3 seconds")
    query.step(0, [rows((1, 0, 10)), rows((1, 0, 20))], change=to_disk)
    for number, second in enumerate([30, 31, 32], start=1):  # the same key, too late to meet what is on disk
        query.step(number, [rows((1, second, 11)), rows((1, second, 21))])
        assert not query.epoch.stages[0].cleaning
    assert not on_disk(query.epoch.stages[0].segments, 8).any()


def test_groups_come_back_without_rows_that_nobody_can_meet(tmp_path):
    query = bench(tmp_path, within="3 seconds")
    many = rows(*((1, second, second) for second in range(10)))
    query.step(0, [many, many], change=to_disk)
    query.step(1, [rows((1, 10, 0)), rows((1, 10, 0))], change=bring_back)
    query.step(2, [rows(), rows()])
    assert min(ref.t_min for ref in query.epoch.stages[0].segments) >= 6 * 1_000_000


def test_merging_forgets_dead_rows_of_groups_that_owe_nothing_while_others_are_on_disk(tmp_path):
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", within="10 seconds")
    query = ft.Bench([stage], str(tmp_path), sites=1, partitions=8)
    alone = [int(group) for group in query.epoch.stages[0].routing.groups(stage.encode(0, rows((1, 0, 0))).h)]

    def one_to_disk(stage, state, epoch):
        return spilling.spill(state, alone, epoch)

    query.step(0, [rows((1, 0, 10)), rows((1, 9, 20))], change=one_to_disk)
    query.step(1, [rows((3, 1, 0), (3, 9, 0)), rows()])
    for number, second in enumerate([12, 12, 13, 13, 14], start=2):  # the watermark passes second 11
        query.step(number, [rows((3, second, 0)), rows((4, second, 0))])
    runs = [ref for ref in query.epoch.stages[0].segments if ref.side == 0 and not ref.generation]
    assert any(ref.first_epoch == 1 and ref.last_epoch > 1 for ref in runs), "the runs were merged"
    assert min(ref.t_min for ref in runs) >= 3 * 1_000_000


def test_what_a_cleanup_has_settled_is_gone_and_what_came_with_it_is_not():
    ref = SegmentRef(
        name="s", side=0, rows=9, bytes=9, crc=0, t_min=0, t_max=9, first_epoch=0, last_epoch=0, live=((0, 4),)
    )
    old, young, new = replace(ref, generation=7), replace(ref, generation=7, t_max=10), ref
    assert settled([old, young, new], 7, (10,)) == [young, new]


def test_a_group_on_disk_does_not_owe_because_its_neighbours_get_rows(tmp_path):
    query = bench(tmp_path)
    many = rows(*((key, 0, key) for key in range(40)))
    query.step(0, [many, many], change=to_disk)
    for number in range(1, 6):
        query.step(number, [rows((0, number, 0)), rows((0, number, 0))])
    assert np.count_nonzero(owing(query.epoch.stages[0].segments, 8)) == 1
    query.cleanup()
    assert not spilling.owes(query.epoch)


def test_bytes_on_disk_are_counted_once_for_parts_of_a_file_that_became_one_generation():
    ref = SegmentRef(
        name="s", side=0, rows=8, bytes=8, crc=0, t_min=0, t_max=9, first_epoch=0, last_epoch=0, live=((0, 4),)
    )
    parts = relabeled([ref], chosen([0], 4), 4, active_only=True)
    parts = relabeled(parts, chosen([1], 4), 8, active_only=True)
    both = relabeled(parts, chosen([0, 1], 4), 11, active_only=False)
    assert left_on_disk(both, both, 4).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("policy", [None, LocalDisk, ForecastDisk])
def test_an_input_that_lags_behind_the_window_loses_nothing(tmp_path, policy):
    """Rows of b are beyond the horizon when they come: what they can meet is there already, in memory or on disk."""
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", within="3 seconds")
    options = {} if policy is None else {"memory": 6_000, "policy": policy}
    query = ft.Bench([stage], str(tmp_path), sites=2, partitions=8, **options)
    found = []
    for second in range(40):
        late = [(row % 10, second - 5, SIDE + second * 100 + row) for row in range(20)] if second >= 5 else []
        sides = [rows(*((row % 10, second, second * 100 + row) for row in range(20))), rows(*late)]
        found += pairs(query.step(second, sides, change=to_disk if policy is None and second % 7 == 2 else None))
    found += pairs(query.cleanup())
    a = [(second, row % 10, second * 100 + row) for second in range(40) for row in range(20)]
    b = [(second - 5, row % 10, SIDE + second * 100 + row) for second in range(5, 40) for row in range(20)]
    assert sorted(found) == sorted((v, w) for s, k, v in a for t, j, w in b if k == j and abs(s - t) <= 3)


def test_a_bound_to_one_side_only_does_not_keep_dead_rows_for_ever(tmp_path):
    """a never expires, so no generation with a row of it does; b's rows are dead at once and owe to what is on disk."""
    query = bench(tmp_path, between={("b", "a"): ("0 seconds", None)})
    held, found = [], []
    for second in range(60):
        first = [(key, 0, key) for key in range(8)] if second == 0 else []
        sent = [(row % 8, second, SIDE + second * 100 + row) for row in range(20)]
        beat = (100, second, 0)  # a's watermark goes on
        sides = [rows(*first, beat), rows(*sent)]
        found += pairs(query.step(second, sides, change=to_disk if second == 2 else None))
        held.append(sum(ref.rows for ref in query.epoch.stages[0].segments if ref.side == 1))
    found += pairs(query.cleanup())
    assert len(found) == len(set(found)) == 60 * 20
    assert max(held) <= 8 + 60 + 3 * 20, "not many more than rows they can meet"


def stream(query: ft.Bench, seconds: int, *, change=None, per_second=lambda second: 20, keys: int = 4) -> dict:
    """A batch per second: all results, and after each batch what is on disk and whether it cleaned up."""
    seen: dict[str, list] = {
        name: [] for name in ("results", "oldest", "rows", "files", "cleaned", "active", "spilled")
    }
    for second in range(seconds):
        count = per_second(second)
        sent = [(row % keys, second, second * 1000 + row) for row in range(count)]
        sides = [rows(*sent), rows(*((key, when, SIDE + value) for key, when, value in sent))]
        seen["cleaned"].append(bool(query.epoch.stages[0].cleaning))
        seen["results"] += pairs(query.step(second, sides, change=change if second == 2 else None))
        state = query.epoch.stages[0]
        disk = [ref for ref in state.segments if ref.generation]
        seen["oldest"].append(second - min((ref.t_min for ref in disk), default=second * 1_000_000) // 1_000_000)
        seen["rows"].append(sum(ref.rows for ref in disk))
        seen["active"].append(sum(ref.rows for ref in state.segments if not ref.generation))
        seen["files"].append(len({ref.name for ref in state.segments}))
        seen["spilled"].append(0.0 if state.history is None else float(state.history.spilled.sum()))
    seen["results"] += pairs(query.cleanup())
    return seen


def within_three_seconds(seconds: int, per_second=lambda second: 20, keys: int = 4) -> list[tuple[int, int]]:
    """The results of `stream` with within="3 seconds"."""
    sent: dict[int, list[tuple[int, int]]] = {}
    for second in range(seconds):
        for row in range(per_second(second)):
            sent.setdefault(row % keys, []).append((second, second * 1000 + row))
    return sorted((v, SIDE + w) for mine in sent.values() for s, v in mine for t, w in mine if abs(s - t) <= 3)


def test_a_windowed_join_with_a_spilled_group_forgets_what_the_window_has_passed(tmp_path):
    """Every batch brings the spilled groups new rows, so they always owe something: only ever the window's worth."""
    query = bench(tmp_path, within="3 seconds")
    seen = stream(query, 60, change=to_disk)
    assert sorted(seen["results"]) == within_three_seconds(60)
    assert max(seen["oldest"]) <= 3 * 3 + 1, "rows on disk are at most a few windows old"
    assert max(seen["rows"][20:]) <= 1.05 * max(seen["rows"][:20])
    assert max(seen["files"][20:]) <= 1.05 * max(seen["files"][:20])
    assert sum(seen["cleaned"]) <= 60 / 3 + 2, "a group is cleaned up about once per window, not once per batch"


DISK_POLICIES = [LocalDisk, LazyDisk, ActiveDisk, ForecastDisk]


@pytest.mark.parametrize("policy", DISK_POLICIES)
def test_a_windowed_join_short_of_memory_keeps_no_more_than_the_window_under_every_policy(tmp_path, policy):
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", within="3 seconds")
    query = ft.Bench([stage], str(tmp_path), sites=2, partitions=8, memory=6_000, policy=policy)
    seen = stream(query, 80, keys=40)
    assert max(seen["rows"]) > 0, "memory was short enough to spill"
    assert sorted(seen["results"]) == within_three_seconds(80, keys=40)
    assert max(seen["oldest"]) <= 3 * 3 + 1
    for what in ("rows", "files", "active", "spilled"):
        assert max(seen[what][40:]) <= 1.1 * max(seen[what][:40]) + 1, what
    assert sum(seen["cleaned"]) <= 0.6 * 80


@pytest.mark.parametrize("policy", [LocalDisk, LazyDisk])
def test_groups_come_back_when_what_they_had_on_disk_has_expired_and_memory_is_free(tmp_path, policy):
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", within="3 seconds")
    query = ft.Bench([stage], str(tmp_path), sites=2, partitions=8, memory=50_000, policy=policy)

    def ebbing(second: int) -> int:
        return 400 if second < 30 else 1

    seen = stream(query, 60, keys=400, per_second=ebbing)
    assert max(seen["rows"]) > 0, "memory was short enough to spill"
    assert sorted(seen["results"]) == within_three_seconds(60, ebbing, keys=400)
    assert not on_disk(query.epoch.stages[0].segments, 8).any()
    assert seen["spilled"][-1] == 0
