"""A real broker and sessions with real connectors; what this machine cannot fetch is skipped with the reason.

A session's jars are there from its start, so these tests need a process of their own: `make test-connectors`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

import fluxen as fx
from fluxen.errors import PlatformError
from fluxen_lab.connectors.jars import DELTA, ICEBERG, KAFKA, Jars, fetched

SPARK = pyspark.__version__
QUIET = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.level=error",
    "spark.sql.shuffle.partitions": "2",
}


def jars(*wanted: Jars) -> str:
    """Their files as a session takes them; skips where they cannot be had."""
    try:
        return ",".join(str(path) for one in wanted for path in fetched(one))
    except PlatformError as error:
        pytest.skip(str(error))


def lakehouse_settings(directory: Path) -> dict[str, str]:
    """A session with Delta as Spark's own catalog and Iceberg's tables below a directory."""
    lake = "spark.sql.catalog.lake"
    return {
        **QUIET,
        "spark.jars": jars(DELTA, ICEBERG),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",  # a table's log is read by fifty tasks otherwise
        lake: "org.apache.iceberg.spark.SparkCatalog",
        f"{lake}.type": "hadoop",
        f"{lake}.warehouse": str(directory / "lake"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connectors")


@pytest.fixture(scope="session")
def spark(place: Path) -> Iterator[Any]:
    """The session of this process: with Kafka on Spark 4.2 and newer, with Delta and Iceberg on 4.1."""
    if SparkSession.getActiveSession() is not None:
        pytest.skip("these tests need a process of their own; run make test-connectors")
    if SPARK.startswith("4.1."):
        settings = lakehouse_settings(place)
    else:
        settings = {**QUIET, "spark.jars": jars(KAFKA)}
    named: Any = {name.replace(".", "__"): value for name, value in settings.items()}
    session = fx.session("fluxen-connectors", "local[2]", **named)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def tables(spark: Any) -> Any:
    if not SPARK.startswith("4.1."):
        pytest.skip(f"the packages of Delta and Iceberg are for Spark 4.1, this is {SPARK}; run make test-connectors")
    return spark


@pytest.fixture(scope="session")
def broker(place: Path) -> Iterator[Any]:
    if SPARK.startswith("4.1."):
        pytest.skip(f"the package of Kafka is for Spark 4.2 and newer, this is {SPARK}")
    pytest.importorskip("confluent_kafka", reason="needs confluent-kafka; run pip install 'fluxen[kafka]'")
    from fluxen_lab.connectors.broker import Broker

    try:
        started = Broker(place / "broker", java=("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"))
    except PlatformError as error:
        pytest.skip(str(error))
    with started:
        yield started


@pytest.fixture
def kafka(broker: Any, request: pytest.FixtureRequest) -> Any:
    from tests.connectors.topics import Topics

    return Topics(broker.servers, request.node.name)
