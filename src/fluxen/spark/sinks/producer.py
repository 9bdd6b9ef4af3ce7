"""A site's producer: its share of an epoch and the epoch's marker in one transaction. The driver's half is `kafka`.

A producer is kept by the worker process from epoch to epoch. Spark may run a site's next task in another process,
whose producer then fences this one; so the marker goes first in each transaction: a producer that was fenced meanwhile
learns it before it has taken a single row, and is replaced by one that looks at the marker anew.
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from fluxen.errors import ConfigError, StorageError
from fluxen.spark.sinks.delivery import Delivery

__all__ = ["SiteProducer", "check", "fence", "marker", "name_of", "producer_of"]

KEPT = 8
"""Producers that a worker process keeps."""
_WAIT_S = 60.0
"""How long a broker may be away."""
_ASK_S = 10.0
_AGAIN_S = 0.05
_POLL_EVERY = 1_000
_SOON = (
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError._TIMED_OUT,
)
"""What brokers say of a group's offsets while they start, or end a transaction."""
_DEFAULTS: dict[str, str | bool] = {
    # a site may send its first row long before its last; this is the most that brokers allow unless told otherwise
    "transaction.timeout.ms": "900000",
    "partitioner": "murmur2_random",  # as Kafka's Java clients, so that a key's partition is the one Spark would choose
    "delivery.report.only.error": True,
    "log_level": "2",  # what goes wrong is raised
}
_kept: OrderedDict[tuple[str, tuple[tuple[str, str], ...]], SiteProducer] = OrderedDict()


def name_of(checkpoint_id: str, site: int) -> str:
    """A site's transactional id, and the consumer group that holds its markers."""
    return f"fluxen-{checkpoint_id}-{site}"


def check(client: Mapping[str, str]) -> None:
    """Raise if a client would not take these settings."""
    try:
        Producer({**_DEFAULTS, **client, "transactional.id": "fluxen"}).purge()
    except (KafkaException, TypeError) as error:
        said = _text(error) if isinstance(error, KafkaException) else str(error)
        raise ConfigError(
            f"format('kafka') cannot use its options: {said}; those that begin with 'kafka.' are librdkafka's"
        ) from None


def fence(client: Mapping[str, str], name: str) -> None:
    """Abort what producers of this name have under way, and let them commit nothing any more."""
    with _reported(f"cannot take over the transactions of {name}"):
        _initialised(client, name)


def marker(client: Mapping[str, str], name: str, topic: str | None) -> int:
    """The last epoch that was sent under this name, -1 if there is none; its marker is at `topic`, or at any."""
    end = time.monotonic() + _WAIT_S
    while True:
        with _reported(f"cannot read the marker of {name}"):
            # also where any topic will do: the listing below must not meet a broker that is not ready (librdkafka
            # 2.16 crashes then), this call tells
            found, unstable = _committed(client, name, topic or "__consumer_offsets")
            if topic is None and unstable is None:
                found, unstable = _listed(client, name)
        if unstable is None:
            return max((int(at.offset) for at in found if at.offset >= 0), default=-1)
        # the commit of a transaction reaches the markers a moment after it is decided
        if time.monotonic() > end:
            raise StorageError(f"cannot read the marker of {name}: {unstable}")
        time.sleep(_AGAIN_S)


def _committed(client: Mapping[str, str], name: str, topic: str) -> tuple[list[Any], Any]:
    """The marker at a topic, and what says that it is about to change; a client is not asked twice, as it may go on
    asking a broker that does not know any more."""
    consumer = Consumer({**_reader(client), "group.id": name, "enable.auto.commit": False})
    try:
        return _stable(lambda: consumer.committed([TopicPartition(topic, 0)], _ASK_S))
    finally:
        consumer.close()


def _listed(client: Mapping[str, str], name: str) -> tuple[list[Any], Any]:
    """The markers at all topics."""
    admin = AdminClient(_reader(client))  # has to live as long as the answer is waited for, which never comes otherwise
    asked = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(name)], require_stable=True, request_timeout=_WAIT_S
    )
    return _stable(lambda: asked[name].result(2 * _WAIT_S).topic_partitions or [])


def _stable(ask: Any) -> tuple[list[Any], Any]:
    try:
        found = ask()
    except KafkaException as error:
        if error.args[0].code() not in _SOON and not error.args[0].retriable():
            raise
        return [], error.args[0]
    return found, next((at.error for at in found if at.error is not None), None)


def producer_of(client: Mapping[str, str], name: str) -> SiteProducer:
    """The process's producer of this name."""
    key = name, tuple(sorted(client.items()))
    found = _kept.pop(key, None) or SiteProducer(client, name)
    _kept[key] = found
    while len(_kept) > KEPT:
        _kept.popitem(last=False)
    return found


