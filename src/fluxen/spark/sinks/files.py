"""Files of Spark's own formats: an epoch's are named after it and take the place of those of an earlier delivery.

So every result is on disk exactly once, whatever ended an earlier run. Names also carry the checkpoint's id: several
queries may write into one directory.
"""

from __future__ import annotations

import posixpath
import re
import uuid

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from fluxen.errors import ConfigError
from fluxen.spark.sinks.base import FormatSink, SinkWords
from fluxen.state.store import storage_errors

__all__ = ["FILES", "FileSink", "TableSink"]

FILES = ("parquet", "orc", "json", "csv", "text")
_STAGING = "_fluxen"
_LABEL = re.compile(r"e\d{10}-[0-9a-f]*(?=-)")
"""epoch and checkpoint"""


class FileSink(FormatSink):
    """Files of an epoch appear under its name; a second delivery replaces them."""

    @classmethod
    def of(cls, words: SinkWords) -> FileSink:
        path = words.option("path")
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
        label = f"e{epoch:010d}-{self.checkpoint_id[:8]}"
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
        """Delete what an earlier delivery left of this epoch, or, if the checkpoint is older than that, of later ones:
        the files, and those not placed yet."""
        for info in self._fs.get_file_info(fs.FileSelector(self._base, recursive=True)):
            inside = posixpath.relpath(info.path, self._base)
            placed = info.is_file and not inside.startswith(_STAGING) and info.base_name.startswith("part-")
            if placed and _replaced(info.base_name[5:], label):
                self._fs.delete_file(info.path)
        for info in self._fs.get_file_info(fs.FileSelector(posixpath.dirname(staged))):
            if _replaced(info.base_name, label) and info.base_name != posixpath.basename(staged):
                self._fs.delete_dir(info.path)


def _replaced(name: str, label: str) -> bool:
    """Whether a name begins with a label of the same checkpoint, of the same epoch or a later one."""
    found = _LABEL.match(name)
    return found is not None and found[0][11:] == label[11:] and found[0] >= label


class TableSink(FileSink):
    """A table of files in Spark's catalog."""

    def __init__(
        self, spark: SparkSession, table: str, source: str, path: str, options: dict[str, str], partition_by: list[str]
    ) -> None:
        super().__init__(source, path, options, partition_by)
        self.spark, self.table = spark, table

    def __call__(self, results: DataFrame, epoch: int) -> None:
        super().__call__(results, epoch)
        if self.partition_by:
            self.spark.catalog.recoverPartitions(self.table)
        self.spark.catalog.refreshTable(self.table)
