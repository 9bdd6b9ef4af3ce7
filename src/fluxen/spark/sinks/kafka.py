"""A Kafka topic that holds every result once for readers with isolation level read_committed: the driver's half.

Each site sends its share of an epoch in one transaction, together with a marker that says so: the epoch as the
committed offset of a consumer group of the site's own. Both become visible in the same moment. A run that takes over
first fences the producers of the run before and then reads the markers. The sites' half is `producer`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from fluxen.errors import CheckpointError, ConfigError, PlatformError, QueryError
from fluxen.spark.sinks.base import FormatSink, SinkWords
from fluxen.spark.sinks.delivery import Delivery
from fluxen.state.claim import Claim
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
        self._claim: Claim | None = None
        self._noted: str | None = None
        """the topic that the checkpoint's note names"""
        _clients().check(client)

    def opened(self, claim: Claim, checkpoint_id: str) -> None:
        super().opened(claim, checkpoint_id)
        self._claim = claim

    @property
    def _store(self) -> Store:
        assert self._claim is not None
        return self._claim.store

    @property
    def _marked(self) -> str | None:
        """The topic of new markers; None for that of a site's first result."""
        return self.topic or self._noted

    @property
    def _known(self) -> str | None:
        """The topic at which all markers are; None if they may be at several."""
        return self.topic if self._noted in (None, self.topic) else None

    def delivering(self, epoch: int, sites: int) -> bool:
        """End what an earlier run has under way, then see which sites' shares of the epoch are there."""
        clients = _clients()
        self._noted = str(json.loads(self._store.read(NOTE))["topic"]) if self._store.exists(NOTE) else None
        with ThreadPoolExecutor(min(8, sites)) as pool:
            names = [clients.name_of(self.checkpoint_id, site) for site in range(sites)]
            list(pool.map(lambda name: clients.fence(self.client, name), names))
            markers = list(pool.map(lambda name: clients.marker(self.client, name, self._known), names))
        self._check_markers(epoch, markers)
        return any(marker == epoch for marker in markers)

    def _check_markers(self, epoch: int, markers: list[int]) -> None:
        newest = max(markers)
        self.refuse_older("Kafka", newest, epoch)
        if self._noted is not None and newest < 0:
            raise CheckpointError(
                f"Kafka has no marker of this query any more, so it is not known which results of epoch {epoch} were "
                "delivered: brokers forget them after offsets.retention.minutes; to deliver all of them, delete "
                f"{self._store.path(NOTE)}"
            )

    def __call__(self, results: DataFrame, epoch: int) -> None:
        assert self._claim is not None
        share = Share(
            client=self.client,
            topic=self.topic,
            marked=self._marked,
            known=self._known,
            checkpoint_id=self.checkpoint_id,
            epoch=epoch,
            claim=self._claim,
        )
        sent = results.mapInArrow(share, "topic string").collect()
        if self._noted is None and sent:
            self._noted = str(sent[0].topic)
            self._store.create(NOTE, json.dumps({"topic": self._noted}).encode())


@dataclass(frozen=True, kw_only=True)
class Share(Delivery):
    """What a Spark task executes: sends one site's results; gives the marker's topic if there is a marker."""

    client: dict[str, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        site = context.partitionId()
        clients = _clients()
        producer = clients.producer_of(self.client, clients.name_of(self.checkpoint_id, site))
        # the first site marks every epoch, so that it can be seen whether the broker still knows
        marked = producer.deliver(batches, self, always=site == 0)
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
