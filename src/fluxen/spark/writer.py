"""`query.writeStream`: the words of PySpark's DataStreamWriter, ending in a `Run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from fluxen.engine.checks import check_mode
from fluxen.errors import ConfigError
from fluxen.spark.query import Query
from fluxen.spark.run import Run
from fluxen.spark.sinks.base import Sink, SinkWords, refuse_settings
from fluxen.spark.sinks.registry import builtin_sink, table_sink

_OURS = {"checkpointlocation", "endofinput"}
"""options that are the query's, not the sink's"""
_TRIGGERS = {"processingTime", "once", "continuous", "availableNow"}


class StreamWriter:
    """Says where results go and starts the query."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._sink: Sink | None = None
        self._format: str | None = None
        self._options: dict[str, str] = {}
        self._trigger: dict[str, Any] = {}
        self._name: str | None = None
        self._partition_by: list[str] = []

    def foreachBatch(self, sink: Callable[[DataFrame, int], None]) -> StreamWriter:
        """Call `sink(results, epoch)` once per epoch; the same number again means the same results again."""
        if not callable(sink):
            raise ConfigError(f"foreachBatch needs a function of (DataFrame, int), got {type(sink).__name__}")
        self._sink = sink
        return self

    def format(self, source: str) -> StreamWriter:
        """A sink by name: parquet, orc, json, csv, text, kafka, delta, iceberg, memory, console, noop or any
        other Spark sink."""
        self._format = source
        return self

    def option(self, key: str, value: Any) -> StreamWriter:
        self._options[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **options: Any) -> StreamWriter:
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, mode: str) -> StreamWriter:
        """ "update" for windows in every batch that changes them, instead of once when they end; of running aggregates,
        which emit changed rows anyway, and of everything else, whose results never change, it is what they do, or an
        error."""
        self._query = self._query.in_mode(mode)
        check_mode([plan.stage.operator for plan in self._query.plans], mode)
        return self

    def partitionBy(self, *columns: str) -> StreamWriter:
        self._partition_by = list(columns)
        return self

    def queryName(self, name: str) -> StreamWriter:
        self._name = name
        return self

    def trigger(self, **trigger: Any) -> StreamWriter:
        """As in PySpark: processingTime="10 seconds", availableNow=True or once=True."""
        unknown = set(trigger) - _TRIGGERS
        if unknown or len(trigger) != 1:
            raise ConfigError(f"trigger() takes one of processingTime, availableNow and once, got {trigger}")
        if "continuous" in trigger:
            raise ConfigError("continuous triggers have no micro-batches to adapt between; use processingTime")
        for name in ("once", "availableNow"):
            if trigger.get(name, True) is not True:
                raise ConfigError(f"trigger({name}=...) takes True, got {trigger[name]!r}; leave it out for no trigger")
        self._trigger = trigger
        return self

    def start(self, path: str | None = None, **options: Any) -> Run:
        """Start the query in the background."""
        self.options(**options)
        if path is not None:
            self.option("path", path)
        if self._sink is None:
            return self._run(builtin_sink(self._words()))
        refuse_settings("foreachBatch()", self._rest(), self._partition_by, self._format)
        return self._run(self._sink)

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> Run:
        """Start the query with a table of Spark's catalog as its sink; it is made if it is not there yet."""
        self.options(**options)
        if self._sink is not None:
            raise ConfigError("foreachBatch() and toTable() both say where results go; give one of them")
        if format is not None:
            self.format(format)
        if outputMode is not None:
            self.outputMode(outputMode)
        if partitionBy is not None:
            self.partitionBy(*([partitionBy] if isinstance(partitionBy, str) else partitionBy))
        if queryName is not None:
            self.queryName(queryName)
        self._checkpoint()  # raises before a table is made
        return self._run(table_sink(tableName, self._words()))

    def _run(self, sink: Sink) -> Run:
        return Run(
            self._query,
            sink,
            checkpoint=self._checkpoint(),
            trigger=self._trigger,
            name=self._name,
            end_of_input=self._ends(),
        ).start()

    def _rest(self) -> dict[str, str]:
        """The options that are the sink's."""
        return {key: value for key, value in self._options.items() if key.lower() not in _OURS}

    def _words(self) -> SinkWords:
        return SinkWords(
            spark=self._query.spark,
            source=self._format or "parquet",
            options=self._rest(),
            partition_by=self._partition_by,
            name=self._name,
            schema=self._query.schema,
        )

    def _ends(self) -> bool:
        """Option endOfInput: after the last rows emit what open windows hold."""
        given = next((value for key, value in self._options.items() if key.lower() == "endofinput"), "false")
        if given.lower() not in ("true", "false"):
            raise ConfigError(f"option endOfInput must be true or false, got {given!r}")
        finite = "availableNow" in self._trigger or "once" in self._trigger
        if given.lower() == "true" and not finite:
            raise ConfigError("option endOfInput needs an end: add .trigger(availableNow=True)")
        return given.lower() == "true"

    def _checkpoint(self) -> str:
        for key, value in self._options.items():
            if key.lower() == "checkpointlocation":
                return value
        base = self._query.spark.conf.get("spark.sql.streaming.checkpointLocation", None)
        if base and self._name:
            return f"{base}/{self._name}"
        raise ConfigError(
            "no checkpoint location; add .option('checkpointLocation', 'some/directory'), which must be a directory of "
            "this query alone"
        )
