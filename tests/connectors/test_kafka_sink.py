"""Kafka out: every result is there once for readers that read what is committed, whatever ended a run."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import fluxen as fx
from fluxen.errors import CheckpointError, FluxenError
from fluxen.state.claim import take
from fluxen.state.epoch import EpochLog
from fluxen.state.store import Store
from fluxen.testing import feed

pytestmark = pytest.mark.connectors

KEYS = 20


def tables(batches: int) -> list[pa.Table]:
    """Each batch brings every key once."""
    return [pa.table({"k": [*range(KEYS)], "v": [number] * KEYS}) for number in range(batches)]


def counting(spark: Any, directory: Path, batches: int, sites: int = 2) -> Any:
    rows = feed(spark, tables(batches), directory / "input")
    counts = fx.aggregate(rows, by="k", n=fx.count(), total=fx.sum("v")).adapt(sites=sites, partitions=8)
    return counts.select(F.col("k").cast("string").alias("key"), F.to_json(F.struct("k", "n", "total")).alias("value"))


def writer(kafka: Any, query: Any, directory: Path, topic: str | None, **options: str) -> Any:
    made = query.writeStream.format("kafka").option("kafka.bootstrap.servers", kafka.servers).options(**options)
    made = made if topic is None else made.option("topic", topic)
    return made.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)


def run(kafka: Any, query: Any, directory: Path, topic: str | None, **options: str) -> None:
    writer(kafka, query, directory, topic, **options).start().awaitTermination()


def expected(batches: int) -> Counter[tuple[str, int, int]]:
    """(key, count, epoch) of every update."""
    return Counter((str(key), number + 1, number) for number in range(batches) for key in range(KEYS))


def found(records: Any) -> Counter[tuple[str, int, int]]:
    return Counter((one.key, one.json["n"], int(one.headers["fluxen.epoch"])) for one in records)


def test_every_result_comes_once_with_its_query_and_epoch(spark, kafka, tmp_path):
    topic = kafka.make("out")
    run(kafka, counting(spark, tmp_path, 3), tmp_path, topic)
    run(kafka, counting(spark, tmp_path, 3), tmp_path, topic)
    run(kafka, counting(spark, tmp_path, 5), tmp_path, topic)
    records = kafka.read(topic)
    assert found(records) == expected(5)
    (query,) = {one.headers["fluxen.checkpoint"] for one in records}
    assert uuid.UUID(query)
    assert len({one.partition for one in records}) == 2
    assert all(len({one.partition for one in records if one.key == str(key)}) == 1 for key in range(KEYS))


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run` that dies when it has delivered an epoch and not committed it."""

    def once(at: int, *arguments: Any, **options: str) -> None:
        commit = EpochLog.commit

        def dies(log: EpochLog, epoch: Any) -> None:
            if epoch.number == at:
                raise RuntimeError("killed between the sink and the commit")
            commit(log, epoch)

        with monkeypatch.context() as patched:
            patched.setattr(EpochLog, "commit", dies)
            with pytest.raises(Exception, match="killed between"):
                run(*arguments, **options)

    return once


def test_an_epoch_that_was_delivered_and_not_committed_is_not_delivered_again(spark, kafka, tmp_path, dying):
    topic = kafka.make("out")
    dying(1, kafka, counting(spark, tmp_path, 3), tmp_path, topic)
    assert found(kafka.read(topic)) == expected(2)
    run(kafka, counting(spark, tmp_path, 3), tmp_path, topic)
    assert found(kafka.read(topic)) == expected(3)


def test_sites_that_mark_the_first_epoch_at_different_topics_send_it_once(spark, kafka, tmp_path, dying):
    """Where each result says its topic, a site's first marker is at the topic of its first result."""
    topics = [kafka.make("of-site-0"), kafka.make("of-site-1")]

    def query(batches: int) -> Any:
        each = F.when(F.spark_partition_id() == 0, topics[0]).otherwise(topics[1])
        return counting(spark, tmp_path, batches).select("key", "value", each.alias("topic"))

    dying(0, kafka, query(2), tmp_path, None)
    assert (tmp_path / "checkpoint" / "kafka.json").exists()
    run(kafka, query(2), tmp_path, None)
    records = [kafka.read(topic) for topic in topics]
    assert all(records)
    assert found(records[0] + records[1]) == expected(2)


