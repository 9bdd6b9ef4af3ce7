"""Spark's other sinks, and those that can tell an epoch they have: tables of Delta and Iceberg.

Both formats commit atomically and keep who committed what: Delta a transaction number per writer, which it compares
itself, Iceberg properties of a snapshot, which are looked up here before the first epoch of a run.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fluxen.errors import ConfigError, QueryError
from fluxen.spark.sinks.base import FormatSink, SinkWords, refuse_settings

__all__ = ["DeltaSink", "IcebergSink", "SparkSink"]

_TXN = "spark.databricks.delta.write.txn"
_WRITER, _EPOCH = "fluxen-checkpoint", "fluxen-epoch"


class SparkSink(FormatSink):
    """Any other batch sink of Spark: appended to once per epoch."""

    @classmethod
    def of(cls, words: SinkWords) -> SparkSink:
        if words.source == "noop":
            words.refuse()
        return cls(words.source, words.options, words.partition_by)

    def __init__(self, source: str, options: dict[str, str], partition_by: list[str], table: str | None = None) -> None:
        self.source, self.options, self.partition_by, self.table = source, options, partition_by, table

    def options_of(self, epoch: int) -> dict[str, str]:
        """The user's options, and those by which the sink knows a write it has seen before."""
        return self.options

    def __call__(self, results: DataFrame, epoch: int) -> None:
        writer = results.write.format(self.source).options(**self.options_of(epoch))
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer = writer.mode("overwrite" if self.source == "noop" else "append")
        if self.table is None:
            writer.save()
        else:
            writer.saveAsTable(self.table)


class DeltaSink(SparkSink):
    """Appends, or upserts by key, under the checkpoint's own id and the epoch as Delta's transaction number.

    The id is the checkpoint's own, not its place: a new checkpoint there counts its epochs from 0 again, and Delta
    would take its first writes for old ones.
    """

    keys: tuple[str, ...] = ()
    """of upserts; none for appends"""
    _first = True

    @classmethod
    def of(cls, words: SinkWords) -> DeltaSink:
        path, keys = words.option("path"), upsert_keys(words)
        if keys:
            if path is None:
                raise ConfigError("format('delta') needs a path: start('some/directory') or option('path', ...)")
            require_merge(words.spark)
            refuse_settings("upserts into Delta by path", words.without("upsert", "path"), [])
            empty = words.spark.createDataFrame([], words.schema).write.format("delta").mode("ignore")
            (empty.partitionBy(*words.partition_by) if words.partition_by else empty).save(path)
        sink = cls(words.source, words.without("upsert"), words.partition_by)
        sink.keys = keys
        return sink

    def options_of(self, epoch: int) -> dict[str, str]:
        return {**self.options, "txnAppId": self.checkpoint_id, "txnVersion": str(epoch)}

    def __call__(self, results: DataFrame, epoch: int) -> None:
        if self._first:
            self.refuse_older("the table", self._newest(results.sparkSession), epoch)
            self._first = False
        if not self.keys:
            super().__call__(results, epoch)
            return
        spark, view = results.sparkSession, f"fluxen_{uuid.uuid4().hex}"
        target = self.table if self.table is not None else f"delta.{quoted(self._path)}"
        same = " AND ".join(f"into.{quoted(key)} <=> changed.{quoted(key)}" for key in self.keys)
        results.createOrReplaceTempView(view)
        try:
            with self._transaction(spark, epoch):
                spark.sql(
                    f"MERGE INTO {target} AS into USING {view} AS changed ON {same} "
                    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                )
        finally:
            spark.catalog.dropTempView(view)

    @property
    def _path(self) -> str:
        return next((value for key, value in self.options.items() if key.lower() == "path"), "")

    def _newest(self, spark: SparkSession) -> int:
        """The last epoch that the table has of this checkpoint, which Delta has no public call for; -1 for none."""
        named = self.table is not None
        try:
            place = spark.sql(f"DESCRIBE DETAIL {self.table}").first()["location"] if named else self._path
            log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, place)
            found = log.unsafeVolatileSnapshot().transactions().get(self.checkpoint_id)
        except Exception:  # another Delta, of other insides: it still leaves out what it has
            return -1
        return int(found.get()) if found.isDefined() else -1

    @contextmanager
    def _transaction(self, spark: SparkSession, epoch: int) -> Iterator[None]:
        """A MERGE takes its transaction number from the session, which is the query's alone."""
        spark.conf.set(f"{_TXN}AppId", self.checkpoint_id)
        spark.conf.set(f"{_TXN}Version", str(epoch))
        try:
            yield
        finally:
            spark.conf.unset(f"{_TXN}AppId")
            spark.conf.unset(f"{_TXN}Version")


class IcebergSink(SparkSink):
    """Appends one snapshot per epoch that names the epoch; one that is there already is left as it is."""

    _first = True
    """only the first epoch after a start can have been delivered before: later ones need not look"""

    @classmethod
    def of(cls, words: SinkWords) -> IcebergSink:
        if words.option("path") is None:
            raise ConfigError("format('iceberg') needs a table: start('catalog.database.table'), or toTable(...)")
        return cls(words.source, words.options, words.partition_by)

    def options_of(self, epoch: int) -> dict[str, str]:
        stamp = {_WRITER: self.checkpoint_id, _EPOCH: str(epoch)}
        return {**self.options, **{f"snapshot-property.{name}": value for name, value in stamp.items()}}

    def __call__(self, results: DataFrame, epoch: int) -> None:
        newest = self._newest(results.sparkSession) if self._first else -1
        self.refuse_older("the table", newest, epoch)
        if newest < epoch:
            super().__call__(results, epoch)
        self._first = False

    def _newest(self, spark: SparkSession) -> int:
        """The last epoch that the table has of this checkpoint; -1 if there is none."""
        path = self.table or next(value for key, value in self.options.items() if key.lower() == "path")
        # a metadata table is named after its table; of a table that is a directory, behind a number sign
        named = f"{path}#snapshots" if "/" in path else f"{path}.snapshots"
        found = (
            spark.read.format("iceberg")
            .load(named)
            .where(F.col("summary")[_WRITER] == self.checkpoint_id)
            .agg(F.max(F.col("summary")[_EPOCH].cast("long")))
            .first()
        )
        return -1 if found is None or found[0] is None else int(found[0])


# ---- words


def upsert_keys(words: SinkWords) -> tuple[str, ...]:
    """The columns of option('upsert', 'key, other key'), by which a result takes the place of the one before."""
    given = words.option("upsert")
    keys = tuple(key.strip() for key in given.split(",")) if given is not None else ()
    for key in keys:
        if key not in words.schema.names:
            raise QueryError(f"option upsert names {key!r}; the results have: {', '.join(words.schema.names)}")
    return keys


def require_merge(spark: SparkSession) -> None:
    """Raise if the session cannot run MERGE on Delta tables."""
    if "DeltaSparkSessionExtension" not in spark.conf.get("spark.sql.extensions", ""):
        raise ConfigError("upserts need Delta's extension of Spark SQL: make the session with packages=['delta']")


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
