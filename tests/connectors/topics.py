"""Topics of one test: made, filled and read by a client that knows nothing of Spark and fluxen."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic


@dataclass(frozen=True)
class Record:
    key: str | None
    value: str
    headers: dict[str, str]
    partition: int

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.value))


class Topics:
    """Names begin with the test's and are its alone, so that tests share a broker."""

    def __init__(self, servers: str, test: str) -> None:
        self.servers, self.prefix = servers, f"{re.sub(r'[^a-z0-9]+', '-', test)[:60]}-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": servers})

    def make(self, name: str, partitions: int = 2) -> str:
        topic = f"{self.prefix}-{name}"
        for made in self.admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            made.result(30)
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        for made in self.admin.create_partitions([NewPartitions(topic, partitions)]).values():
            made.result(30)

    def send(self, topic: str, rows: Iterable[dict[str, Any]], partition: int = -1) -> None:
        """Rows as JSON."""
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all"})  # one that knows all partitions
        for row in rows:
            producer.produce(topic, json.dumps(row), key=str(row["k"]), partition=partition)
        assert producer.flush(60) == 0

    def read(self, topic: str, isolation: str = "read_committed") -> list[Record]:
        """All that is there now."""
        settings = {"bootstrap.servers": self.servers, "group.id": "reader", "enable.partition.eof": True}
        consumer = Consumer({**settings, "isolation.level": isolation, "auto.offset.reset": "earliest"})
        partitions = list(self.admin.list_topics(topic).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found, ended = [], set[int]()
        while len(ended) < len(partitions):
            message = consumer.poll(30)
            assert message is not None, f"{topic} cannot be read to its end: an open transaction?"
            if message.error() is None:
                found.append(_record(message))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        consumer.close()
        return found

    def source(self, spark: Any, topic: str, schema: str, **options: Any) -> Any:
        """A stream of the rows that `send` has sent."""
        from pyspark.sql import functions as F

        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers)
        rows = reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()
        parsed = F.from_json(F.col("value").cast("string"), schema).alias("row")
        return rows.select(parsed, "partition", "offset").select("row.*", "partition", "offset")


def _record(message: Any) -> Record:
    key, headers = message.key(), message.headers() or []
    return Record(
        None if key is None else key.decode(),
        message.value().decode(),
        {name: value.decode() for name, value in headers},
        message.partition(),
    )


def updates(records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """Per key the last value, as a compacted topic holds it."""
    return {str(record.key): record.json for record in records}