def test_a_restart_with_another_topic_goes_on_there(spark, kafka, tmp_path, dying):
    first, second = kafka.make("first"), kafka.make("second")
    dying(1, kafka, counting(spark, tmp_path, 2), tmp_path, first)
    for _ in range(2):
        run(kafka, counting(spark, tmp_path, 3), tmp_path, second)
    assert found(kafka.read(first)) == expected(2)
    assert found(kafka.read(second)) == expected(3) - expected(2)


def test_a_producers_settings_are_no_trouble_to_what_reads_markers(spark, kafka, tmp_path, dying):
    topic = kafka.make("out")
    settings = {"linger.ms": "20", "compression.type": "gzip", "isolation.level": "read_uncommitted", "acks": "all"}
    options = {f"kafka.{name}": value for name, value in settings.items()}
    dying(1, kafka, counting(spark, tmp_path, 2), tmp_path, topic, **options)
    run(kafka, counting(spark, tmp_path, 3), tmp_path, topic, **options)
    assert found(kafka.read(topic)) == expected(3)


def test_a_task_of_a_driver_that_has_lost_its_claim_sends_nothing(kafka, tmp_path):
    """It may start after the new driver's own, whose producer it would fence."""
    from fluxen.spark.sinks import producer
    from fluxen.spark.sinks.kafka import Share

    topic, client, claim = kafka.make("out"), {"bootstrap.servers": kafka.servers}, take(Store(str(tmp_path)))
    rows = pa.record_batch({"key": ["k"], "value": ['{"n": 1}']})
    share = Share(client=client, topic=topic, marked=topic, known=topic, checkpoint_id="c", epoch=0, claim=claim)
    claim.release()
    with pytest.raises(CheckpointError, match="does not hold the checkpoint"):
        producer.SiteProducer(client, kafka.prefix).deliver(iter([rows]), share, always=True)
    share = replace(share, claim=take(Store(str(tmp_path))))
    assert producer.SiteProducer(client, kafka.prefix).deliver(iter([rows]), share, always=True) == topic
    assert found(kafka.read(topic)) == Counter({("k", 1, 0): 1})


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "a partition there is not": ({"partition": "7"}, r"Unknown partition .*topic '.*', partition 7"),
    "a record that is too large": ({"value": "repeat('x', 2000000)"}, r"cannot send a result of epoch 0.*too large"),
    "a topic there is not": ({"topic": "'no-such-topic'"}, "no-such-topic"),
    "no topic": ({"topic": "cast(null as string)"}, "a result has no topic"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_sent_ends_the_query_with_the_reason(what, spark, kafka, tmp_path):
    columns, message = WRONG[what]
    columns = {"key": "key", "value": "value", "topic": f"'{kafka.make('out')}'", **columns}
    query = counting(spark, tmp_path, 1).select(*(F.expr(how).alias(name) for name, how in columns.items()))
    if "partition" in columns:
        query = query.withColumn("partition", F.col("partition").cast("int"))
    with pytest.raises(FluxenError, match=message):
        run(kafka, query, tmp_path, None)


@pytest.mark.parametrize("sites", [2, 3, 1])
def test_a_restart_completes_an_epoch_of_which_one_site_has_sent_its_share(spark, kafka, tmp_path, sites, monkeypatch):
    """Whatever number of sites it asks for: the rest of the epoch is shared out as it was."""
    from fluxen.spark.sinks import kafka as sink

    topic = kafka.make("out")
    run(kafka, counting(spark, tmp_path, 1), tmp_path, topic)
    send = sink.Share.__call__

    class Half(sink.Share):
        """Site 1 fails when site 0 has sent its share of epoch 1."""

        def __call__(self, batches: Any) -> Any:
            from pyspark import TaskContext

            from fluxen.spark.sinks import producer

            if self.epoch == 1 and TaskContext.get().partitionId() == 1:
                while producer.marker(self.client, producer.name_of(self.checkpoint_id, 0), topic) < 1:
                    pass
                raise RuntimeError("this site's machine is gone")
            yield from send(self, batches)

    with monkeypatch.context() as patched:
        patched.setattr(sink, "Share", Half)
        with pytest.raises(Exception, match="machine is gone"):
            run(kafka, counting(spark, tmp_path, 2), tmp_path, topic)
    part = found(kafka.read(topic)) - expected(1)
    assert 0 < len(part) < KEYS
    run(kafka, counting(spark, tmp_path, 3, sites), tmp_path, topic)
    assert found(kafka.read(topic)) == expected(3)


def groups(kafka: Any, directory: Path) -> list[str]:
    """The names under which the sites of a checkpoint send, in order."""
    own = (directory / "checkpoint" / "id.json").read_text()
    known = [group.group_id for group in kafka.admin.list_consumer_groups().result().valid]
    return sorted(name for name in known if name.startswith("fluxen-") and name[7:43] in own)


def test_a_transaction_of_a_run_that_is_gone_holds_no_reader_up(spark, kafka, tmp_path):
    from confluent_kafka import Producer

    topic = kafka.make("out")
    run(kafka, counting(spark, tmp_path, 1), tmp_path, topic)
    left = Producer({"bootstrap.servers": kafka.servers, "transactional.id": groups(kafka, tmp_path)[1]})
    left.init_transactions(30)
    left.begin_transaction()
    left.produce(topic, b"{}", b"half")
    left.flush(30)
    run(kafka, counting(spark, tmp_path, 2), tmp_path, topic)
    assert found(kafka.read(topic)) == expected(2)
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        left.commit_transaction(30)


def test_lost_markers_and_old_checkpoints_are_errors_not_repeats(spark, kafka, tmp_path):
    topic = kafka.make("out")
    run(kafka, counting(spark, tmp_path, 1), tmp_path, topic)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    run(kafka, counting(spark, tmp_path, 3), tmp_path, topic)
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "copy", tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match="older than what was delivered"):
        run(kafka, counting(spark, tmp_path, 3), tmp_path, topic)
    for deleted in kafka.admin.delete_consumer_groups(groups(kafka, tmp_path)).values():
        deleted.result()
    with pytest.raises(CheckpointError, match=r"no marker.*kafka\.json"):
        run(kafka, counting(spark, tmp_path, 3), tmp_path, topic)


def test_rows_say_their_topic_partition_and_headers(spark, kafka, tmp_path):
    topics = [kafka.make("even"), kafka.make("odd")]
    rows = feed(spark, tables(2), tmp_path / "input")
    counts = fx.aggregate(rows, by="k", n=fx.count()).adapt(sites=2, partitions=8)
    query = counts.select(
        F.concat(F.lit(topics[0].removesuffix("even")), F.expr("if(k % 2 = 0, 'even', 'odd')")).alias("topic"),
        F.lit(1).alias("partition"),
        F.array(F.struct(F.lit("of").alias("key"), F.encode(F.lit("me"), "utf-8").alias("value"))).alias("headers"),
        F.to_json(F.struct("k", "n")).alias("value"),
    )
    made = query.writeStream.format("kafka").option("kafka.bootstrap.servers", kafka.servers)
    made = made.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    made.start().awaitTermination()
    for odd, topic in enumerate(topics):
        records = kafka.read(topic)
        assert len(records) == KEYS
        assert {one.json["k"] % 2 for one in records} == {odd}
        assert {(one.partition, one.key, one.headers["of"]) for one in records} == {(1, None, "me")}
