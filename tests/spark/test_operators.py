"""Chained stages, users' own operators, and joins of static inputs."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

import fluxen as fx
from fluxen.errors import QueryError
from fluxen.testing import feed, feeds, oracle
from tests.spark.rows import TIME, events

pytestmark = pytest.mark.spark
AGGREGATED = {"n": fx.count(), "total": fx.sum("v")}


def batch(seed: int, rows: int, start: int) -> pa.Table:
    rng = random.Random(seed)
    return events(
        [rng.randrange(20) for _ in range(rows)],
        [start + rng.random() * 10 for _ in range(rows)],
        [rng.randrange(100) for _ in range(rows)],
    )


def test_a_second_stage_aggregates_the_results_of_the_first(spark, drain, collected):
    a, b = ([batch(seed + i, 40, 10 * i) for i in range(3)] for seed in (1, 7))
    joined = fx.join(feeds(spark, {"a": a, "b": b}), on="k", time="ts", within="3 seconds", lateness="1 minute")
    query = joined.aggregate(by="k", n=fx.count(), cheapest=fx.min("a_v"), total=fx.sum("b_v"))
    drain(query.adapt(sites=2, partitions=8), collected)
    pairs = oracle.join(
        {"a": a, "b": b},
        {"a": ["k"], "b": ["k"]},
        {"a": "ts", "b": "ts"},
        lambda t: abs(t["a"] - t["b"]) <= 3_000_000,
        60_000_000,
    )
    expected = {}
    for pair in pairs:
        n, low, total = expected.get(pair["k"], (0, 100, 0))
        expected[pair["k"]] = (n + 1, min(low, pair["a_v"]), total + pair["b_v"])
    newest = {row["k"]: (row["n"], row["cheapest"], row["total"]) for row in collected.rows}
    assert newest == expected


def test_three_stages_follow_each_other_in_one_micro_batch(spark, drain, collected):
    rows = [batch(seed, 30, 0) for seed in (3, 4)]
    distinct = fx.distinct(feed(spark, rows), by=["k", "v"])
    parity = distinct.distinct(by="v").withColumn("odd", F.col("v") % 2)
    query = parity.aggregate(by="odd", n=fx.count(), total=fx.sum("v"))
    drain(query.adapt(sites=2, partitions=8), collected)
    assert collected.calls == [0, 1]
    values = {row["v"] for table in rows for row in table.to_pylist()}
    expected = {odd: [v for v in values if v % 2 == odd] for odd in (0, 1)}
    found = {row["odd"]: (row["n"], row["total"]) for row in collected.rows}
    assert found == {odd: (len(them), sum(them)) for odd, them in expected.items() if them}


class Totals:
    """A running total per key, kept as an Arrow table per partition group."""

    schema = "k long, total long"

    def __init__(self) -> None:
        self.state: dict[int, pa.Table | None] = {}

    def install(self, group: int, state: pa.Table | None) -> None:
        self.state[group] = state

    def process(self, group: int, rows: pa.Table) -> pa.Table | None:
        new = pa.table({"k": rows.column("k"), "total": rows.column("v")})
        old = self.state[group]
        whole = new if old is None else pa.concat_tables([old, new])
        summed = whole.group_by("k").aggregate([("total", "sum")]).rename_columns(["k", "total"])
        self.state[group] = summed
        return summed.filter(pc.is_in(summed.column("k"), rows.column("k").combine_chunks()))

    def extract(self, group: int) -> pa.Table | None:
        return self.state.pop(group)

    def info(self, group: int) -> dict[str, int]:
        state = self.state.get(group)
        return {"rows": 0 if state is None else state.num_rows}


@pytest.mark.parametrize("time", [None, "ts"])
def test_a_users_operator_keeps_its_state_over_batches_restarts_and_other_sites(
    spark, drain, collected, tmp_path, time
):
    rows = [batch(seed, 25, 0) for seed in range(6)]
    for upto, sites in ((3, 2), (6, 3)):
        stream = feed(spark, rows[:upto], tmp_path / "input")
        drain(fx.stateful(stream, by="k", operator=Totals(), time=time).adapt(sites=sites, partitions=8), collected)
    expected: dict[int, int] = {}
    for table in rows:
        for row in table.to_pylist():
            expected[row["k"]] = expected.get(row["k"], 0) + row["v"]
    assert {row["k"]: row["total"] for row in collected.rows} == expected


class Careless(Totals):
    """Returns its columns in another order than its schema's, and narrower."""

    def process(self, group: int, rows: pa.Table) -> pa.Table | None:
        found = super().process(group, rows)
        return found and pa.table({"total": found.column("total").cast(pa.int32()), "k": found.column("k")})


def test_a_users_results_go_by_their_names(spark, drain, collected):
    rows = events([1, 1, 2], [0, 1, 2], [10, 20, 300])
    drain(fx.stateful(feed(spark, [rows]), by="k", operator=Careless()), collected)
    assert sorted((row["k"], row["total"]) for row in collected.rows) == [(1, 30), (2, 300)]


class Stranger(Totals):
    """Returns a column nobody promised."""

    schema = "k long, sum long"


def test_a_users_results_that_differ_from_the_schema_are_refused(spark, drain, collected):
    with pytest.raises(QueryError, match="Stranger returned columns k, total, its schema says k, sum") as raised:
        drain(fx.stateful(feed(spark, [events([1], [0], [1])]), by="k", operator=Stranger()), collected)
    assert "\n" not in str(raised.value)


def static(spark: Any, table: pa.Table) -> Any:
    return spark.createDataFrame(table.to_pylist(), feed(spark, [table]).schema)


