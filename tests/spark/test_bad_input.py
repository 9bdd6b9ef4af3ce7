"""Queries that cannot run are refused when they are built, in one line that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import fluxen as fx
from fluxen.errors import ConfigError, FluxenError, QueryError, StorageError
from fluxen.testing import feed
from tests.spark.rows import events, stamps

pytestmark = pytest.mark.spark

ROWS = events([1], [0], [1])
ODD = pa.table(
    {"k": ["1"], "at": [1], "ts": stamps([0]), "m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}
)


def n() -> dict[str, Any]:
    return {"n": fx.count()}


BAD: dict[str, tuple[Callable[[Any, Any, Any], Any], type[FluxenError], str]] = {
    "unknown key": (lambda s, o, t: fx.aggregate(s, by="kk", **n()), QueryError, "'kk' is not a column.*k, ts, v"),
    "unknown value": (lambda s, o, t: fx.aggregate(s, by="k", x=fx.sum("w")), QueryError, "'w' is not a column"),
    "unknown join key": (lambda s, o, t: fx.join({"a": s, "b": s}, on="q"), QueryError, "'q' is not a column"),
    "unknown key of distinct": (lambda s, o, t: fx.distinct(s, by="q"), QueryError, "'q' is not a column"),
    "unknown key of stateful": (lambda s, o, t: fx.stateful(s, by="q", operator=Sums()), QueryError, "'q' is not a"),
    "unknown time": (lambda s, o, t: fx.distinct(s, by="k", time="at"), QueryError, "'at' is not a column"),
    "static input": (lambda s, o, t: fx.aggregate(t, by="k", **n()), QueryError, "not a streaming DataFrame"),
    "static beside stream": (lambda s, o, t: fx.join({"a": s, "b": t}, on="k"), QueryError, "'b' is static"),
    "no DataFrame": (lambda s, o, t: fx.distinct([1], by="k"), QueryError, "must be a DataFrame, got list"),
    "no DataFrame in join": (lambda s, o, t: fx.join({"a": s, "b": 1}, on="k"), QueryError, "'b' must be a DataFrame"),
    "window without time": (lambda s, o, t: fx.aggregate(s, by="k", window="1 s", **n()), QueryError, "event time"),
    "within without time": (lambda s, o, t: fx.join({"a": s, "b": s}, on="k", within="1 s"), QueryError, "event time"),
    "first without time": (lambda s, o, t: fx.aggregate(s, by="k", x=fx.first("v")), QueryError, "event time"),
    "time is a number": (lambda s, o, t: fx.aggregate(o, by="k", time="at", **n()), QueryError, "must be a timestamp"),
    "time of join is a number": (
        lambda s, o, t: fx.join({"a": o, "b": o}, on="k", time="at"),
        QueryError,
        "must be a timestamp",
    ),
    "last is 0": (lambda s, o, t: fx.aggregate(s, by="k", last=0, **n()), QueryError, "above 0, got 0"),
    "last is no number": (lambda s, o, t: fx.aggregate(s, by="k", last="3", **n()), QueryError, "above 0, got '3'"),
    "window is 0": (
        lambda s, o, t: fx.aggregate(s, by="k", time="ts", window="0 seconds", **n()),
        QueryError,
        "longer than nothing",
    ),
    "within is negative": (
        lambda s, o, t: fx.join({"a": s, "b": s}, on="k", time="ts", within="-1 second"),
        QueryError,
        "longer than nothing",
    ),
    "window is no length": (
        lambda s, o, t: fx.aggregate(s, by="k", time="ts", window="soon", **n()),
        QueryError,
        "not a length of time",
    ),
    "negative lateness": (lambda s, o, t: fx.distinct(s, by="k", time="ts", lateness="-1 s"), QueryError, "negative"),
    "last and window": (
        lambda s, o, t: fx.aggregate(s, by="k", time="ts", last=1, window="1 s", **n()),
        QueryError,
        "either last or window",
    ),
    "no aggregates": (lambda s, o, t: fx.aggregate(s, by="k"), QueryError, "at least one aggregate"),
    "sum of strings": (lambda s, o, t: fx.aggregate(o, by="at", x=fx.sum("k")), QueryError, "needs a numeric column"),
    "no keys": (lambda s, o, t: fx.aggregate(s, by=[], **n()), QueryError, "at least one column"),
    "one input": (lambda s, o, t: fx.join({"a": s}, on="k"), QueryError, "2 to 8 inputs, got 1"),
    "key types differ": (lambda s, o, t: fx.join({"a": s, "b": o}, on="k"), QueryError, "'k' of input 'b' is string"),
    "key counts differ": (
        lambda s, o, t: fx.join({"a": s, "b": s}, on={"a": ["k"], "b": ["k", "v"]}),
        QueryError,
        "joins on 2 columns",
    ),
    "key is a map": (lambda s, o, t: fx.distinct(o, by="m"), QueryError, "no equality"),
    "name in use": (lambda s, o, t: fx.distinct(s.withColumnRenamed("v", "_H"), by="k"), QueryError, "'_H', which"),
    "result twice": (lambda s, o, t: fx.aggregate(s, by="k", k=fx.count()), QueryError, "'k' would appear twice"),
    "no operator": (lambda s, o, t: fx.stateful(s, by="k", operator=object()), QueryError, "lacks one of"),
    "bounds allow nothing": (
        lambda s, o, t: fx.join({"a": s, "b": s}, on="k", time="ts", between={("b", "a"): ("2 s", "1 s")}),
        QueryError,
        "allows nothing",
    ),
    "bounds of a stranger": (
        lambda s, o, t: fx.join({"a": s, "b": s}, on="k", time="ts", between={("c", "a"): ("0 s", "1 s")}),
        QueryError,
        "names input 'c'",
    ),
    "no sites": (lambda s, o, t: fx.distinct(s, by="k").adapt(sites=0), ConfigError, "sites must be between 1"),
    "sites above partitions": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(sites=9, partitions=8),
        ConfigError,
        r"partitions \(8\), got 9",
    ),
    "no partitions": (lambda s, o, t: fx.distinct(s, by="k").adapt(partitions=0), ConfigError, "between 1 and 4096"),
    "too many partitions": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(partitions=4097),
        ConfigError,
        "between 1 and 4096, got 4097",
    ),
    "sites is no number": (lambda s, o, t: fx.distinct(s, by="k").adapt(sites=1.5), ConfigError, "whole number"),
    "unknown option": (lambda s, o, t: fx.distinct(s, by="k").adapt(site=1), ConfigError, "does not know site"),
    "no memory": (lambda s, o, t: fx.distinct(s, by="k").adapt(memory_per_site="0m"), ConfigError, "more than nothing"),
}


class Sums:
    """The four calls of a user's operator, none of which is reached here."""

    schema = "k long, total long"

    def process(self, group: int, rows: pa.Table) -> pa.Table | None: ...
    def extract(self, group: int) -> pa.Table | None: ...
    def install(self, group: int, state: pa.Table | None) -> None: ...
    def info(self, group: int) -> dict[str, int]: ...


