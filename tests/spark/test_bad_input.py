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
    "no DataFrame": (lambda s, o, t: fx.distinct([1], by="k"), QueryError, "must be a DataFrame or a Query, got list"),
    "no DataFrame in join": (lambda s, o, t: fx.join({"a": s, "b": 1}, on="k"), QueryError, "'b' must be a DataFrame"),
    "aggregate over changing results": (
        lambda s, o, t: fx.aggregate(s, by="k", **n()).aggregate(by="n", m=fx.count()),
        QueryError,
        "the input of aggregate.. is a query whose results change later",
    ),
    "top over changing results": (
        lambda s, o, t: fx.aggregate(s, by=["k", "v"], **n()).where("n > 1").top("k", 1, [("n", "desc")]),
        QueryError,
        "the input of top.. is a query whose results change later",
    ),
    "distinct over changing results": (
        lambda s, o, t: fx.top(s, "k", 1, [("v", "desc")]).distinct(by="v"),
        QueryError,
        "the input of distinct.. is a query whose results change later",
    ),
    "join with changing results": (
        lambda s, o, t: fx.join({"a": s, "b": fx.aggregate(s, by="k", **n())}, on="k"),
        QueryError,
        "input 'b' is a query whose results change later",
    ),
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
        "must be positive",
    ),
    "within is negative": (
        lambda s, o, t: fx.join({"a": s, "b": s}, on="k", time="ts", within="-1 second"),
        QueryError,
        "must be positive",
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
    "no sites": (lambda s, o, t: fx.distinct(s, by="k").adapt(sites=0), ConfigError, "sites must be at least 1"),
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
    "two words for one": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(balance="mslb", move_protocol="mslb"),
        ConfigError,
        "balance is the older word for move_protocol",
    ),
    "unknown protocol": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(move_protocol="some"),
        ConfigError,
        "must be 'auto', 'mslb' or 'ptlb', got 'some'",
    ),
    "no memory": (lambda s, o, t: fx.distinct(s, by="k").adapt(memory_per_site="0m"), ConfigError, "must be positive"),
    "parallel track without a window": (
        lambda s, o, t: fx.join({"a": s, "b": s}, on="k", time="ts", plan="tree").adapt(balance="ptlb"),
        ConfigError,
        "use 'mslb' or 'auto'",
    ),
    "parallel track at one stage only": (
        lambda s, o, t: tree(s).adapt(balance="ptlb").aggregate(by="k", **n()),
        ConfigError,
        r"stage 2 \(running aggregate\)",
    ),
    "placement and partitioner": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(partitioner="readj").adapt(sites=2, placement=(0.5, 0.5)),
        ConfigError,
        "both say where groups start",
    ),
    "two who route": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(partitioner="readj", policy="RiverDQ"),
        ConfigError,
        "both decide which site",
    ),
    "re-planning without trees": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(replan=True).writeStream,
        ConfigError,
        "no join tree",
    ),
    "unknown policy": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(policy="flux-lod"),
        ConfigError,
        "'flux-lod' is not known; there are: static, auto, random, river-dq, flux-load",
    ),
    "unknown partitioner": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(partitioner="magic"),
        ConfigError,
        "there are: uniform-hash, .*, slotted",
    ),
    "no policy": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(policy=7),
        ConfigError,
        "derive from fluxen.Policy; got 7",
    ),
    "no partitioner": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(partitioner=7),
        ConfigError,
        "derive from fluxen.Partitioner; got 7",
    ),
    "a policy of memory without any": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(policy=fx.FluxMemory(), memory_per_site="unlimited").writeStream,
        ConfigError,
        "give memory_per_site as well",
    ),
    "event clock without event time": (
        lambda s, o, t: fx.distinct(s, by="k").adapt(clock="event").writeStream,
        ConfigError,
        "clock='event' needs the event time",
    ),
    "lateness without time": (
        lambda s, o, t: fx.aggregate(s, by="k", lateness="1 s", **n()),
        QueryError,
        "lateness needs the event time",
    ),
    "lateness of a join without time": (
        lambda s, o, t: fx.join({"a": s, "b": s}, on="k", lateness="1 s"),
        QueryError,
        "lateness of 'a' needs the event time",
    ),
    "lateness of a stranger": (
        lambda s, o, t: fx.join({"a": s, "b": s}, on="k", time="ts", lateness={"a": "1 s", "b": "1 s", "c": "1 s"}),
        QueryError,
        "lateness names input 'c'; there are: a, b",
    ),
}


