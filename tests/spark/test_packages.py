"""What `fx.session(packages=[...])` asks Spark for; no session is made here."""

from __future__ import annotations

import pytest

from fluxen.errors import ConfigError, PlatformError
from fluxen.spark.packages import PACKAGES, settings_of


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize(("spark", "scala"), [("3.5.4", "_2.12:"), ("4.0.1", "_2.13:"), ("4.1.1", "_2.13:")])
def test_a_package_is_for_the_release_of_spark_and_its_scala(name: str, spark: str, scala: str) -> None:
    (coordinate,) = settings_of([name], spark, {})["spark.jars.packages"].split(",")
    assert scala in coordinate
    assert name == "kafka" or "4.1" not in coordinate or spark == "4.1.1"


def test_several_packages_share_the_lists_of_a_session_with_what_the_user_asked_for() -> None:
    asked = {"spark.sql.extensions": "my.Extension", "spark.sql.catalog.spark_catalog": "my.Catalog"}
    made = settings_of(["delta", "iceberg"], "4.1.1", asked)
    assert len(made["spark.jars.packages"].split(",")) == 2
    mine, delta, iceberg = made["spark.sql.extensions"].split(",")
    assert (mine, delta.split(".")[1], iceberg.split(".")[2]) == ("my.Extension", "delta", "iceberg")
    assert made["spark.sql.catalog.spark_catalog"] == "my.Catalog"
    assert settings_of(["delta", "iceberg"], "4.1.1", made) == made


def test_a_release_without_a_package_is_named_with_those_that_have_one() -> None:
    with pytest.raises(PlatformError, match=r"no package of iceberg for Spark 4\.3\.0, only for 3\.5, 4\.0, 4\.1"):
        settings_of(["iceberg"], "4.3.0", {})
    with pytest.raises(ConfigError, match="packages names 'kafak'; there are: kafka, delta, iceberg"):
        settings_of(["kafak"], "4.1.1", {})
    with pytest.raises(ConfigError, match=r"such as \['kafka'\]"):
        settings_of("kafka", "4.1.1", {})


def test_lists_keep_what_spark_submit_was_given() -> None:
    made = settings_of(["delta"], "4.1.1", {}, {"spark.sql.extensions": "my.Extension", "spark.master": "local"})
    assert made["spark.sql.extensions"] == "my.Extension,io.delta.sql.DeltaSparkSessionExtension"
    assert "spark.master" not in made
