"""What `format("kafka")` refuses when a query is built; no broker and no JVM is needed to know it."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pyspark.sql import types as st

from fluxen.errors import ConfigError, PlatformError, QueryError
from fluxen.spark.sinks.base import SinkWords
from fluxen.spark.sinks.kafka import KafkaSink

HEADER = st.StructType([st.StructField("key", st.StringType()), st.StructField("value", st.BinaryType())])
KINDS = {
    "string": st.StringType(),
    "binary": st.BinaryType(),
    "long": st.LongType(),
    "int": st.IntegerType(),
    "headers": st.ArrayType(HEADER),
}
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
RESULTS = {"value": "string"}
WRONG: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "nothing to send": ({"key": "string"}, SERVERS, "needs a column 'value'"),
    "a column that is not Kafka's": ({**RESULTS, "n": "long"}, SERVERS, r"takes the columns .*'n'.*to_json"),
    "a number as key": ({**RESULTS, "key": "long"}, SERVERS, "'key' must be string or binary for Kafka, got bigint"),
    "no servers": (RESULTS, {"topic": "t"}, "kafka.bootstrap.servers"),
    "no topic": (RESULTS, {"kafka.bootstrap.servers": "127.0.0.1:1"}, "needs option.'topic'"),
    "an id of its own": (RESULTS, {**SERVERS, "kafka.transactional.id": "x"}, "set by fluxen"),
    "an option nobody knows": (RESULTS, {**SERVERS, "topik": "x"}, "no use for option 'topik'"),
    "an option that clients do not know": (
        RESULTS,
        {**SERVERS, "kafka.lingr.ms": "1"},
        'cannot use.*"lingr.ms".*librdkafka',
    ),
    "an option of Java's": (RESULTS, {**SERVERS, "kafka.sasl.jaas.config": "x"}, "cannot use its options: Java JAAS"),
}


def words(columns: dict[str, str], options: dict[str, str]) -> SinkWords:
    schema = st.StructType([st.StructField(name, KINDS[kind]) for name, kind in columns.items()])
    spark: Any = None
    return SinkWords(spark=spark, source="kafka", options=options, partition_by=[], name=None, schema=schema)


@pytest.mark.parametrize("what", WRONG)
def test_what_kafka_cannot_take_is_refused_when_the_query_is_built(what: str) -> None:
    pytest.importorskip("confluent_kafka")
    columns, options, message = WRONG[what]
    with pytest.raises((ConfigError, QueryError), match=message):
        KafkaSink.of(words(columns, options))


def test_what_sparks_own_sink_takes_is_taken() -> None:
    pytest.importorskip("confluent_kafka")
    columns = {"key": "binary", "value": "binary", "headers": "headers", "topic": "string", "partition": "int"}
    sink = KafkaSink.of(words(columns, {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.linger.ms": "50"}))
    assert (sink.topic, sink.client["linger.ms"]) == (None, "50")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.delitem(sys.modules, "fluxen.spark.sinks.producer", raising=False)
    monkeypatch.delattr("fluxen.spark.sinks.producer", raising=False)
    with pytest.raises(PlatformError, match=r"pip install 'fluxen\[kafka\]'"):
        KafkaSink.of(words(RESULTS, SERVERS))
