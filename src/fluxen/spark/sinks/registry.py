"""The sinks by name."""

from __future__ import annotations

from collections.abc import Mapping

from fluxen.errors import ConfigError
from fluxen.registry import Registry
from fluxen.spark.sinks.base import FormatSink, Sink, SinkWords
from fluxen.spark.sinks.files import FILES, FileSink, TableSink
from fluxen.spark.sinks.kafka import KafkaSink
from fluxen.spark.sinks.shown import ConsoleSink, MemorySink
from fluxen.spark.sinks.tables import DeltaSink, IcebergSink, SparkSink, require_merge, upsert_keys

__all__ = ["SINKS", "builtin_sink", "table_sink"]


def builtin_sink(words: SinkWords) -> Sink:
    """The sink for a format's name; one that is not ours is Spark's."""
    unknown = [column for column in words.partition_by if column not in words.schema.names]
    if unknown:
        raise ConfigError(f"partitionBy names {unknown[0]!r}; the results have: {', '.join(words.schema.names)}")
    if words.source != "delta":
        _refuse_upsert(words, f"format({words.source!r})")
    return SINKS.members.get(words.source, SparkSink).of(words)


def table_sink(table: str, words: SinkWords) -> Sink:
    """The sink for a table of Spark's catalog, which is made if it is not there yet."""
    spark, keys = words.spark, upsert_keys(words)
    options = words.without("upsert")
    if not spark.catalog.tableExists(table):
        writer = spark.createDataFrame([], words.schema).write.format(words.source).options(**options)
        (writer.partitionBy(*words.partition_by) if words.partition_by else writer).saveAsTable(table)
    found = {field.name: field.dataType.simpleString() for field in spark.table(table).schema.fields}
    wanted = {field.name: field.dataType.simpleString() for field in words.schema.fields}
    if found != wanted:
        raise ConfigError(f"table {table} has the columns {_listed(found)}, the results {_listed(wanted)}")
    partitions = [column.name for column in spark.catalog.listColumns(table) if column.isPartition]
    if words.partition_by and words.partition_by != partitions:
        raise ConfigError(f"table {table} is partitioned by {partitions}, not by {words.partition_by}; leave it out")
    described = {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()}
    source = described.get("Provider", words.source).lower()
    if source != "delta":
        _refuse_upsert(words, f"table {table} of {source}")
    if source in FILES:
        return TableSink(spark, table, source, described["Location"], words.without("path"), partitions)
    kind = _TABLES.get(source, SparkSink)
    # one of Iceberg may be partitioned by what is computed from columns, too, and takes rows without being told
    sink = kind(source, options, [] if source == "iceberg" else partitions, table)
    if isinstance(sink, DeltaSink) and keys:
        require_merge(spark)
        sink.keys = keys
    return sink


def _refuse_upsert(words: SinkWords, what: str) -> None:
    if words.option("upsert") is not None:
        raise ConfigError(f"option upsert is for tables of Delta, not for {what}; leave it out")


def _listed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


_TABLES: dict[str, type[SparkSink]] = {"delta": DeltaSink, "iceberg": IcebergSink}
SINKS: Registry[FormatSink] = Registry(
    what="sink",
    base=FormatSink,  # type: ignore[type-abstract]
    members={
        **dict.fromkeys(FILES, FileSink),
        "memory": MemorySink,
        "console": ConsoleSink,
        "noop": SparkSink,
        "kafka": KafkaSink,
        **_TABLES,
    },
)
