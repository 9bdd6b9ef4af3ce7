"""A Spark session for the command line: its chatter goes to a file, and it is stopped at the end."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from fluxen.errors import FluxenError, PlatformError
from fluxen.spark.session import session

_RAISED = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception): \S")


@contextmanager
def quiet_session(
    log: Path, *, app: str, master: str | None = None, packages: Sequence[str] = (), **settings: Any
) -> Iterator[SparkSession]:
    """A session whose JVM and Python workers write to `log`; one that runs already is used as it is."""
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    with _redirected(log), _py4j(log):
        try:
            spark = session(app, master, packages=packages, **settings)
        except FluxenError:
            raise
        except Exception as error:
            raise PlatformError(f"Spark did not start: {_cause(error)}; its log is {log}") from error
    try:
        with _py4j(log):
            yield spark
    finally:
        with _redirected(log):
            spark.stop()


@contextmanager
def _redirected(log: Path) -> Iterator[None]:
    """Standard output and error are `log`, also for processes started meanwhile, which keep it."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [(number, os.dup(number)) for number in (1, 2)]
    with log.open("ab") as file:
        try:
            for number, _ in saved:
                os.dup2(file.fileno(), number)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, original in saved:
                os.dup2(original, number)
                os.close(original)


@contextmanager
def _py4j(log: Path) -> Iterator[None]:
    """What py4j logs about a failing batch belongs beside Spark's own account of it."""
    logger = logging.getLogger("py4j")
    handler = logging.FileHandler(log)
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        handler.close()


def explained(error: Exception, log: Path) -> FluxenError:
    """An error of Spark's as one line that says where the rest is."""
    if isinstance(error, FluxenError):
        return error
    return FluxenError(f"Spark failed: {_cause(error)}; its log is {log}")


def _cause(error: Exception) -> str:
    """The line that says most: the innermost Python error in what Spark wrapped, or the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    return (raised or lines[:1] or [type(error).__name__])[-1][:300]