class SiteProducer:
    """Sends one site's results."""

    def __init__(self, client: Mapping[str, str], name: str) -> None:
        self.client, self.name = client, name
        self._producer: Any = None
        self._group: Any = None
        self._newest = -1
        """the last epoch known to be there"""
        self._refused: list[str] = []
        """why the broker has not taken the first record of those it has not taken"""

    def deliver(self, batches: Iterator[pa.RecordBatch], share: Delivery, *, always: bool) -> str | None:
        """Send the rows unless they are there; gives the marker's topic, None if there were no rows to mark.

        All rows are taken in any case: what makes them has more to do than its results. `always` marks an epoch
        without rows, too.
        """
        marked = share.marked
        headers = [("fluxen.checkpoint", share.checkpoint_id.encode()), ("fluxen.epoch", str(share.epoch).encode())]
        open_ = there = False
        try:
            for batch in batches:
                if batch.num_rows and not open_ and not there:
                    marked = marked or _named(batch.column("topic")[0].as_py())
                    open_ = self._begin(share, marked)
                    there = not open_
                if open_:
                    self._send(batch, share, headers)
            if always and marked is not None and not open_ and not there:
                open_ = self._begin(share, marked)
                there = not open_
            if open_:
                self._commit(share.epoch)
        except BaseException:
            self._forget()
            raise
        return marked if open_ or there else None

    # ---- the transaction

    def _begin(self, share: Delivery, marked: str) -> bool:
        """Begin the epoch's transaction with its marker; False if the epoch is there already."""
        epoch = share.epoch
        with _reported(f"cannot begin the transaction of epoch {epoch}"):
            if self._producer is not None and self._newest < epoch:
                try:
                    self._mark(epoch, marked)
                    return True
                except KafkaException:  # another process has had the site's tasks since
                    self._forget()
            if self._producer is None:
                self._producer = _initialised(self.client, self.name, self._refused)
                # only now: a driver that takes over has its claim before it fences, and then fences this producer, too
                share.claim.hold()
                self._newest = marker(self.client, self.name, share.known)
            if self._newest >= epoch:
                return False
            self._mark(epoch, marked)
            return True

    def _mark(self, epoch: int, marked: str) -> None:
        if self._group is None:
            consumer = Consumer({**_reader(self.client), "group.id": self.name})
            self._group = consumer.consumer_group_metadata()
            consumer.close()
        self._producer.begin_transaction()
        at = TopicPartition(marked, 0, epoch)
        self._patiently(lambda: self._producer.send_offsets_to_transaction([at], self._group, _WAIT_S))

    def _commit(self, epoch: int) -> None:
        try:
            self._patiently(lambda: self._producer.commit_transaction(_WAIT_S))
        except KafkaException:
            with _reported(": ".join([f"cannot commit the transaction of epoch {epoch}", *self._refused])):
                raise
        self._newest = epoch

    def _patiently(self, step: Any) -> None:
        """Take a step again while it may be, as when a broker is being started."""
        end = time.monotonic() + _WAIT_S
        while True:
            try:
                step()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > end:
                    raise
            time.sleep(_AGAIN_S)

    def _forget(self) -> None:
        """Leave the producer, its transaction aborted if that can be done: readers wait for its end."""
        if self._producer is not None:
            with contextlib.suppress(KafkaException):
                self._producer.purge()
                self._producer.abort_transaction(5.0)
        self._producer = None
        self._refused.clear()

    # ---- rows

    def _send(self, batch: pa.RecordBatch, share: Delivery, ours: list[tuple[str, bytes]]) -> None:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        nothing = [None] * batch.num_rows
        topics = nothing if share.topic is not None else columns["topic"]
        rows = zip(
            columns["value"],
            columns.get("key", nothing),
            topics,
            columns.get("partition", nothing),
            columns.get("headers", nothing),
        )
        send = self._producer.produce
        for number, (value, key, where, partition, headers) in enumerate(rows):
            more = ours if headers is None else [(one["key"], one["value"]) for one in headers] + ours
            to = share.topic if share.topic is not None else _named(where)
            at = -1 if partition is None else partition
            try:
                try:
                    send(to, value, key, at, headers=more)
                except BufferError:  # the broker is slower than the site
                    self._send_later(to, value, key, at, headers=more)
            except KafkaException:
                with _reported(f"cannot send a result of epoch {share.epoch} to topic {to!r}, partition {partition}"):
                    raise
            if number % _POLL_EVERY == 0:
                self._producer.poll(0)

    def _send_later(self, *record: Any, headers: list[tuple[str, bytes]]) -> None:
        end = time.monotonic() + _WAIT_S
        while time.monotonic() < end:
            self._producer.poll(_AGAIN_S)
            with contextlib.suppress(BufferError):
                self._producer.produce(*record, headers=headers)
                return
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no record was taken for {_WAIT_S:.0f} s"))


def _named(topic: str | None) -> str:
    if topic is None:
        raise ConfigError("a result has no topic: give column 'topic' a value, or option('topic', ...)")
    return topic


def _initialised(client: Mapping[str, str], name: str, refused: list[str] | None = None) -> Any:
    first: list[str] = [] if refused is None else refused

    def report(error: Any, message: Any) -> None:
        if error is not None and not first:
            first.append(f"{error.str()} (topic {message.topic()!r}, partition {message.partition()})")

    made = Producer({**_DEFAULTS, **client, "transactional.id": name, "on_delivery": report})
    end = time.monotonic() + _WAIT_S
    while True:
        try:
            made.init_transactions(_WAIT_S)
            return made
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > end:
                raise
        time.sleep(_AGAIN_S)


def _reader(client: Mapping[str, str]) -> dict[str, str]:
    """The same settings for those that read markers; clients pass over what only a producer has a use for."""
    return {**client, "isolation.level": "read_committed", "log_level": "2"}


@contextlib.contextmanager
def _reported(what: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        code = error.args[0].code()
        advice = "see what the broker says; a restart sends what is missing of the epoch"
        if code in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            advice = "another attempt or another driver has taken the site's transactions over"
        elif code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            advice = (
                "set option('kafka.transaction.timeout.ms', ...) to at most the broker's transaction.max.timeout.ms"
            )
        raise StorageError(f"{what}: {_text(error)}; {advice}") from error


def _text(error: KafkaException) -> str:
    return str(error.args[0].str())