def tree(stream: Any, plan: str = "tree") -> Any:
    return fx.join({"a": stream, "b": stream}, on="k", time="ts", within="1 s", plan=plan)


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
        (lambda writer: writer.trigger(availableNow=False), "takes True, got False"),
        (lambda writer: at(writer).format("parquet").start(), r"foreachBatch\(\) has no use for format\('parquet'\)"),
        (lambda writer: at(writer).partitionBy("k").start(), r"no use for partitionBy\(\)"),
        (lambda writer: at(writer).start("somewhere"), "no use for option 'path'"),
        (lambda writer: at(writer).option("maxFiles", 1).start(), "no use for option 'maxFiles'"),
        (lambda writer: at(writer).option("endOfInput", "yes").start(), "must be true or false, got 'yes'"),
        (lambda writer: at(writer).option("endOfInput", True).start(), "needs an end"),
    ],
)
def test_a_start_is_refused_with(configure, message, inputs):
    writer = fx.distinct(inputs[0], by="k").writeStream.foreachBatch(lambda results, epoch: None)
    with pytest.raises(ConfigError, match=message):
        configure(writer)


def at(writer: Any) -> Any:
    return writer.option("checkpointLocation", "/nowhere")


@pytest.mark.parametrize("source", ["memory", "console", "noop"])
def test_sinks_refuse_what_they_would_ignore(source, inputs):
    def writer() -> Any:
        return at(fx.distinct(inputs[0], by="k").writeStream.format(source).queryName("q"))

    with pytest.raises(ConfigError, match=r"has no use for partitionBy\(\)"):
        writer().partitionBy("k").start()
    with pytest.raises(ConfigError, match="has no use for option 'path'"):
        writer().start("somewhere")
    with pytest.raises(ConfigError, match="has no use for option 'compression'"):
        writer().option("compression", "zstd").start()


def test_a_file_sink_knows_its_columns_and_a_console_its_numbers(inputs):
    writer = at(fx.distinct(inputs[0], by="k").writeStream)
    with pytest.raises(ConfigError, match="partitionBy names 'x'; the results have: k, ts, v"):
        writer.format("parquet").partitionBy("x").start("somewhere")
    with pytest.raises(ConfigError, match="takes a number as numRows"):
        at(fx.distinct(inputs[0], by="k").writeStream).format("console").option("numRows", "few").start()


def test_the_output_mode_is_the_one_the_last_operator_has(inputs):
    running, once = fx.aggregate(inputs[0], by="k", **n()), fx.distinct(inputs[0], by="k")
    running.writeStream.outputMode("update")
    once.writeStream.outputMode("append")
    once.aggregate(by="k", **n()).writeStream.outputMode("update")
    with pytest.raises(ConfigError, match=r"'append' is not what stage 1 \(running aggregate\) does: .* use 'update'"):
        running.writeStream.outputMode("append")
    with pytest.raises(ConfigError, match=r"'update' is not what stage 1 \(distinct\) does"):
        once.writeStream.outputMode("update")
    with pytest.raises(ConfigError, match="'complete' is not supported; this query emits 'update'"):
        running.writeStream.outputMode("complete")


def test_more_memory_sizes_than_sites_are_refused(inputs, collected, drain):
    query = fx.distinct(inputs[0], by="k").adapt(sites=2, memory_per_site=["1m", "1m", "2m"])
    with pytest.raises(ConfigError, match="has 3 sizes for 2 sites"):
        drain(query, collected)


@pytest.mark.parametrize("given", ["flux-load", "FluxLoad", "flux_load", fx.FluxLoad, fx.FluxLoad()])
def test_a_policy_may_be_an_object_a_class_or_a_name(given, inputs):
    assert isinstance(fx.distinct(inputs[0], by="k").adapt(policy=given).options.policy, fx.FluxLoad)


def test_a_session_that_runs_takes_what_it_can_and_names_the_rest(spark):
    assert fx.session() is not None
    fx.session("fluxen-tests", master="local[2]", spark__driver__memory="1g")
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    try:
        fx.session(spark__sql__files__maxPartitionBytes="1048576")
        assert spark.conf.get("spark.sql.files.maxPartitionBytes") == "1048576"
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)
    with pytest.warns(UserWarning, match=r"cannot set app='other' .*, master='local\[7\]' .*, spark.driver.memory=9g"):
        fx.session("other", master="local[7]", spark__driver__memory="9g")


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
