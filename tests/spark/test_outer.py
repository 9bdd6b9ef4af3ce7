"""Outer, semi and anti joins on Spark, against Spark's own join over all rows at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fluxen as fx
from fluxen.errors import QueryError
from fluxen.operators.join.matching import Compare, Of
from fluxen.operators.join.outer import HOWS
from fluxen.spark.plan.base import Given
from fluxen.spark.plan.join import JoinWords, join_stage
from fluxen.testing import feeds, oracle
from tests.conftest import Collected
from tests.spark.rows import events

pytestmark = pytest.mark.spark

INPUTS = {
    "a": [
        events([1, 2, None, 3, 4], [0, 1, 2, None, 3], [1, 2, 3, 4, 5]),
        events([1, 2, 5, None], [20, 21, 22, 23], [6, 7, 8, None]),
        events([1, 6], [60, 61], [9, 10]),
    ],
    "b": [
        events([1, 1, 4, None], [1, 2, 30, 4], [11, 12, 13, 14]),
        events([2, 7, 8, 1], [21, 22, None, 26], [15, 16, 17, 18]),
        events([1, 9], [58, 62], [19, 20]),
    ],
}
BOUNDS = {("b", "a"): ("-5 seconds", "10 seconds")}


def outer(streams: dict[str, Any], how: Any, **words: Any) -> Any:
    joined = fx.join(streams, on="k", time="ts", between=BOUNDS, lateness="1 minute", how=how, **words)
    return joined.adapt(sites=2, partitions=8) if isinstance(joined, fx.Query) else joined


def static(spark: Any, name: str) -> Any:
    rows = [row for table in INPUTS[name] for row in table.to_pylist()]
    return spark.createDataFrame([tuple(row.values()) for row in rows], "k long, ts timestamp, v long")


def in_spark(spark: Any, how: str) -> list[str]:
    """The same join, all rows at once, as Spark does it."""
    for name in INPUTS:
        static(spark, name).createOrReplaceTempView(name)
    condition = "a.k = b.k and b.ts between a.ts - interval 5 seconds and a.ts + interval 10 seconds"
    key = "coalesce(a.k, b.k)" if how in ("right", "full") else "a.k"
    columns = f"{key} as k, a.ts as a_ts, a.v as a_v" + (
        "" if how in ("semi", "anti") else ", b.ts as b_ts, b.v as b_v"
    )
    rows = spark.sql(f"select {columns} from a {how} join b on {condition}").collect()
    return oracle.canonical_rows(row.asDict() for row in rows)


@pytest.mark.parametrize("how", HOWS)
def test_results_are_those_of_sparks_own_join_across_a_restart(spark, drain, tmp_path: Path, how):
    sink = Collected()
    for upto in (2, 3):
        given = {name: tables[:upto] for name, tables in INPUTS.items()}
        streams = feeds(spark, given, tmp_path / "input")
        drain(outer(streams, how), sink, endOfInput=upto == 3)
    assert sink.canonical() == in_spark(spark, how)


@pytest.mark.parametrize("how", HOWS)
def test_static_inputs_give_the_answer_in_one_go(spark, how):
    rows = outer({name: static(spark, name) for name in INPUTS}, how).collect()
    assert oracle.canonical_rows(row.asDict() for row in rows) == in_spark(spark, how)


def test_rows_without_a_partner_come_out_while_the_query_runs(spark, drain, collected):
    tables = {"a": [events([1, 2], [0, 1], [1, 2])], "b": [events([1, 3], [3, 20], [3, 4])]}
    streams = feeds(spark, tables)
    drain(fx.join(streams, on="k", time="ts", within="10 seconds", how="left").adapt(sites=2, partitions=8), collected)
    assert sorted((row["a_v"], row["b_v"]) for row in collected.rows if row["b_v"] is None) == [(2, None)]


def test_only_columns_that_somebody_needs_travel(spark):
    given = {name: Given(df=static(spark, name)) for name in INPUTS}
    told = {"on": "k", "time": "ts", "within": "1 hour", "between": None, "lateness": None, "idle": None}
    smaller = Compare(left=Of(side=1, column="v"), op="<", right=Of(side=0, column="v"))
    for how, matching, second in (
        ("anti", None, []),
        ("semi", smaller, ["v"]),
        ("left", None, ["v"]),
        ("full", None, ["k", "v"]),
    ):
        plan = join_stage(given, JoinWords(**told, plan="mjoin", ttl=None, how=how, matching=matching))
        assert [[name for name, _ in pairs] for pairs in plan.wire.inputs] == [["k", "v"], second]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"how": "outer"}, "how must be one of 'inner', 'left'"),
        ({"how": "left", "plan": "tree"}, "plan='tree' is for how='inner'"),
        ({"how": "left"}, "nothing says how much later than them rows of 'b' may be"),
        ({"how": "full", "between": {("b", "a"): ("0 seconds", None)}}, "without a partner once none can come"),
        ({"how": "anti", "time": None}, "pass time='column'"),
    ],
)
def test_what_makes_no_sense_is_refused(spark, words, message):
    streams = {name: static(spark, name) for name in INPUTS}
    with pytest.raises(QueryError, match=message):
        fx.join(streams, **{"on": "k", "time": "ts", **words})


def test_three_inputs_are_refused(spark):
    rows = static(spark, "a")
    with pytest.raises(QueryError, match="is for two inputs, got 3"):
        fx.join({"a": rows, "b": rows, "c": rows}, on="k", time="ts", within="1 hour", how="left")
