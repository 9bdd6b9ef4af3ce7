"""Key hash to group to site: Spark's SQL expressions and numpy's functions are the same functions."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import functions as F

from fluxen.site.wire import IN
from fluxen.spark.route import group_expression, marking, site_expression, site_values
from fluxen.state.routing import Routing

pytestmark = pytest.mark.spark


def routings():
    rng = np.random.default_rng(3)
    yield Routing.even(partitions=1, sites=1)
    yield Routing.even(partitions=7, sites=3)
    yield Routing.even(partitions=256, sites=4).moved(np.arange(10, 90, dtype=np.int32), 3)
    yield Routing.even(partitions=4096, sites=5).rescaled(7)
    heavy = Routing.even(partitions=16, sites=3)
    for h in [*rng.integers(-(2**63), 2**63 - 1, 5).tolist(), -(2**63), 2**63 - 1, 0, -1]:
        heavy = heavy.isolated(h, int(rng.integers(3)))
    yield heavy
    many = Routing.even(partitions=64, sites=5)
    for h in rng.integers(-(2**63), 2**63 - 1, 1000).tolist():
        many = many.isolated(h, int(rng.integers(5)))
    yield many


def hashes(routing: Routing) -> np.ndarray:
    rng = np.random.default_rng(4)
    edges = [int(-(2**63) + k * 2**64 // routing.partitions) for k in range(routing.partitions)]
    around = [h + d for h in edges for d in (-1, 0, 1) if -(2**63) <= h + d < 2**63]
    spread = rng.integers(-(2**63), 2**63 - 1, 500)
    return np.unique(np.concatenate([np.array(around), spread, routing.explicit, [2**63 - 1, 0, -1]]).astype(np.int64))


@pytest.mark.parametrize("routing", list(routings()), ids=lambda r: f"{r.partitions}-{r.sites}-{len(r.explicit)}")
def test_sql_sends_every_hash_to_the_group_and_site_numpy_says(spark, routing):
    h = hashes(routing)
    rows = spark.createDataFrame([(int(x),) for x in h], "_h long")
    shown = rows.selectExpr("_h", f"{group_expression(routing)} as g", f"{site_expression(routing)} as s").collect()
    found = {row._h: (row.g, row.s) for row in shown}
    groups = routing.groups(h)
    values = np.array(site_values(routing.sites))[routing.sites_of(groups)]
    assert [found[int(x)] for x in h] == list(zip(groups.tolist(), values.tolist()))


@pytest.mark.parametrize("sites", [1, 2, 3, 8, 61])
def test_site_values_fall_into_their_own_partition(spark, sites):
    rows = spark.createDataFrame([(v,) for v in site_values(sites)], "v int")
    assert [row.p for row in rows.selectExpr(f"pmod(hash(v), {sites}) as p").collect()] == list(range(sites))


def test_every_partition_with_rows_names_every_site_once(spark):
    rows = spark.range(0, 10, 1, 3).where("id > 3").selectExpr(f"cast(id % 2 as int) as {IN}", "id")
    marked = rows.withColumn(IN, marking(4)).withColumn("p", F.spark_partition_id()).collect()
    assert sorted(row[IN] for row in marked if row[IN] >= 0) == [0, 0, 0, 1, 1, 1]
    assert sorted((row.p, row[IN]) for row in marked if row[IN] < 0) == [
        (p, -site) for p in (1, 2) for site in (4, 3, 2, 1)
    ]
