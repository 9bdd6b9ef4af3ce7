"""Operators without state on Spark: rows go where there is time for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fluxen as fx
from fluxen.testing import feed
from fluxen_lab.emulate.paced import SlowSites, paced

pytestmark = pytest.mark.spark


class Doubled:
    """Each row's value twice over; keeps nothing."""

    schema = "v BIGINT"

    def process(self, group: int, rows: pa.Table) -> pa.Table:
        return pa.table({"v": pc.multiply(rows.column("v"), 2)})

    def extract(self, group: int) -> None:
        return None

    def install(self, group: int, state: pa.Table | None) -> None:
        assert state is None

    def info(self, group: int) -> Mapping[str, int]:
        return {"rows": 0}


def test_a_slow_site_gets_fewer_rows_and_nothing_is_kept(spark, drain, collected):
    batches = [pa.table({"v": list(range(n * 400, (n + 1) * 400))}) for n in range(5)]
    query = fx.stateful(feed(spark, batches), by=None, operator=Doubled())
    run = drain(paced(query, 2e-3, SlowSites(sites=(0,), slowdown=3.0)).adapt(sites=2, partitions=64), collected)
    assert sorted(row["v"] for row in collected.rows) == [2 * v for v in range(2000)]
    shares = [[site["rows_in"] for site in epoch["stages"][0]["sites"]] for epoch in run.epochs]
    slow, fast = (sum(epoch[site] for epoch in shares[2:]) for site in (0, 1))
    assert 2 <= fast / slow <= 4.5, shares
    assert run.epoch["state_rows"] == 0
    assert any(event["kind"] == "repartition" for event in run.events)


def test_another_policy_can_be_asked_for(spark):
    query: Any = fx.stateful(feed(spark, [pa.table({"v": [1]})]), by=None, operator=Doubled())
    assert type(query.options.policy).__name__ == "RiverDQ"
    assert type(query.adapt(policy=fx.Static()).options.policy).__name__ == "Static"
