from __future__ import annotations

from pathlib import Path

from fluxen.errors import QueryError
from fluxen.spark.cli_session import explained

WRAPPED = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "somewhere.py", line 1, in call
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "sink.py", line 3, in keep
ZeroDivisionError: division by zero

\tat py4j.Protocol.getReturnValue(Protocol.java:476)
"""


def test_the_innermost_error_is_what_the_user_reads() -> None:
    said = str(explained(RuntimeError(WRAPPED), Path("/tmp/spark.log")))
    assert said == "Spark failed: ZeroDivisionError: division by zero; its log is /tmp/spark.log"


def test_an_error_without_a_traceback_gives_its_first_line() -> None:
    assert "Spark failed: no room;" in str(explained(RuntimeError("no room\nat x"), Path("l")))
    assert "Spark failed: RuntimeError;" in str(explained(RuntimeError(), Path("l")))


def test_an_error_of_ours_is_left_alone() -> None:
    error = QueryError("no such column")
    assert explained(error, Path("l")) is error