@pytest.fixture(scope="module")
def inputs(spark: Any, tmp_path_factory: Any) -> tuple[Any, Any, Any]:
    directory = tmp_path_factory.mktemp("inputs")
    stream, odd = feed(spark, [ROWS], directory / "rows"), feed(spark, [ODD], directory / "odd")
    return stream, odd, spark.createDataFrame([], stream.schema)


@pytest.mark.parametrize("what", BAD)
def test_a_query_is_refused_in_one_line_for(what, inputs):
    build, kind, message = BAD[what]
    with pytest.raises(kind, match=message) as raised:
        build(*inputs)
    assert "\n" not in str(raised.value)


def test_a_type_spark_cannot_hand_to_python_is_refused(inputs):
    months = inputs[0].selectExpr("k", "ts", "interval 1 month as months")
    with pytest.raises(QueryError, match="months' is interval month"):
        fx.join({"a": months, "b": inputs[0]}, on="k")


@pytest.mark.parametrize(
    ("configure", "message"),
    [
        (lambda writer: writer.start(), "no checkpoint location"),
        (lambda writer: writer.trigger(continuous="1 second"), "use processingTime"),
        (lambda writer: writer.trigger(now=True), "takes one of"),
        (lambda writer: writer.outputMode("complete"), "not supported"),
        (lambda writer: writer.foreachBatch("sink"), "needs a function"),
    ],
)
def test_a_start_is_refused_with(configure, message, inputs):
    writer = fx.distinct(inputs[0], by="k").writeStream.foreachBatch(lambda results, epoch: None)
    with pytest.raises(ConfigError, match=message):
        configure(writer)


def test_sinks_that_need_a_name_or_a_path_say_so(inputs, tmp_path):
    writer = fx.distinct(inputs[0], by="k").writeStream.option("checkpointLocation", str(tmp_path))
    with pytest.raises(ConfigError, match=r"needs a path"):
        writer.format("parquet").start()
    with pytest.raises(ConfigError, match=r"needs queryName"):
        writer.format("memory").start()


def test_a_checkpoint_below_a_file_is_refused_and_another_place_works(inputs, drain, collected, tmp_path):
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StorageError, match="choose another checkpoint location") as raised:
        drain(fx.distinct(inputs[0], by="k"), collected, checkpoint="file/checkpoint")
    assert "\n" not in str(raised.value)
    drain(fx.distinct(inputs[0], by="k"), collected)
    assert len(collected.rows) == 1


def test_a_checkpoint_location_nothing_can_open_is_refused(inputs, collected):
    writer = fx.distinct(inputs[0], by="k").writeStream.foreachBatch(collected)
    with pytest.raises(ConfigError, match="not a path or URI"):
        writer.option("checkpointLocation", "nosuch://place/checkpoint").start()
