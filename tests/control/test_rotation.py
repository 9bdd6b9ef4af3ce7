"""Groups that take turns in memory: the limit is kept, nobody waits for ever, and nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fluxen as fx
import fluxen.testing as ft
from fluxen.control.memory.rotation import capacity_of, rotated, with_disk
from fluxen.engine.progress import mean_latency
from fluxen.policies import Stats
from fluxen.state.residence import Residence
from fluxen.testing import oracle

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
RUNNING = ft.aggregate(SCHEMA, "k", "ts", n=fx.count(), total=fx.sum("v"))


def one_site(groups: int) -> Any:
    return np.zeros(groups, dtype=np.int32)


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    memory=st.integers(1, 40),
    sites=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_memory_is_kept_and_every_group_comes_back(sizes, memory, sites, seed):
    rng = np.random.default_rng(seed)
    size = np.array(sizes, dtype=float)
    table = rng.integers(0, sites, len(sizes)).astype(np.int32)
    capacity = np.full(sites, float(memory))
    turns = Residence.everything(len(sizes))
    seen = np.zeros(len(sizes), dtype=int)
    for epoch in range(2 * len(sizes) + 1):
        turns = rotated(turns, table, size, capacity, epoch)
        inside = np.where(turns.on_disk, 0.0, size)
        for site in range(sites):
            mine = inside[table == site]
            assert mine.sum() <= memory or np.count_nonzero(mine) == 1
        seen += ~turns.on_disk
    assert (seen > 0).all()


def test_groups_come_back_at_once_when_there_is_room():
    turns = rotated(Residence.everything(4), one_site(4), np.full(4, 5.0), np.array([10.0]), 0)
    assert turns.on_disk.sum() == 2
    turns = rotated(turns, np.array([0, 0, 1, 1], dtype=np.int32), np.full(4, 5.0), np.array([10.0, 10.0]), 1)
    assert not turns.on_disk.any()
    assert turns.back.sum() == 2


def test_one_batch_swaps_a_share_of_the_memory_only():
    turns = Residence.everything(40)
    for epoch in range(5):
        turns = rotated(turns, one_site(40), np.ones(40), np.array([20.0]), epoch)
        assert turns.back.sum() <= 5


def test_a_policy_sees_what_is_on_disk():
    stats = Stats.build(sites=2, placement=[0, 0, 1], bytes=[4, 5, 6], capacity=[5, 20])
    turns = rotated(Residence.everything(3), np.array([0, 0, 1]), stats.bytes, stats.capacity, 0)
    seen = with_disk(stats, turns)
    assert seen.spilled.tolist() == [4, 0, 0]
    assert seen.site_bytes.tolist() == [5, 6]
    assert seen.excess.tolist() == stats.excess.tolist()


def test_residence_survives_json():
    turns = rotated(Residence.everything(5), one_site(5), np.ones(5), np.array([3.0]), 7)
    again = Residence.from_json(turns.to_json())
    assert again.on_disk.tolist() == turns.on_disk.tolist()
    assert again.turn.tolist() == turns.turn.tolist()
    assert again.back.tolist() == turns.back.tolist()


def test_memory_may_differ_between_sites():
    assert capacity_of(7, 2).tolist() == [7, 7]
    assert capacity_of([7, 9], 4).tolist() == [7, 9, 9, 9]


def test_rows_of_groups_on_disk_wait_for_their_turn_and_are_counted_as_late_in_coming(tmp_path):
    batches = [pa.table({"k": list(range(64)), "ts": [number] * 64, "v": [1] * 64}, SCHEMA) for number in range(6)]
    bench = ft.LocalEngine([RUNNING], str(tmp_path), sites=1, partitions=16, memory=4_000)
    found = [bench.step(number, [table]) for number, table in enumerate(batches)]
    waiting = bench.epoch.stats["stages"][0]["sites"][0]
    assert waiting["waiting_rows"] > 0
    assert waiting["swapped_bytes"] > 0
    assert max(waited for waited, _ in waiting["delays"]) > 0
    while bench.flush_due():
        found.append(bench.flush())
    last = {row["k"]: row for table in found for row in table.to_pylist()}
    exact = oracle.running(batches, ["k"], "ts", {"n": fx.count(), "total": fx.sum("v")})
    assert last == {row["k"]: row for row in exact}, (
        "a batch brings a key's last value; the last of all is the oracle's"
    )


def test_latency_counts_the_epochs_a_row_has_waited():
    assert mean_latency([(2, 1)], [1.0, 2.0, 3.0, 4.0]) == pytest.approx(9.0)
    assert mean_latency([], [1.0]) is None


def test_groups_that_go_to_two_sites_stay_and_the_others_share_what_they_leave():
    size, table = np.array([4.0, 4.0, 4.0, 4.0]), one_site(4)
    turns = rotated(Residence.everything(4), table, size, np.array([8.0]), 0)
    assert turns.on_disk.tolist() == [True, True, False, False]
    for epoch in range(1, 6):
        turns = rotated(turns, table, size, np.array([8.0]), epoch, [0])
        assert not turns.on_disk[0]
        assert size[~turns.on_disk].sum() == 8.0
        assert turns.back[0] == (epoch == 1)
