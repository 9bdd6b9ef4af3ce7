"""Commit records become columns."""

from __future__ import annotations

import pytest

from fluxen.control import SiteRecord, collect
from fluxen.errors import ConfigError


def test_records_are_merged_and_missing_sites_and_groups_count_zero() -> None:
    stats = collect(
        [
            SiteRecord(
                site=0, rows_in=5, rows_out=2, busy=0.5, idle=0.5, pg=[1, 900], pg_rows_in=[2, 3], pg_bytes=[10, 20]
            ),
            SiteRecord(site=2, busy=0.1, idle=0.9, pg=[2], pg_spilled_bytes=[7], pg_last_update=[4.5], pg_rank=[0]),
        ],
        sites=3,
        pg=[0, 1, 2, 900],
        placement=[1, 0, 2, 0],
        seconds=1.0,
        capacity=[100, 100, 50],
    )
    assert stats.rows_in.tolist() == [0, 2, 0, 3]
    assert stats.site_bytes.tolist() == [30, 0, 0]
    assert stats.site_spilled.tolist() == [0, 0, 7]
    assert stats.utilization.tolist() == [0.5, 0.0, 0.1]
    assert stats.excess.tolist() == [70, 100, 43]
    assert stats.rank.tolist() == [-1, -1, 0, -1]
    assert stats.last_update.tolist() == [0, 0, 4.5, 0]
    assert (stats.index(900), stats.index(3), stats.index(-1)) == (3, -1, -1)


def test_a_sites_own_total_wins_over_the_sum_of_its_groups() -> None:
    stats = collect([SiteRecord(site=0, bytes=99, pg=[0], pg_bytes=[10])], sites=1, pg=[0], placement=[0], seconds=1)
    assert stats.site_bytes.tolist() == [99]


def test_a_group_reported_by_two_sites_is_summed() -> None:
    records = [SiteRecord(site=s, pg=[0], pg_rows_in=[s + 1], pg_last_update=[s]) for s in (0, 1)]
    stats = collect(records, sites=2, pg=[0], placement=[1], seconds=1)
    assert stats.rows_in.tolist() == [3]
    assert stats.last_update.tolist() == [1]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (SiteRecord(site=5), "site 5"),
        (SiteRecord(site=0, pg=[7]), "group 7 is not in the routing table"),
        (SiteRecord(site=0, pg=[0], pg_bytes=[1, 2]), "pg_bytes has 2 entries for 1 groups"),
    ],
)
def test_a_record_that_does_not_fit_is_an_error(record: SiteRecord, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        collect([record], sites=2, pg=[0], placement=[0], seconds=1)
