"""Generations of a join: stories of what is owed, and when it may be forgotten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import fluxen.testing as ft
from fluxen.cli.inspect import inspect
from fluxen.control.memory import spilling
from fluxen.errors import DamagedError, StorageError
from fluxen.operators.join.mway import Join, OutputColumn, pair_bounds
from fluxen.site import generations as site_spilling
from fluxen.site.context import SkewBuffer
from fluxen.state.generations import chosen, left_on_disk, on_disk, owing, relabeled, settled
from fluxen.state.segment import SegmentRef, _verified
from fluxen.state.store import Store
from tests.operators.joined import GROUPS, SCHEMA, bench, bring_back, clean, pairs, rows, to_disk


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


def test_a_spilled_group_moves_without_being_read_and_owes_its_results_where_it_is_then(tmp_path):
    query = bench(tmp_path)
    query.step(0, [rows((1, 0, 10)), rows()], change=to_disk)
    query.step(1, [rows(), rows()], reroute=lambda stage, routing: routing.moved(GROUPS, 1))
    held = query.epoch.stages[0].segments
    assert all(ref.packed for ref in held)
    whole = {ref.name: (tmp_path / ref.name).read_bytes() for ref in held}
    for name in whole:
        (tmp_path / name).unlink()
    assert pairs(query.step(2, [rows((1, 2, 11)), rows((1, 2, 20))])) == [(11, 20)]
    assert query.epoch.stages[0].routing.table.tolist() == [1] * 8
    for name, data in whole.items():
        (tmp_path / name).write_bytes(data)
    assert pairs(query.cleanup()) == [(10, 20)]
    assert {site["rows_owed"] for site in query.epoch.stats["stages"][0]["sites"]} == {0, 1}


def test_of_a_tree_only_the_inputs_rows_go_to_disk_and_the_rest_is_made_again(tmp_path):
    stage = ft.join(dict.fromkeys("abc", SCHEMA), "k", "ts", plan="tree")
    query = ft.LocalEngine([stage], str(tmp_path), sites=1, partitions=8, replan=False)

    def kept() -> set[tuple[int, str]]:
        return {(ref.side, ref.kind) for ref in query.epoch.stages[0].segments}

    query.step(0, [rows((1, 0, 10)), rows((1, 0, 20), (2, 0, 21)), rows()])
    assert kept() == {(0, "state"), (1, "state"), (3, "state")}
    query.step(1, [rows(), rows(), rows()], change=to_disk)
    assert kept() == {(0, "generation"), (1, "generation")}
    found = query.step(2, [rows(), rows(), rows((1, 2, 30))], change=bring_back)
    assert found.num_rows == 0
    found = query.step(3, [rows(), rows(), rows((1, 3, 31))])
    assert sorted(found.column("c_v").to_pylist()) == [30, 31]
    assert kept() == {(side, "state") for side in range(4)}
    assert query.step(4, [rows((1, 4, 11)), rows(), rows()]).num_rows == 2


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
    again = ft.LocalEngine(
        [stage], str(tmp_path), sites=2, partitions=8, sink=lambda epoch, results: delivered.extend(pairs(results))
    )
    assert delivered == [(7, 20)]  # the restart finishes the cleanup that was under way
    assert not spilling.owes(again.epoch)


def test_groups_come_back_in_segments_of_bounded_size(tmp_path):
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts")
    query = ft.LocalEngine([stage], str(tmp_path), sites=1, partitions=8, piece_bytes=2000, merge_limit=8000)
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
    real = Store._write

    def full(self, name, data):
        if "g" in name.rsplit("-", 1)[-1]:  # what a spill packs
            raise OSError(28, "No space left on device")
        real(self, name, data)

    monkeypatch.setattr(Store, "_write", full)
    with pytest.raises(StorageError, match="the disk is full"):
        query.step(1, [rows(), rows((1, 1, 20))])
    monkeypatch.setattr(Store, "_write", real)
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
    query = ft.LocalEngine([stage], str(tmp_path), sites=1, partitions=8)
    query.step(0, [rows(), rows((1, 0, 20), (1, 9, 21))], change=to_disk)
    query.step(1, [rows((1, 1, 10), (3, 9, 0)), rows()])
    for number, second in enumerate([12, 12, 13, 13], start=2):  # the watermark passes second 11
        query.step(number, [rows((3, second, 0)), rows((4, second, 0))])
    runs = [ref for ref in query.epoch.stages[0].segments if ref.side == 0 and not ref.generation]
    assert any(ref.first_epoch == 1 and ref.last_epoch > 1 for ref in runs), "the runs were merged"
    late = enumerate((40, 50), start=6)
    found = [pair for batch, second in late for pair in pairs(query.step(batch, [rows((5, second, 0))] * 2))]
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
    query = ft.LocalEngine([stage], str(tmp_path), sites=1, partitions=8, buffer=limit)
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
    query = ft.LocalEngine([stage], str(tmp_path), sites=1, partitions=8)
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
    old = replace(ref, kind="generation", generation=7)
    young, new = replace(old, t_max=10), ref
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
