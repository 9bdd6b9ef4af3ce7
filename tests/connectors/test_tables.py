"""Tables of Delta and Iceberg: every epoch is in them once, as appended rows or as upserts; and as sources."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluxen as fx
from fluxen.errors import CheckpointError, ConfigError, QueryError
from fluxen.state.epoch import EpochLog
from fluxen.testing import feed

pytestmark = pytest.mark.connectors

KEYS = 10
FORMATS = ["delta", "iceberg"]


def counting(spark: Any, directory: Path, batches: int) -> Any:
    """Each batch brings every key once."""
    rows = feed(spark, [pa.table({"k": [*range(KEYS)], "v": [n] * KEYS}) for n in range(batches)], directory / "input")
    return fx.aggregate(rows, by="k", n=fx.count(), total=fx.sum("v")).adapt(sites=2, partitions=8)


def writer(query: Any, directory: Path, **options: Any) -> Any:
    made = query.writeStream.option("checkpointLocation", str(directory / "checkpoint")).options(**options)
    return made.trigger(availableNow=True)


def expected(batches: int) -> Counter[tuple[int, int]]:
    """(key, count) of every update."""
    return Counter((key, number + 1) for number in range(batches) for key in range(KEYS))


def found(rows: Any) -> Counter[tuple[int, int]]:
    return Counter((row.k, row.n) for row in rows.collect())


@pytest.fixture
def named(tables: Any) -> Any:
    """A table's name in the catalog of its format, which no other test uses."""
    tables.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")

    def name(source: str) -> str:
        return f"{'lake.db.' if source == 'iceberg' else ''}t{uuid.uuid4().hex[:8]}"

    return name


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run that delivers an epoch and dies before it commits it."""

    def once(run: Any, at: int) -> None:
        commit = EpochLog.commit

        def dies(log: EpochLog, epoch: Any) -> None:
            if epoch.number == at:
                raise RuntimeError("killed between the sink and the commit")
            commit(log, epoch)

        with monkeypatch.context() as patched:
            patched.setattr(EpochLog, "commit", dies)
            with pytest.raises(Exception, match="killed between"):
                run().awaitTermination()

    return once


@pytest.mark.parametrize("source", FORMATS)
def test_a_table_has_every_epoch_once_after_one_was_delivered_twice(source, tables, named, dying, tmp_path):
    table = named(source)

    def run(batches: int) -> Any:
        return writer(counting(tables, tmp_path, batches), tmp_path).toTable(table, format=source)

    dying(lambda: run(3), 1)
    run(3).awaitTermination()
    run(4).awaitTermination()
    tables.sql(f"REFRESH TABLE {table}")
    assert found(tables.table(table)) == expected(4)


@pytest.mark.parametrize("source", FORMATS)
def test_a_new_checkpoint_counts_its_epochs_anew_in_the_same_table(source, tables, named, tmp_path):
    table = named(source)
    for attempt in ("first", "second"):
        writer(counting(tables, tmp_path, 2), tmp_path / attempt).toTable(table, format=source).awaitTermination()
    tables.sql(f"REFRESH TABLE {table}")
    assert found(tables.table(table)) == expected(2) + expected(2)


@pytest.mark.parametrize("source", FORMATS)
def test_a_checkpoint_older_than_the_table_is_refused_instead_of_left_out(source, tables, named, tmp_path):
    """To the table its epochs would be those it has, whatever rows are in them now."""
    table = named(source)

    def run(batches: int) -> None:
        writer(counting(tables, tmp_path, batches), tmp_path).toTable(table, format=source).awaitTermination()

    run(1)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    run(3)
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "copy", tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match=r"the table has epoch 2 .* goes on with epoch 1"):
        run(5)


def test_an_iceberg_table_may_be_partitioned_by_what_is_computed(tables, named, tmp_path):
    table = named("iceberg")
    tables.sql(
        f"CREATE TABLE {table} (k bigint, n bigint, total bigint) USING iceberg PARTITIONED BY (n, bucket(4, k))"
    )
    writer(counting(tables, tmp_path, 2), tmp_path).toTable(table, format="iceberg").awaitTermination()
    tables.sql(f"REFRESH TABLE {table}")
    assert found(tables.table(table)) == expected(2)


def test_delta_takes_a_path_and_upserts_by_key(tables, dying, tmp_path):
    path = str(tmp_path / "out")

    def run(batches: int) -> Any:
        made = writer(counting(tables, tmp_path, batches), tmp_path, upsert="k").format("delta")
        return made.partitionBy("k").start(path)

    dying(lambda: run(3), 1)
    run(5).awaitTermination()
    assert found(tables.read.format("delta").load(path)) == Counter({(key, 5): 1 for key in range(KEYS)})
    versions = tables.sql(f"DESCRIBE HISTORY delta.`{path}`").where("operation = 'MERGE'").count()
    assert versions == 5


def test_a_delta_table_takes_upserts_by_key(tables, named, tmp_path):
    table = named("delta")
    run = writer(counting(tables, tmp_path, 3), tmp_path, upsert="k").toTable(table, format="delta")
    run.awaitTermination()
    assert found(tables.table(table)) == Counter({(key, 3): 1 for key in range(KEYS)})


@pytest.mark.parametrize("source", FORMATS)
def test_a_table_is_a_source_that_a_restart_goes_on_with(source, tables, named, collected, drain, tmp_path):
    table = named(source)
    columns = "k bigint, v bigint"
    tables.sql(f"CREATE TABLE {table} ({columns}) USING {source}")

    def sums() -> Any:
        return fx.aggregate(tables.readStream.table(table), by="k", total=fx.sum("v")).adapt(sites=2, partitions=8)

    tables.sql(f"INSERT INTO {table} VALUES (1, 10), (2, 20)")
    drain(sums(), collected)
    tables.sql(f"INSERT INTO {table} VALUES (1, 5), (3, 30)")
    tables.sql(f"INSERT INTO {table} VALUES (1, 1)")
    drain(sums(), collected)
    last = {row["k"]: row["total"] for row in collected.rows}
    assert last == {1: 16, 2: 20, 3: 30}


def test_an_iceberg_table_that_is_a_directory_is_named_by_its_path(tables, dying, tmp_path):
    path = str(tmp_path / "out")
    tables.sql(f"CREATE TABLE lake.db.p{uuid.uuid4().hex[:8]} (k bigint) USING iceberg")  # the catalog is there
    jvm = tables._jvm
    hadoop = jvm.org.apache.iceberg.hadoop.HadoopTables(tables._jsc.hadoopConfiguration())
    schema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(counting(tables, tmp_path, 1).results._jdf.schema())
    hadoop.create(schema, path)

    def run() -> Any:
        return writer(counting(tables, tmp_path, 3), tmp_path).format("iceberg").start(path)

    dying(run, 1)
    run().awaitTermination()
    assert found(tables.read.format("iceberg").load(path)) == expected(3)


def test_upserts_are_refused_where_they_mean_nothing(tables, named, tmp_path):
    query = counting(tables, tmp_path, 1)
    with pytest.raises(QueryError, match="option upsert names 'x'"):
        writer(query, tmp_path, upsert="x").format("delta").start(str(tmp_path / "out"))
    for nothing in ("", "k,"):
        with pytest.raises(QueryError, match="option upsert names ''"):
            writer(query, tmp_path, upsert=nothing).format("delta").start(str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="no use for option 'mergeSchema'"):
        writer(query, tmp_path, upsert="k", mergeSchema="true").format("delta").start(str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="upsert is for tables of Delta"):
        writer(query, tmp_path, upsert="k").format("parquet").start(str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="upsert is for tables of Delta"):
        writer(query, tmp_path, upsert="k").toTable(named("iceberg"), format="iceberg")