def test_a_join_of_static_inputs_equals_duckdb(spark):
    a, b, c = (batch(seed, 60, 0) for seed in (11, 12, 13))
    bounds = {("b", "a"): ("-2 seconds", "3 seconds"), ("c", "a"): (None, "1 second")}
    joined = fx.join(
        {"a": static(spark, a), "b": static(spark, b), "c": static(spark, c)}, on="k", time="ts", between=bounds
    )
    with duckdb.connect() as connection:
        for name, table in (("a", a), ("b", b), ("c", c)):
            connection.register(name, table)
        expected = connection.sql(
            "select a.k, a.v, b.v, c.v from a, b, c where a.k = b.k and a.k = c.k "
            "and epoch_us(b.ts) - epoch_us(a.ts) between -2000000 and 3000000 "
            "and epoch_us(c.ts) - epoch_us(a.ts) <= 1000000"
        ).fetchall()
    found = [(row.k, row.a_v, row.b_v, row.c_v) for row in joined.collect()]
    assert len(expected) > 100
    assert sorted(found) == sorted(expected)


def test_a_static_join_does_not_drop_rows_as_late(spark):
    rows = events([1, 1, 1], [100, 0, 50], [1, 2, 3])
    joined = fx.join({"a": static(spark, rows), "b": static(spark, rows)}, on="k", time="ts", within="1 hour")
    assert joined.count() == 9


def test_floating_point_results_are_the_same_bits_after_a_restart_in_between(spark, tmp_path):
    rng = random.Random(5)
    table = pa.table({"k": [0] * 400, "x": [rng.random() * 10 ** rng.randrange(-8, 8) for _ in range(400)]})
    rows = [table.slice(i * 100, 100) for i in range(4)]
    found = []
    for name, cuts in (("once", [4]), ("twice", [1, 4])):
        got: list[Any] = []
        for upto in cuts:
            query = fx.aggregate(
                feed(spark, rows[:upto], tmp_path / name / "in"), by="k", s=fx.sum("x"), d=fx.stddev("x")
            )
            writer = query.adapt(sites=2).writeStream.foreachBatch(lambda df, epoch, got=got: got.extend(df.collect()))
            writer = writer.option("checkpointLocation", str(tmp_path / name / "ck")).trigger(availableNow=True)
            writer.start().awaitTermination()
        found.append(got)
    assert found[0] == found[1]


def test_the_feed_brings_one_table_per_micro_batch_in_order(spark, tmp_path):
    tables = [events([i], [i], [i]) for i in (5, 3, 9)]
    tables.insert(1, tables[0].slice(0, 0))
    seen: list[list[int]] = []
    stream = feed(spark, tables)
    assert stream.schema["ts"].dataType.simpleString() == "timestamp"
    assert tables[0].schema.field("ts").type == TIME
    sink = stream.writeStream.foreachBatch(lambda df, n: seen.append([row.k for row in df.collect()]))
    started = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    started.awaitTermination()
    assert seen == [[5], [], [3], [9]]
    with pytest.raises(QueryError, match="at least one table"):
        feed(spark, [])


@pytest.mark.parametrize(("column", "checked"), [("v", "false"), ("rand()", "true")])
def test_row_checksums_of_the_shuffle_stay_on_where_a_map_task_may_differ_when_repeated(
    spark, drain, collected, column, checked
):
    rows = feed(spark, [batch(1, 20, 0)]).selectExpr("k", "ts", f"{column} as v")
    run = drain(fx.aggregate(rows, by="k", n=fx.count()).adapt(sites=2, partitions=8), collected)
    for name in ("enabled", "enableFullRetryOnMismatch"):
        setting = f"spark.sql.shuffle.orderIndependentChecksum.{name}"
        assert run._runtime.session.conf.get(setting, "true") == checked
        assert spark.conf.get(setting, "true") == "true", "the user's own session is left alone"


def test_a_union_is_as_far_as_its_slowest_input(spark, drain, collected):
    """Rows without a partner come out seconds after the stream they are united with; in its windows none is late."""
    a, b = ([batch(seed + i, 30, 10 * i) for i in range(4)] for seed in (11, 17))
    streams = feeds(spark, {"a": a, "b": b})
    alone = fx.join(streams, on="k", time="ts", within="6 seconds", how="anti")
    united = alone.select(F.col("k"), F.col("a_ts").alias("ts"), F.col("a_v").alias("v")).union(streams["b"], time="ts")
    query = united.aggregate(by="k", time="ts", window="2 seconds", n=fx.count(), total=fx.sum("v"))
    run = drain(query.adapt(sites=2, partitions=8), collected, endOfInput=True)
    left, right = (pa.concat_tables(tables).to_pylist() for tables in (a, b))
    near = timedelta(seconds=6)
    single = [x for x in left if not any(x["k"] == y["k"] and abs(x["ts"] - y["ts"]) <= near for y in right)]
    assert single
    expected = oracle.tumbling(
        [pa.Table.from_pylist([*single, *right], a[0].schema)], ["k"], "ts", 2_000_000, 0, AGGREGATED, everything=True
    )
    assert collected.canonical() == oracle.canonical_rows(expected)
    assert all(site["late"] == 0 for epoch in run.epochs for stage in epoch["stages"] for site in stage["sites"])


def test_inputs_of_a_union_have_the_same_columns(spark):
    rows = feed(spark, [batch(1, 5, 0)])
    with pytest.raises(QueryError, match=r"input 2 of union\(\) has the columns k bigint, ts timestamp, the first one"):
        fx.union(rows, rows.select("k", "ts"))
    with pytest.raises(QueryError, match="two inputs or more"):
        fx.union(rows)
