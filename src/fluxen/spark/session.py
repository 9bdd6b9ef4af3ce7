"""A SparkSession with the settings fluxen wants, and a warning about settings of an existing one that slow fluxen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from fluxen.errors import PlatformError
from fluxen.spark.packages import absent, settings_of

_FILE_MANAGER = "FileSystemBasedCheckpointFileManager"
_SETTINGS = {
    # sites stay where their state is cached only if the scheduler does not chase shuffle blocks
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "1s",
    # over TCP a task waits 40 ms for a delayed acknowledgement before its first rows arrive (Spark 4.1 and newer)
    "spark.python.unix.domain.socket.enabled": "true",
    # nothing listens beyond this machine unless asked
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.metricsEnabled": "false",
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # shuffled rows go to the page cache and come back within the second
    "spark.shuffle.compress": "false",
}


def session(
    app: str | None = None, master: str | None = None, *, packages: Sequence[str] = (), **settings: Any
) -> SparkSession:
    """The running SparkSession, or a new one with the settings fluxen wants.

    `packages` are "kafka", "delta" and "iceberg": Spark fetches the connector for its own version when it starts. In a
    job of `spark-submit` it has started: give those to `--packages`.

    `settings` are Spark settings with dots as double underscores (`spark__executor__memory="2g"`), and win over
    fluxen's own, as what `spark-submit` was given does. A session that runs takes those that may change while it runs;
    the others must be what they are, or one warning names them.

    Example::

        spark = fx.session(master="local[2]", spark__sql__session__timeZone="UTC")
    """
    asked = {name.replace("__", "."): _text(value) for name, value in settings.items()}
    running = SparkSession.getActiveSession()
    submitted = {} if running is not None else _submitted()
    asked = settings_of(packages, pyspark.__version__, asked, submitted)
    if running is not None:
        check(running)
        _apply(running, app, master, asked)
        return running
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app or "fluxen")
    if submitted and (missing := absent(packages, pyspark.__version__, submitted)):
        warnings.warn(
            f"spark-submit has started Spark, which fetches nothing any more: give it --packages {','.join(missing)}",
            stacklevel=2,
        )
    target = master or submitted.get("spark.master") or os.environ.get("SPARK_MASTER") or "local[*]"
    builder = builder.master(target)
    ours = {**_SETTINGS, **local_disk(target)}
    chosen = {name: value for name, value in ours.items() if name not in submitted}
    chosen.update(asked)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _submitted() -> dict[str, str]:
    """The settings of `spark-submit`, which starts the JVM before Python; nothing where Python starts it."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _apply(spark: SparkSession, app: str | None, master: str | None, asked: dict[str, str]) -> None:
    """Set what a running session can still take, and warn of what it cannot."""
    context, late = spark.sparkContext, []
    for name, wanted, found in (("app", app, context.appName), ("master", master, context.master)):
        if wanted is not None and wanted != found:
            late.append(f"{name}={wanted!r} (it is {found!r})")
    for name, wanted in asked.items():
        found = spark.conf.get(name, None)
        if found == wanted:
            continue
        if spark.conf.isModifiable(name):
            spark.conf.set(name, wanted)
        else:
            late.append(f"{name}={wanted} (it is {'not set' if found is None else found})")
    if late:
        warnings.warn(
            f"a SparkSession runs already and session() cannot set {', '.join(late)}; stop() it or leave them out",
            stacklevel=3,
        )


def local_disk(master: str) -> dict[str, str]:
    """What makes micro-batches faster on a local disk, with any operators.

    Spark's default checkpoint file manager spends 40 to 60 ms per log file there, the one chosen here 10 to 20.
    """
    major = int(pyspark.__version__.split(".")[0])
    package = "checkpointing." if major >= 4 and not pyspark.__version__.startswith("4.0") else ""
    name = f"org.apache.spark.sql.execution.streaming.{package}{_FILE_MANAGER}"
    local = _LOCAL if master.startswith("local") else {}
    return {"spark.sql.streaming.checkpointFileManagerClass": name, **local}


def require_java() -> None:
    """One line that says how to get Java, instead of Spark's stack trace."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    advice = (
        "install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"
    )
    if not java or not os.path.exists(java):
        raise PlatformError(f"Spark needs Java and none was found; {advice}")
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = shown.split('"')[1] if '"' in shown else "unknown"
    major = version.split(".")[0]
    if major.isdigit() and int(major) < 17:
        raise PlatformError(f"Spark needs Java 17 or newer and {java} is {version}; {advice}")


def check(spark: SparkSession) -> None:
    """One warning that lists every setting of a session that slows fluxen."""
    context = spark.sparkContext
    complaints = []
    clustered = not context.master.startswith("local[") and context.master != "local"
    if clustered and context.getConf().get("spark.shuffle.reduceLocality.enabled", "true") != "false":
        complaints.append(
            "spark.shuffle.reduceLocality.enabled should be false, or sites wander between executors "
            "(set it when the session is built)"
        )
    if context.getConf().get("spark.python.worker.reuse", "true") == "false":
        complaints.append("spark.python.worker.reuse should be true, or every batch starts new Python processes")
    if shutil.which(context.pythonExec) not in (None, shutil.which(sys.executable)) and not clustered:
        complaints.append(
            f"workers run {context.pythonExec}, not {sys.executable}: set PYSPARK_PYTHON before the session is built, "
            "or make sure fluxen is installed there too"
        )
    if complaints:
        warnings.warn("this SparkSession has settings that slow fluxen: " + "; ".join(complaints), stacklevel=3)
