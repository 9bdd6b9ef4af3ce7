"""Which Java packages bring Kafka, Delta and Iceberg to a release of Spark, and what their SQL needs of the session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluxen.errors import ConfigError, PlatformError

__all__ = ["PACKAGES", "absent", "settings_of"]

_KAFKA = "org.apache.spark:spark-sql-kafka-0-10"
_ICEBERG = "org.apache.iceberg:iceberg-spark-runtime"
_COORDINATES = {
    "kafka": {
        "3.5": f"{_KAFKA}_2.12:{{spark}}",
        "4.0": f"{_KAFKA}_2.13:{{spark}}",
        "4.1": f"{_KAFKA}_2.13:{{spark}}",
        "4.2": f"{_KAFKA}_2.13:4.2.0",
        "4.3": f"{_KAFKA}_2.13:4.2.0",  # none of its own was published when this was written; this one works
    },
    "delta": {
        "3.5": "io.delta:delta-spark_2.12:3.3.2",
        "4.0": "io.delta:delta-spark_4.0_2.13:4.3.0",
        "4.1": "io.delta:delta-spark_4.1_2.13:4.3.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "iceberg": {
        "3.5": f"{_ICEBERG}-3.5_2.12:1.12.0",
        "4.0": f"{_ICEBERG}-4.0_2.13:1.11.0",
        "4.1": f"{_ICEBERG}-4.1_2.13:1.12.0",
    },
}
"""per package and release of Spark"""
_NEEDS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
}
_LISTS = ("spark.jars.packages", "spark.sql.extensions")
"""settings that several can share"""
PACKAGES = tuple(_COORDINATES)


def settings_of(
    packages: Sequence[str], spark: str, asked: Mapping[str, str], submitted: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The settings that were asked for, with those that packages need of this version of Spark.

    Lists also keep what `spark-submit` was given.

    >>> settings_of(["kafka"], "4.1.1", {"spark.jars.packages": "a:b:1"})
    {'spark.jars.packages': 'a:b:1,org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1'}
    """
    if isinstance(packages, str):
        raise ConfigError(f"packages takes a list of names, such as [{packages!r}], got {packages!r}")
    made = dict(asked)
    for name in packages:
        needs = {"spark.jars.packages": _coordinate(name, spark), **_NEEDS.get(name, {})}
        for setting, value in needs.items():
            if setting in _LISTS and submitted:
                made.setdefault(setting, submitted.get(setting, value))
            if setting not in made:
                made[setting] = value
            elif setting in _LISTS and value not in made[setting].split(","):
                made[setting] = f"{made[setting]},{value}"
    return made


def absent(packages: Sequence[str], spark: str, submitted: Mapping[str, str]) -> list[str]:
    """The coordinates of packages that `spark-submit`, which alone could have fetched them, was not given.

    >>> absent(["kafka"], "4.1.1", {"spark.jars": "/ivy/org.apache.spark_spark-sql-kafka-0-10_2.13-4.1.1.jar"})
    []
    >>> absent(["kafka"], "4.1.1", {"spark.jars": "/mine.jar"})
    ['org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1']
    """
    given = ",".join(submitted.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
    return [wanted for wanted in (_coordinate(name, spark) for name in packages) if wanted.split(":")[1] not in given]


def _coordinate(name: str, spark: str) -> str:
    known = _COORDINATES.get(name)
    if known is None:
        raise ConfigError(f"packages names {name!r}; there are: {', '.join(PACKAGES)}")
    release = ".".join(spark.split(".")[:2])
    if release not in known:
        raise PlatformError(
            f"there is no package of {name} for Spark {spark}, only for {', '.join(known)}; install one of those "
            f"(pip install 'pyspark=={list(known)[-1]}.*'), or give the jars you have as spark__jars"
        )
    return known[release].format(spark=spark)
