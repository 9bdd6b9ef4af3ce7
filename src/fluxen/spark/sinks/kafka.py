"""A Kafka topic that holds every result once for readers with isolation level read_committed: the driver's half.

Each site sends its share of an epoch in one transaction, together with a marker that says so: the epoch as the
committed offset of a consumer group of the site's own. Both become visible in the same moment. A run that takes over
first fences the producers of the run before and then reads the markers. The sites' half is `producer`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from fluxen.errors import CheckpointError, ConfigError, PlatformError, QueryError
from fluxen.spark.sinks.base import FormatSink, SinkWords
from fluxen.state.store import Store

__all__ = ["KafkaSink"]

NOTE = "kafka.json"
"""in the checkpoint: that there are markers, and on which topic"""
_PREFIX = "kafka."
_STRING, _BINARY = st.StringType(), st.BinaryType()
_HEADERS = st.ArrayType(st.StructType([st.StructField("key", _STRING), st.StructField("value", _BINARY)]))
_COLUMNS: dict[str, tuple[st.DataType, ...]] = {
    "key": (_STRING, _BINARY),
    "value": (_STRING, _BINARY),
    "headers": (_HEADERS,),
    "topic": (_STRING,),
    "partition": (st.IntegerType(),),
}
"""what a result may have, as Spark's own sink takes it"""
_OURS = ("transactional.id", "enable.idempotence", "group.id")


class KafkaSink(FormatSink):
    """One transaction per site and epoch."""

    @classmethod
    def of(cls, words: SinkWords) -> KafkaSink:
        client = {key[len(_PREFIX) :]: value for key, value in words.options.items() if key.startswith(_PREFIX)}
        words.refuse("topic", *(key.lower() for key in words.options if key.startswith(_PREFIX)))
        if "bootstrap.servers" not in client:
            raise ConfigError("format('kafka') needs option('kafka.bootstrap.servers', 'host:port')")
        for name in _OURS:
            if name in client:
                raise ConfigError(
                    f"option 'kafka.{name}' is set by fluxen, so that results are sent once; leave it out"
                )
        _check_columns(words.schema)
        topic = words.option("topic")
        if topic is None and "topic" not in words.schema.names:
            raise QueryError("format('kafka') needs option('topic', ...), or a column 'topic' in the results")
        return cls(client, topic)

    def __init__(self, client: dict[str, str], topic: str | None) -> None:
        self.client, self.topic = client, topic
        self._store: Store | None = None
        self._noted = False
        self._marked: str | None = topic
        _clients().check(client)

    def opened(self, store: Store, checkpoint_id: str) -> None:
        super().opened(store, checkpoint_id)
        self._store = store

    def delivering(self, epoch: int, sites: int) -> bool:
        """End what an earlier run has under way, then see which sites' shares of the epoch are there."""
        assert self._store is not None
        clients = _clients()
        self._noted = self._store.exists(NOTE)
        if self._noted:
            self._marked = self.topic or json.loads(self._store.read(NOTE))["topic"]
        with ThreadPoolExecutor(min(8, sites)) as pool:
            names = [clients.name_of(self.checkpoint_id, site) for site in range(sites)]
            list(pool.map(lambda name: clients.fence(self.client, name), names))
            markers = list(pool.map(lambda name: clients.marker(self.client, name, self._marked), names))
        self._check_markers(epoch, markers)
        return any(marker == epoch for marker in markers)

    def _check_markers(self, epoch: int, markers: list[int]) -> None:
        assert self._store is not None
        newest = max(markers)
        if newest > epoch:
            raise CheckpointError(
                f"Kafka has epoch {newest} of this query, but the checkpoint {self._store.root} goes on with epoch "
                f"{epoch}: it is older than what was delivered; restore a newer copy, or start with a new checkpoint "
                "location"
            )
        if self._noted and newest < 0:
            raise CheckpointError(
                f"Kafka has no marker of this query any more, so it is not known which results of epoch {epoch} were "
                "delivered: brokers forget them after offsets.retention.minutes; to deliver all of them, delete "
                f"{self._store.path(NOTE)}"
            )

    def __call__(self, results: DataFrame, epoch: int) -> None:
        share = Share(self.client, self.topic, self._marked, self.checkpoint_id, epoch)
        sent = results.mapInArrow(share, "topic string").collect()
        if not self._noted and sent:
            assert self._store is not None
            self._marked = str(sent[0].topic)
            self._store.create(NOTE, json.dumps({"topic": self._marked}).encode())
            self._noted = True


class Share:
    """What a Spark task executes: sends one site's results; gives the marker's topic if there is a marker."""

    def __init__(
        self, client: dict[str, str], topic: str | None, marked: str | None, checkpoint_id: str, epoch: int
    ) -> None:
        self.client, self.topic, self.marked = client, topic, marked
        self.checkpoint_id, self.epoch = checkpoint_id, epoch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        site = context.partitionId()
        clients = _clients()
        producer = clients.producer_of(self.client, clients.name_of(self.checkpoint_id, site))
        # the first site marks every epoch, so that it can be seen whether the broker still knows
        marked = producer.deliver(
            batches, self.epoch, topic=self.topic, marked=self.marked, stamp=self.checkpoint_id, always=site == 0
        )
        if marked is not None:
            yield pa.record_batch({"topic": pa.array([marked])})


def _clients() -> Any:
    """The module that speaks to Kafka, which is there with the extra only."""
    try:
        from fluxen.spark.sinks import producer
    except ImportError as error:
        raise PlatformError(
            f"format('kafka') as a sink needs confluent-kafka ({error}); run pip install 'fluxen[kafka]' here and "
            "where Spark's executors run, or use foreachBatch and Spark's own sink, which repeats results after a crash"
        ) from None
    return producer


def _check_columns(schema: st.StructType) -> None:
    for column in schema.fields:
        known = _COLUMNS.get(column.name)
        if known is None:
            raise QueryError(
                f"format('kafka') takes the columns {', '.join(_COLUMNS)}, and the results have {column.name!r}; "
                "select(F.col('...').alias('key'), F.to_json(F.struct('*')).alias('value'))"
            )
        if not any(_same(column.dataType, kind) for kind in known):
            names = " or ".join(kind.simpleString() for kind in known)
            raise QueryError(f"column {column.name!r} must be {names} for Kafka, got {column.dataType.simpleString()}")
    if "value" not in schema.names:
        raise QueryError(f"format('kafka') needs a column 'value'; the results have: {', '.join(schema.names)}")


def _same(one: st.DataType, other: st.DataType) -> bool:
    """Whether types agree but for what may be null."""
    return bool(one.simpleString() == other.simpleString())
