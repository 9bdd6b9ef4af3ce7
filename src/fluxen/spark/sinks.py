"""Built-in sinks: what `format(...)` means.

A sink is a function of (results, epoch). The same epoch may come twice after a crash, with the same results; file
sinks therefore write each epoch into files named after it and replace them on re-delivery, so that every result is on
disk exactly once.
"""

from __future__ import annotations

import posixpath
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from fluxen.errors import ConfigError
from fluxen.registry import Registry
from fluxen.state.store import storage_errors

Sink = Callable[[DataFrame, int], Any]
_FILES = ("parquet", "orc", "json", "csv", "text")
_STAGING = "_fluxen"


@dataclass(frozen=True, kw_only=True)
class SinkWords:
    """What the user said about where results go."""

    spark: SparkSession
    source: str
    options: dict[str, str]
    partition_by: list[str]
    name: str | None
    schema: st.StructType

    def without(self, *options: str) -> dict[str, str]:
        """The options but these."""
        return {key: value for key, value in self.options.items() if key.lower() not in options}

    def refuse(self, *but: str) -> None:
        """Raise for what the sink would ignore: partitionBy(), and all options but these."""
        refuse_settings(f"format({self.source!r})", self.without(*but), self.partition_by)


class FormatSink(ABC):
    """A sink that `format(...)` makes by name; a setting it would ignore is an error."""

    @classmethod
    @abstractmethod
    def of(cls, words: SinkWords) -> FormatSink:
        """The sink that these words mean."""

    @abstractmethod
    def __call__(self, results: DataFrame, epoch: int) -> None: ...


def builtin_sink(words: SinkWords) -> Sink:
    """The sink for a format's name; one that is not ours is Spark's."""
    unknown = [column for column in words.partition_by if column not in words.schema.names]
    if unknown:
        raise ConfigError(f"partitionBy names {unknown[0]!r}; the results have: {', '.join(words.schema.names)}")
    return SINKS.members.get(words.source, SparkSink).of(words)


def refuse_settings(
    what: str, options: Mapping[str, str], partition_by: Sequence[str], source: str | None = None
) -> None:
    """Raise for what a sink would ignore."""
    given = [f"option {key!r}" for key in options]
    given += ["partitionBy()"] if partition_by else []
    given += [f"format({source!r})"] if source is not None else []
    if given:
        raise ConfigError(f"{what} has no use for {', '.join(given)}; leave it out")


class FileSink(FormatSink):
    """Files of an epoch appear under its name; a second delivery replaces them."""

    @classmethod
    def of(cls, words: SinkWords) -> FileSink:
        path = next((value for key, value in words.options.items() if key.lower() == "path"), None)
        if path is None:
            raise ConfigError(f"format({words.source!r}) needs a path: start('some/directory') or option('path', ...)")
        return cls(words.source, path, words.without("path"), words.partition_by)

    def __init__(self, source: str, path: str, options: dict[str, str], partition_by: list[str]) -> None:
        self.source, self.path, self.options, self.partition_by = source, path, options, partition_by
        if "://" in path or path.startswith("file:"):
            self._fs, self._base = fs.FileSystem.from_uri(path)
        else:
            self._fs, self._base = fs.LocalFileSystem(), path
        self._first = True
        """only the first epoch after a start can have been delivered before: later ones need not look"""

    def __call__(self, results: DataFrame, epoch: int) -> None:
        label = f"e{epoch:010d}"
        staged = f"{self.path.rstrip('/')}/{_STAGING}/{label}-{uuid.uuid4().hex[:8]}"
        writer = results.write.format(self.source).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.mode("overwrite").save(staged)
        with storage_errors(f"cannot place the files of epoch {epoch} in {self.path}"):
            self._replace(label, posixpath.join(self._base, staged[len(self.path.rstrip("/")) + 1 :]))

    def _replace(self, label: str, staged: str) -> None:
        if self._first:
            self._remove(label, staged)
            self._first = False
        for info in self._fs.get_file_info(fs.FileSelector(staged, recursive=True)):
            if info.is_file and info.base_name.startswith("part-"):
                directory = posixpath.dirname(posixpath.relpath(info.path, staged))
                target = posixpath.join(self._base, directory)
                self._fs.create_dir(target, recursive=True)
                self._fs.move(info.path, posixpath.join(target, f"part-{label}-{info.base_name[5:]}"))
        self._fs.delete_dir(staged)

    def _remove(self, label: str, staged: str) -> None:
        """Delete what an earlier delivery of the epoch left: its files, and what it had not placed yet."""
        for info in self._fs.get_file_info(fs.FileSelector(self._base, recursive=True)):
            inside = posixpath.relpath(info.path, self._base)
            if info.is_file and not inside.startswith(_STAGING) and info.base_name.startswith(f"part-{label}-"):
                self._fs.delete_file(info.path)
        for info in self._fs.get_file_info(fs.FileSelector(posixpath.dirname(staged))):
            if info.base_name.startswith(f"{label}-") and info.base_name != posixpath.basename(staged):
                self._fs.delete_dir(info.path)


