"""Built-in sinks: what `format(...)` means.

A sink is a function of (results, epoch). The same epoch may come twice after a crash, with the same results; file
sinks therefore write each epoch into files named after it and replace them on re-delivery, so that every result is on
disk exactly once.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable
from typing import Any

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from fluxen.errors import ConfigError
from fluxen.state.store import storage_errors

Sink = Callable[[DataFrame, int], Any]
_FILES = {"parquet", "orc", "json", "csv", "text"}
_STAGING = "_fluxen"


def builtin_sink(
    spark: SparkSession,
    source: str,
    options: dict[str, str],
    partition_by: list[str],
    name: str | None,
    schema: st.StructType,
) -> Sink:
    """The sink for a format's name."""
    if source in _FILES:
        path = options.get("path")
        if path is None:
            raise ConfigError(f"format({source!r}) needs a path: start('some/directory') or option('path', ...)")
        return FileSink(source, path, _rest(options), partition_by)
    if source == "memory":
        if name is None:
            raise ConfigError("format('memory') needs queryName(...): the name of the table to fill")
        return MemorySink(spark, name, schema)
    if source == "console":
        return ConsoleSink(options)
    return SparkSink(source, options, partition_by)


def _rest(options: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key.lower() not in ("path", "checkpointlocation")}


class FileSink:
    """Files of an epoch appear under its name; a second delivery replaces them."""

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


class MemorySink:
    """A table in the driver's memory, as a temporary view of the query's session; for tests and notebooks."""

    def __init__(self, spark: SparkSession, name: str, schema: st.StructType) -> None:
        self.spark, self.name, self.schema = spark, name, schema
        self._epochs: dict[int, list[Any]] = {}

    def __call__(self, results: DataFrame, epoch: int) -> None:
        self._epochs[epoch] = results.collect()
        rows = [row for number in sorted(self._epochs) for row in self._epochs[number]]
        self.spark.createDataFrame(rows, self.schema).createOrReplaceTempView(self.name)


class ConsoleSink:
    """Shows each epoch's first rows."""

    def __init__(self, options: dict[str, str]) -> None:
        self.rows = int(options.get("numRows", "20"))
        self.truncate = options.get("truncate", "true") == "true"

    def __call__(self, results: DataFrame, epoch: int) -> None:
        print(f"epoch {epoch}")
        results.show(self.rows, truncate=self.truncate)


class SparkSink:
    """Any other batch sink of Spark: appended to once per epoch, idempotently where the sink can (Delta)."""

    def __init__(self, source: str, options: dict[str, str], partition_by: list[str]) -> None:
        self.source, self.options, self.partition_by = source, options, partition_by

    def __call__(self, results: DataFrame, epoch: int) -> None:
        options = {key: value for key, value in self.options.items() if key.lower() != "checkpointlocation"}
        if self.source == "delta":
            application = next(v for k, v in self.options.items() if k.lower() == "checkpointlocation")
            options |= {"txnAppId": application, "txnVersion": str(epoch)}
        writer = results.write.format(self.source).options(**options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.mode("overwrite" if self.source == "noop" else "append").save()
