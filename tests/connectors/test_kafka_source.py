"""Kafka in: topics as inputs of joins and aggregates, and what can become of a topic while a query runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import functions as F

import fluxen as fx

pytestmark = pytest.mark.connectors

SCHEMA = "k string, ts timestamp, v long"


def at(second: int) -> str:
    return f"2024-01-01T00:{second // 60:02}:{second % 60:02}Z"


def rows(keys: range, second: int, v: int = 1) -> list[dict[str, Any]]:
    return [{"k": f"k{key}", "ts": at(second), "v": v} for key in keys]


def start(query: Any, sink: Any, tmp_path: Any, **trigger: Any) -> Any:
    made = query.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    return made.trigger(**(trigger or {"availableNow": True})).start()


def test_a_join_of_two_topics_goes_on_where_it_stopped(spark, kafka, collected, tmp_path):
    a, b = kafka.make("a"), kafka.make("b", 3)

    def joined() -> Any:
        streams = {
            name: kafka.source(spark, topic, SCHEMA).drop("partition", "offset")
            for name, topic in {"a": a, "b": b}.items()
        }
        return fx.join(streams, on="k", time="ts", within="5 seconds").adapt(sites=2, partitions=8)

    kafka.send(a, rows(range(10), 0, 1))
    kafka.send(b, rows(range(5), 1, 2))
    start(joined(), collected, tmp_path).awaitTermination()
    kafka.send(b, rows(range(5, 10), 2, 3))
    kafka.send(a, rows(range(3), 30, 4))
    start(joined(), collected, tmp_path).awaitTermination()
    found = Counter((row["k"], row["a_v"], row["b_v"]) for row in collected.rows)
    assert found == Counter(
        {**{(f"k{key}", 1, 2): 1 for key in range(5)}, **{(f"k{key}", 1, 3): 1 for key in range(5, 10)}}
    )


def test_a_rate_limit_makes_batches_of_that_size_and_every_offset_comes_once(spark, kafka, collected, tmp_path):
    topic = kafka.make("in", 3)
    for partition in range(3):
        kafka.send(topic, rows(range(40), 0), partition)
    limited = kafka.source(spark, topic, SCHEMA, maxOffsetsPerTrigger=50)
    query = fx.aggregate(limited, by=["partition", "offset"], n=fx.count()).adapt(sites=2, partitions=8)
    run = start(query, collected, tmp_path)
    run.awaitTermination()
    assert [entry["rows_in"] for entry in run.epochs] == [48, 48, 24]
    assert Counter(row["n"] for row in collected.rows) == {1: 120}


def test_a_topic_that_gains_partitions_while_the_query_runs_is_read_whole(spark, kafka, collected, tmp_path):
    topic = kafka.make("in", 1)
    source = kafka.source(spark, topic, SCHEMA)
    query = fx.aggregate(source, by="partition", n=fx.count()).adapt(sites=2, partitions=8)
    run = start(query, collected, tmp_path, processingTime="200 milliseconds")
    try:
        kafka.send(topic, rows(range(10), 0))
        run.processAllAvailable()
        kafka.grow(topic, 3)
        for partition in range(3):
            kafka.send(topic, rows(range(7), 1), partition)
        run.processAllAvailable()
    finally:
        run.stop()
    assert {row["partition"]: row["n"] for row in collected.rows} == {0: 17, 1: 7, 2: 7}


def test_rows_of_a_partition_that_is_behind_by_less_than_the_lateness_count(spark, kafka, collected, tmp_path):
    """The watermark is the topic's: a partition may lag by the lateness, and by no more."""
    topic = kafka.make("in", 2)

    def windows() -> Any:
        source = kafka.source(spark, topic, SCHEMA)
        made = fx.aggregate(source, by="partition", time="ts", window="10 seconds", lateness="30 seconds", n=fx.count())
        return made.adapt(sites=2, partitions=8)

    kafka.send(topic, rows(range(4), 40), 0)
    start(windows(), collected, tmp_path).awaitTermination()
    kafka.send(topic, rows(range(3), 15), 1)
    kafka.send(topic, rows(range(2), 1), 1)
    kafka.send(topic, rows(range(4), 100), 0)
    start(windows(), collected, tmp_path).awaitTermination()
    found = {(row["partition"], row["window"]["start"].second): row["n"] for row in collected.rows}
    assert found == {(0, 40): 4, (1, 10): 3}


def test_a_chain_of_two_queries_over_a_topic_between_them_sees_only_what_is_committed(
    spark, kafka, collected, tmp_path
):
    first, between = kafka.make("in"), kafka.make("between")
    kafka.send(first, rows(range(30), 0))
    counts = fx.aggregate(kafka.source(spark, first, SCHEMA), by="k", n=fx.count()).adapt(sites=2, partitions=8)
    sent = counts.select(F.col("k").alias("key"), F.to_json(F.struct("k", "n")).alias("value"))
    made = sent.writeStream.format("kafka").option("kafka.bootstrap.servers", kafka.servers).option("topic", between)
    made = made.option("checkpointLocation", str(tmp_path / "first")).trigger(availableNow=True)
    made.start().awaitTermination()
    source = kafka.source(spark, between, "k string, n long", **{"kafka.isolation.level": "read_committed"})
    start(fx.aggregate(source, by="n", keys=fx.count()).adapt(sites=2), collected, tmp_path).awaitTermination()
    assert [(row["n"], row["keys"]) for row in collected.rows] == [(1, 30)]


@pytest.mark.slow
def test_a_broker_that_is_killed_and_comes_back_loses_and_repeats_nothing(spark, kafka, broker, tmp_path):
    """The query goes on by itself: rows are sent, the broker is killed under it, and rows are sent again."""
    import threading

    topic, out = kafka.make("in"), kafka.make("out")
    source = kafka.source(spark, topic, SCHEMA, maxOffsetsPerTrigger=100)
    counts = fx.aggregate(source, by="k", n=fx.count()).adapt(sites=2, partitions=8)
    sent = counts.select(F.col("k").alias("key"), F.to_json(F.struct("k", "n")).alias("value"))
    made = sent.writeStream.format("kafka").option("kafka.bootstrap.servers", kafka.servers).option("topic", out)
    made = made.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="100 milliseconds")
    run = made.start()
    try:
        for _ in range(3):
            kafka.send(topic, [row for _ in range(20) for row in rows(range(50), 0)])
            away = threading.Event()
            away.wait(2)  # in the middle of its batches
            broker.kill()
            away.wait(1)
            broker.start()
        kafka.send(topic, rows(range(50), 0))
        run.processAllAvailable()
    finally:
        run.stop()
    records = kafka.read(out)
    assert {one.key: one.json["n"] for one in sorted(records, key=lambda one: one.json["n"])} == {
        f"k{key}": 61 for key in range(50)
    }
    epochs = Counter((one.key, one.headers["fluxen.epoch"]) for one in records)
    assert set(epochs.values()) == {1}
