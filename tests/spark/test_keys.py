"""Every key type Spark can hash, with nulls and the values that are easy to get wrong."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

import fluxen as fx
from fluxen.testing import feed, feeds
from tests.spark.rows import TIME, stamps

pytestmark = pytest.mark.spark

NAN = float("nan")
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [-128, 127]),
    "short": (pa.int16(), [-1, 300]),
    "int": (pa.int32(), [0, -(2**31)]),
    "long": (pa.int64(), [2**63 - 1, -(2**63), 0]),
    "float": (pa.float32(), [0.0, -0.0, NAN, 1.5]),
    "double": (pa.float64(), [0.0, -0.0, NAN, 1.5]),
    "decimal": (pa.decimal128(6, 2), [Decimal("1.50"), Decimal("-1.50")]),
    "wide_decimal": (pa.decimal128(38, 10), [Decimal("1e27"), Decimal("1e-10")]),
    "string": (pa.string(), ["", "a", "a\x00", "é"]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff"]),
    "boolean": (pa.bool_(), [True, False]),
    "date": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "timestamp": (TIME, [dt.datetime(1969, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)]),
    "timestamp_ntz": (pa.timestamp("us"), [dt.datetime(1969, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)]),
    "struct": (pa.struct([("x", pa.int64()), ("y", pa.int64())]), [{"x": 1, "y": None}, {"x": None, "y": 1}]),
    "array": (pa.list_(pa.int64()), [[], [1], [1, None], [None, 1]]),
    "nested": (pa.list_(pa.list_(pa.float64())), [[[1.0], [2.0]], [[1.0, 2.0]], [[], [1.0, 2.0]], [None, [1.0, 2.0]]]),
}


def canonical(value: Any) -> str:
    if isinstance(value, float):
        return str(value + 0.0)
    if isinstance(value, dt.datetime):
        return str(value.replace(tzinfo=None))
    if isinstance(value, Decimal):
        return str(value.normalize())
    if isinstance(value, Row):
        return repr(value.asDict())
    return repr(bytes(value) if isinstance(value, bytearray) else value)


def table(kind: pa.DataType, values: list[Any]) -> pa.Table:
    rows = [*values, *values, None, None]
    return pa.table(
        {"key": pa.array(rows, kind), "ts": stamps(list(range(len(rows)))), "v": pa.array(range(len(rows)), pa.int64())}
    )


@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_any_type_counts_as_one_group_over_batches_and_null_as_its_own(spark, drain, collected, name):
    rows = table(*KEYS[name])
    drain(fx.aggregate(feed(spark, [rows, rows]), by="key", n=fx.count()).adapt(partitions=8), collected)
    found = {canonical(row["key"]): row["n"] for row in collected.epochs[1]}
    assert found == Counter(canonical(key) for key in rows.column("key").to_pylist() * 2)


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_any_type_join_with_their_equals_and_null_with_nothing(spark, name):
    rows = table(*KEYS[name])
    schema = feed(spark, [rows]).schema
    static = spark.createDataFrame(rows.to_pylist(), schema) if name != "timestamp_ntz" else None
    if static is None:
        static = spark.createDataFrame(
            [{**row, "key": row["key"] and row["key"].replace(tzinfo=None)} for row in rows.to_pylist()], schema
        )
    joined = fx.join({"a": static, "b": static}, on="key").collect()
    found = Counter(canonical(row.key) for row in joined)
    once = Counter(canonical(key) for key in rows.column("key").to_pylist() if key is not None)
    assert found == Counter({key: n * n for key, n in once.items()})


def test_composite_keys_with_nulls_and_names_of_their_own_meet_across_batches(spark, drain, collected):
    a = pa.table({"x": [1, 1, None, 2], "y": ["p", None, "p", "q"], "ts": stamps([0, 1, 2, 3]), "v": [1, 2, 3, 4]})
    b = pa.table({"ts": stamps([3, 3, 3]), "q": ["p", "p", None], "p": [1, None, 1], "w": [10.0, 20.0, 30.0]})
    streams = feeds(spark, {"a": [a, a.slice(0, 0)], "b": [b.slice(0, 0), b]})
    drain(fx.join(streams, on={"a": ["x", "y"], "b": ["p", "q"]}, time="ts", within="1 hour"), collected)
    assert [(r["x"], r["y"], r["a_v"], r["b_w"]) for r in collected.rows] == [(1, "p", 1, 10.0)]
    assert list(collected.rows[0]) == ["x", "y", "a_ts", "a_v", "b_ts", "b_w"]


def test_the_event_time_may_be_part_of_the_key(spark, drain, collected):
    rows = pa.table({"k": [1, 1], "ts": stamps([5, 6]), "v": [1, 2]})
    streams = feeds(spark, {"a": [rows], "b": [rows]})
    drain(fx.join(streams, on=["k", "ts"], time="ts", within="1 second"), collected)
    assert sorted((r["a_v"], r["b_v"]) for r in collected.rows) == [(1, 1), (2, 2)]


def test_nested_payloads_with_any_field_names_come_back_as_they_were(spark, drain, collected):
    deep = pa.struct(
        [("a b", pa.int64()), ("order", pa.list_(pa.struct([("c-d", pa.map_(pa.string(), pa.date32()))])))]
    )
    value = {"a b": 1, "order": [{"c-d": [("x", dt.date(2020, 1, 1))]}, None]}
    rows = pa.table({"k": [1, 2], "ts": stamps([0, 1]), "my.col": pa.array([value, None], deep)})
    streams = feeds(spark, {"a": [rows, rows.slice(0, 0)], "b": [rows.slice(0, 0), rows]})
    drain(fx.join(streams, on="k", time="ts", within="1 hour"), collected)
    shown = {"a b": 1, "order": [{"c-d": {"x": dt.date(2020, 1, 1)}}, None]}
    by_key = sorted(collected.rows, key=lambda row: row["k"])
    assert [(r["a_my.col"], r["b_my.col"]) for r in by_key] == [(shown, shown), (None, None)]


def test_local_event_times_work_like_zoned_ones(spark, drain, collected):
    kind = pa.timestamp("us")
    rows = pa.table({"k": [1, 1, 1], "ts": stamps([-1, 1, 11], kind), "v": [1, 2, 3]})
    drain(fx.aggregate(feed(spark, [rows]), by="k", time="ts", window="10 seconds", n=fx.count()), collected)
    windows = sorted((row["window"]["start"], row["n"]) for row in collected.rows)
    assert windows == [(dt.datetime(1969, 12, 31, 23, 59, 50), 1), (dt.datetime(1970, 1, 1), 1)]


def test_rows_without_event_time_are_the_earliest_of_their_key(spark, drain, collected):
    rows = pa.table({"k": [1, 1], "ts": stamps([None, 1]), "v": [5, 6]})
    drain(fx.aggregate(feed(spark, [rows]), by="k", time="ts", last=2, low=fx.min("v")), collected)
    assert sorted((r["ts"] is None, r["low"]) for r in collected.rows) == [(False, 5), (True, 5)]


def test_distinct_without_event_time_keeps_the_first_row_of_each_key_for_ever(spark, drain, collected):
    rows = pa.table({"k": [1, 2, 1, None], "v": [3, 4, 1, 9]})
    drain(fx.distinct(feed(spark, [rows, rows]), by="k"), collected)
    assert sorted((r["k"] or 0, r["v"]) for r in collected.rows) == [(0, 9), (1, 1), (2, 4)]
