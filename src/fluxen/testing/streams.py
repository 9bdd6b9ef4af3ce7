"""Streams for tests: Arrow tables, each of which arrives as one micro-batch.

A table becomes a parquet file; the files' modification times put them in order and Spark takes one per trigger. An
empty table is an empty micro-batch. `fluxen.testing` gives `feed` to users.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from fluxen.errors import QueryError

_FIRST = 1_500_000_000
"""Modification time of the first file: any time in the past serves, files only need to be in order."""


def feed(spark: SparkSession, tables: Sequence[pa.Table], directory: str | Path | None = None) -> DataFrame:
    """A streaming DataFrame that brings one table per micro-batch.

    With the same `directory` again, tables that were fed before are not written again, so a restarted query continues
    with those that are new. Without one, the files go when the process ends.
    """
    if not tables:
        raise QueryError("feed() needs at least one table, if only an empty one: it tells the schema")
    place = _place(directory)
    for number, table in enumerate(tables):
        append(place, number, table.cast(tables[0].schema))
    return stream_of(spark, place)


def _place(directory: str | Path | None) -> Path:
    if directory is not None:
        return Path(directory)
    made = tempfile.mkdtemp(prefix="fluxen-feed-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def stream_of(spark: SparkSession, directory: str | Path) -> DataFrame:
    """The stream of a directory that `append` has put at least one table into."""
    first = min(Path(directory).glob("*.parquet"))
    schema = from_arrow_schema(pq.read_schema(first), prefer_timestamp_ntz=True)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(directory))


def feeds(
    spark: SparkSession, tables: Mapping[str, Sequence[pa.Table]], directory: str | Path | None = None
) -> dict[str, DataFrame]:
    """Several inputs in step: the n-th micro-batch brings the n-th table of each; shorter lists end early."""
    place = _place(directory)
    longest = max(map(len, tables.values()), default=0)
    padded = {
        name: [*given, *(given[0].slice(0, 0) for _ in range(longest - len(given)))] if given else given
        for name, given in tables.items()
    }
    return {name: feed(spark, given, place / name) for name, given in padded.items()}


def append(directory: str | Path, number: int, table: pa.Table) -> None:
    """Add the table of micro-batch `number` to a stream that may be running already."""
    path = Path(directory) / f"{number:06d}.parquet"
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")  # Spark does not see names that start with a dot
    pq.write_table(table, hidden)
    os.utime(hidden, (_FIRST + number, _FIRST + number))
    os.rename(hidden, path)
