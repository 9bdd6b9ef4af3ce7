"""Site records become columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fluxen.control import collect
from fluxen.control.stats import NEGLIGIBLE, per_group
from fluxen.state.epoch import StageState
from fluxen.state.history import GroupHistory
from fluxen.state.record import GroupStats, SiteRecord
from fluxen.state.routing import Routing
from fluxen.state.segment import SegmentRef

STATE = StageState(routing=Routing.even(partitions=4, sites=3).moved(np.array([1, 3], dtype=np.int32), 0))
"""Groups 0, 1 and 3 are at site 0, group 2 is at site 1."""


def record(site: int, group: list[int], seconds: float = 0.0, **columns: list[int]) -> SiteRecord:
    groups = GroupStats(group=group, **columns)
    return SiteRecord(epoch=0, stage=0, site=site, groups=groups, seconds={"operator": seconds, "wait": 9.0})


def test_records_are_merged_and_missing_sites_and_groups_count_zero() -> None:
    records = [
        record(0, [1, 3], 0.5, worked=[2, 3], rows_out=[1, 1], bytes=[10, 20]),
        record(1, [2], 1.0, worked=[4], rank=[0], backlog=[6]),
    ]
    stats = collect(STATE, records, seconds=1.0, capacity=np.array([100.0, 100.0, 50.0]))
    assert stats.rows_in.tolist() == [0, 2, 4, 3]
    assert stats.site_rows_in.tolist() == [5, 4, 0]
    assert stats.rows_out.tolist() == [0, 1, 0, 1]
    assert stats.site_bytes.tolist() == [30, 0, 0]
    assert stats.utilization.tolist() == [0.5, 1.0, 0.0]
    assert stats.seconds == 1.0
    assert stats.excess.tolist() == [70, 100, 50]
    assert stats.rank.tolist() == [-1, -1, 0, -1]
    assert stats.backlog.tolist() == [0, 0, 6, 0]
    assert stats.placement.tolist() == [0, 0, 1, 0]


def test_a_group_reported_by_two_sites_is_summed() -> None:
    stats = collect(STATE, [record(site, [0], worked=[site + 1], bytes=[site + 5]) for site in (0, 1)])
    assert stats.rows_in.tolist() == [3, 0, 0, 0]
    assert stats.site_bytes.tolist() == [5, 6, 0]


def test_what_the_disk_owed_is_no_sign_of_productivity() -> None:
    owing = replace(record(0, [0], rows_out=[2]), rows_out=12, rows_owed=10)
    assert collect(STATE, [owing]).site_rows_out.tolist() == [2, 0, 0]


def test_work_that_is_noise_beside_the_batch_counts_as_none() -> None:
    records = [record(0, [], 0.9 * NEGLIGIBLE), record(1, [], 0.1 * NEGLIGIBLE)]
    assert collect(STATE, records, seconds=1.0).busy.tolist() == [0, 0, 0]
    assert collect(STATE, records, seconds=0.5).busy.tolist() == [0.9 * NEGLIGIBLE, 0.1 * NEGLIGIBLE, 0]


def test_groups_on_disk_count_where_they_are_placed() -> None:
    ref = SegmentRef(
        name="s", side=0, rows=9, bytes=9, crc=0, t_min=0, t_max=9, first_epoch=0, last_epoch=0,
        live=((2, 4),), kind="generation", generation=2,
    )  # fmt: skip
    history = replace(GroupHistory.none(4), spilled=np.array([5.0, 0.0, 7.0, 0.0]), updated=np.arange(4.0))
    stats = collect(replace(STATE, segments=(ref,), history=history), [])
    assert stats.spilled.tolist() == [0, 0, 7, 1]
    assert stats.site_spilled.tolist() == [1, 7, 0]
    assert stats.last_update.tolist() == [0, 1, 2, 3]


def test_a_column_that_nobody_needs_may_be_left_out() -> None:
    assert per_group([record(0, [1, 3], bytes=[1, 2])], "arrived", 4).tolist() == [0, 0, 0, 0]


def test_an_id_that_a_group_has_left_is_not_under_way_for_ever() -> None:
    left = replace(STATE.routing, table=np.append(STATE.routing.table, np.int32(0)))
    stats = collect(replace(STATE, routing=left), [record(0, [0], worked=[1])])
    assert stats.moving.tolist() == [False] * STATE.routing.size + [True]
    assert not stats.under_way