class MemorySink(FormatSink):
    """A table in the driver's memory, as a temporary view of the query's session; for tests and notebooks."""

    @classmethod
    def of(cls, words: SinkWords) -> MemorySink:
        words.refuse()
        if words.name is None:
            raise ConfigError("format('memory') needs queryName(...): the name of the table to fill")
        return cls(words.spark, words.name, words.schema)

    def __init__(self, spark: SparkSession, name: str, schema: st.StructType) -> None:
        self.spark, self.name, self.schema = spark, name, schema
        self._epochs: dict[int, list[Any]] = {}

    def __call__(self, results: DataFrame, epoch: int) -> None:
        self._epochs[epoch] = results.collect()
        rows = [row for number in sorted(self._epochs) for row in self._epochs[number]]
        self.spark.createDataFrame(rows, self.schema).createOrReplaceTempView(self.name)


class ConsoleSink(FormatSink):
    """Shows each epoch's first rows."""

    @classmethod
    def of(cls, words: SinkWords) -> ConsoleSink:
        words.refuse("numrows", "truncate")
        return cls(words.options)

    def __init__(self, options: dict[str, str]) -> None:
        rows, truncate = options.get("numRows", "20"), options.get("truncate", "true").lower()
        if not rows.isdigit() or not (truncate.isdigit() or truncate in ("true", "false")):
            raise ConfigError(
                f"format('console') takes a number as numRows and true, false or a width as truncate, got {rows!r} and "
                f"{truncate!r}"
            )
        self.rows = int(rows)
        self.truncate: bool | int = int(truncate) if truncate.isdigit() else truncate == "true"

    def __call__(self, results: DataFrame, epoch: int) -> None:
        print(f"epoch {epoch}")
        results.show(self.rows, truncate=self.truncate)


class SparkSink(FormatSink):
    """Any other batch sink of Spark: appended to once per epoch, idempotently where the sink can (Delta)."""

    @classmethod
    def of(cls, words: SinkWords) -> SparkSink:
        if words.source == "noop":
            words.refuse()
        return cls(words.source, words.options, words.partition_by)

    def __init__(self, source: str, options: dict[str, str], partition_by: list[str], table: str | None = None) -> None:
        self.source, self.options, self.partition_by, self.table = source, options, partition_by, table
        self.checkpoint_id = ""
        """of the checkpoint that numbers the epochs; the run says it"""

    def options_of(self, epoch: int) -> dict[str, str]:
        """The user's options, and for Delta those by which it knows a write it has seen before.

        The id is the checkpoint's own, not its place: a new checkpoint there counts its epochs from 0 again, and Delta
        would take its first writes for old ones.
        """
        if self.source != "delta":
            return self.options
        return {**self.options, "txnAppId": self.checkpoint_id, "txnVersion": str(epoch)}

    def __call__(self, results: DataFrame, epoch: int) -> None:
        writer = results.write.format(self.source).options(**self.options_of(epoch))
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer = writer.mode("overwrite" if self.source == "noop" else "append")
        if self.table is None:
            writer.save()
        else:
            writer.saveAsTable(self.table)


class TableSink:
    """A table of files in Spark's catalog: the files of an epoch are placed as `FileSink` does."""

    def __init__(self, spark: SparkSession, table: str, files: FileSink) -> None:
        self.spark, self.table, self.files = spark, table, files

    def __call__(self, results: DataFrame, epoch: int) -> None:
        self.files(results, epoch)
        if self.files.partition_by:
            self.spark.catalog.recoverPartitions(self.table)
        self.spark.catalog.refreshTable(self.table)


def table_sink(table: str, words: SinkWords) -> Sink:
    """The sink for a table of Spark's catalog, which is made if it is not there yet."""
    spark = words.spark
    if not spark.catalog.tableExists(table):
        writer = spark.createDataFrame([], words.schema).write.format(words.source).options(**words.options)
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
    if source not in _FILES:
        return SparkSink(source, words.options, partitions, table)
    return TableSink(spark, table, FileSink(source, described["Location"], words.without("path"), partitions))


def _listed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


SINKS: Registry[FormatSink] = Registry(
    what="sink",
    base=FormatSink,  # type: ignore[type-abstract]
    members={**dict.fromkeys(_FILES, FileSink), "memory": MemorySink, "console": ConsoleSink, "noop": SparkSink},
)
