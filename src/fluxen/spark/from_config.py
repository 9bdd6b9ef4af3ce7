"""A query described in words, as a running query: what `fluxen run` does with a file.

The words are a `fluxen.cli.query_file.QueryFile`; this module sees them only as attributes, so that imports keep going
one way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fluxen.arrays import Json
from fluxen.errors import QueryError
from fluxen.operators.aggregate.functions import Aggregate
from fluxen.spark.query import Query
from fluxen.spark.run import Run
from fluxen.spark.words import aggregate, distinct, join, query, top


class Described(Protocol):
    """A query in words."""

    @property
    def name(self) -> str: ...
    @property
    def sources(self) -> Mapping[str, Json]: ...
    @property
    def join(self) -> Json | None: ...
    @property
    def distinct(self) -> Json | None: ...
    @property
    def aggregate(self) -> Json | None: ...
    @property
    def aggregates(self) -> Mapping[str, Aggregate]: ...
    @property
    def top(self) -> Json | None: ...
    @property
    def adapt(self) -> Json: ...
    @property
    def sink(self) -> Json: ...
    @property
    def trigger(self) -> Json: ...
    @property
    def sql(self) -> str | None: ...


def start(spark: SparkSession, described: Described) -> Run:
    """Build the query and start it."""
    sink = described.sink
    query = build(spark, described)
    if sink["select"]:
        query = query.select(*(F.expr(column) for column in sink["select"]))
    writer = query.writeStream.format(sink["format"]).options(**sink["options"])
    writer.option("checkpointLocation", sink["checkpoint"]).queryName(described.name).trigger(**described.trigger)
    if sink.get("partition_by"):
        writer.partitionBy(*_listed(sink["partition_by"]))
    return writer.start(sink.get("path"))


def build(spark: SparkSession, described: Described) -> Query:
    streams = {name: _stream(spark, name, source) for name, source in described.sources.items()}
    if described.sql is not None:
        return _of_sql(spark, described.sql, streams).adapt(**described.adapt)
    built: DataFrame | Query = next(iter(streams.values()))
    if described.join is not None:
        built = join(streams, **described.join)
    if described.distinct is not None:
        built = distinct(built, **described.distinct)
    if described.aggregate is not None:
        built = aggregate(built, **_keywords(described))
    if described.top is not None:
        built = top(built, **described.top)
    assert isinstance(built, Query), "a query file without a step is refused when it is read"
    return built.adapt(**described.adapt)


def _of_sql(spark: SparkSession, sql: str, streams: Mapping[str, DataFrame]) -> Query:
    for name, stream in streams.items():
        stream.createOrReplaceTempView(name)
    try:
        found = query(spark.sql(sql))
    except (AnalysisException, ParseException) as error:
        raise QueryError(f"the SQL cannot be read: {str(error).splitlines()[0]}") from error
    if isinstance(found, Query):
        return found
    raise QueryError("the SQL keeps no state, so there is nothing for fluxen to run; start it with spark.sql() instead")


def _keywords(described: Described) -> Json:
    """What aggregate() takes: the table's keys, and each of its values by name."""
    table = described.aggregate or {}
    return {**{name: value for name, value in table.items() if name != "values"}, "aggregates": described.aggregates}


def _stream(spark: SparkSession, name: str, source: Json) -> DataFrame:
    try:
        reader = spark.readStream.format(source["format"]).options(**source["options"])
        schema = source.get("schema") or _schema(spark, source)
        if schema is not None:
            reader = reader.schema(schema)
        rows = reader.load(source.get("path"))
        if "json" in source:
            parsed = F.from_json(F.col("value").cast("string"), source["json"])
            rows = rows.select(parsed.alias("parsed")).select("parsed.*")
        marked = source.get("watermark")
        return rows if marked is None else rows.withWatermark(marked["column"], marked["delay"])
    except AnalysisException as error:
        line = str(error).splitlines()[0]
        raise QueryError(f"source {name!r} cannot be read: {line}; check its format, path and schema") from error


def _schema(spark: SparkSession, source: Json) -> Any:
    """Files of a format that says what it holds tell their own schema; Spark asks for it when streaming."""
    if source["format"] not in ("parquet", "orc"):
        return None
    return spark.read.format(source["format"]).load(source.get("path")).schema


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
