"""Sinks for people: a table in the driver's memory, and the console."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from fluxen.errors import ConfigError
from fluxen.spark.sinks.base import FormatSink, SinkWords

__all__ = ["ConsoleSink", "MemorySink"]


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
