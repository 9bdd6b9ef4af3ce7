"""Java packages for tests and benchmarks of connectors, fetched once by Maven and kept.

Maven copies each file by its own name: the connectors' project descriptions name repositories that not every network
reaches, and Spark brings what they depend on. Only the broker's, which nothing else brings, is resolved as a whole.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fluxen.errors import PlatformError

__all__ = ["BROKER", "DELTA", "ICEBERG", "KAFKA", "Jars", "fetched"]

_LIMIT_S = 600
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jars:
    """What one system needs on a class path."""

    name: str
    artifacts: tuple[str, ...]
    """group:artifact:version"""
    whole: bool = False
    """with all that they depend on"""


KAFKA = Jars(
    name="kafka",
    artifacts=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
)
"""Spark's source and sink, for Spark 4.2 and 4.3"""
BROKER = Jars(name="broker", artifacts=("org.apache.kafka:kafka_2.13:3.9.0",), whole=True)
DELTA = Jars(name="delta", artifacts=("io.delta:delta-spark_4.1_2.13:4.3.0", "io.delta:delta-storage:4.3.0"))
"""for Spark 4.1"""
ICEBERG = Jars(name="iceberg", artifacts=("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",))
"""for Spark 4.1"""


def fetched(jars: Jars, cache: Path | None = None) -> list[Path]:
    """The files, fetched if they are not there yet; raises what to tell somebody for whom they cannot be."""
    kept = (cache or Path(os.environ.get("FLUXEN_JARS", ".jars"))).resolve() / _label(jars)
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            found = Path(scratch, "jars")
            _fetch(jars, found, Path(scratch, "pom.xml"))
            found.rename(kept)
    return sorted(kept.glob("*.jar"))


def _label(jars: Jars) -> str:
    return "-".join([jars.name, *(artifact.rsplit(":", 1)[1] for artifact in jars.artifacts)])


def _fetch(jars: Jars, into: Path, project: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PlatformError(f"the Java packages of {jars.name} are fetched by Maven, and there is no mvn on PATH")
    project.write_text(_project(jars), encoding="utf-8")
    goal = "copy-dependencies" if jars.whole else "copy"
    command = [maven, "-q", "-B", "-f", str(project), f"{_PLUGIN}:{goal}", f"-DoutputDirectory={into}"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise PlatformError(f"the Java packages of {jars.name} were not there after {_LIMIT_S} s") from error
    if ran.returncode or not list(into.glob("*.jar")):
        lines = [line for line in (ran.stdout + ran.stderr).splitlines() if "ERROR" in line]
        raise PlatformError(f"the Java packages of {jars.name} cannot be fetched: {(lines or ['no reason given'])[0]}")


def _project(jars: Jars) -> str:
    def listed(tag: str) -> str:
        parts = (artifact.split(":") for artifact in jars.artifacts)
        return "".join(
            f"<{tag}><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></{tag}>"
            for group, name, version in parts
        )

    plugin = _PLUGIN.split(":")
    items = (
        f"<build><plugins><plugin><groupId>{plugin[0]}</groupId><artifactId>{plugin[1]}</artifactId>"
        f"<configuration><artifactItems>{listed('artifactItem')}</artifactItems></configuration></plugin></plugins>"
        "</build>"
    )
    body = f"<dependencies>{listed('dependency')}</dependencies>" if jars.whole else items
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>fluxen</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><packaging>pom</packaging>{body}</project>"
    )


def main() -> int:
    """Fetch everything, so that tests need not wait for it; 1 if something is missing."""
    missing = 0
    for jars in (KAFKA, BROKER, DELTA, ICEBERG):
        try:
            print(f"{jars.name}: {len(fetched(jars))} files")
        except PlatformError as error:
            missing = 1
            print(error)
    return missing


if __name__ == "__main__":
    sys.exit(main())
