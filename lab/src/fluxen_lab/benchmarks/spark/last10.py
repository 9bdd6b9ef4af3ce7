"""The average of each key's last ten values through each of Spark's three interfaces for user-defined state.

Each keeps a key's last ten values as one array and touches the state once per key and batch, which is the fastest
form found for all three. pandas (all three) and protobuf (two of them) are needed to run these baselines and
nothing else of fluxen. The same query through fluxen is in ours.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from fluxen_lab.benchmarks.job import Job
from fluxen_lab.benchmarks.spark.sources import stream

__all__ = ["QUERIES"]

_DEPTH = 10
_RESULT = "key LONG, ts TIMESTAMP, mean DOUBLE"
_STATE = "recent ARRAY<DOUBLE>"
_PACKED = "recent BINARY"


def _means(recent: list[float], values: list[float]) -> tuple[list[float], list[float]]:
    """The average after each new value, and the values to keep."""
    means = []
    for value in values:
        recent.append(value)
        if len(recent) > _DEPTH:
            del recent[0]
        means.append(sum(recent) / len(recent))
    return means, recent


def _in_pandas(key: Any, frames: Iterator[Any], recent: list[float]) -> tuple[Any, list[float]]:
    import pandas as pd

    rows = pd.concat(list(frames)).sort_values("ts")
    means, kept = _means(recent, rows["value"].tolist())
    return pd.DataFrame({"key": key, "ts": rows["ts"].to_numpy(), "mean": means}), kept


def apply_in_pandas(spark: SparkSession, job: Job) -> DataFrame:
    def update(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        # this interface cannot restore an array from its own state schema, so the values travel packed
        recent = list(array("d", bytes(state.get[0]))) if state.exists else []
        result, kept = _in_pandas(key[0], frames, recent)
        state.update((array("d", kept).tobytes(),))
        yield result

    rows = stream(spark, job.data, "rows", text=False)
    return rows.groupBy("key").applyInPandasWithState(update, _RESULT, _PACKED, "append", "NoTimeout")


def _processor(method: Callable[..., Iterator[Any]]) -> Any:
    """A processor with one value per key; built here because importing its base class already needs protobuf."""
    from pyspark.sql.streaming import StatefulProcessor

    class Last10(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._recent = handle.getValueState("recent", _STATE)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            return method(self._recent, key, rows)

        def close(self) -> None:
            return None

    return Last10()


def _recent(state: Any) -> list[float]:
    stored = state.get()
    return list(stored[0]) if stored is not None else []


def transform_in_pandas(spark: SparkSession, job: Job) -> DataFrame:
    def handle(state: Any, key: Any, frames: Iterator[Any]) -> Iterator[Any]:
        result, kept = _in_pandas(key[0], frames, _recent(state))
        state.update((kept,))
        yield result

    rows = stream(spark, job.data, "rows", text=False)
    return rows.groupBy("key").transformWithStateInPandas(_processor(handle), _RESULT, "Append", "None")


def transform(spark: SparkSession, job: Job) -> DataFrame:
    def handle(state: Any, key: Any, rows: Iterator[Any]) -> Iterator[Any]:
        ordered = sorted((row.ts, row.value) for row in rows)
        means, kept = _means(_recent(state), [value for _, value in ordered])
        state.update((kept,))
        for (ts, _), mean in zip(ordered, means):
            yield Row(key=key[0], ts=ts, mean=mean)

    rows = stream(spark, job.data, "rows", text=False)
    return rows.groupBy("key").transformWithState(_processor(handle), _RESULT, "Append", "None")


QUERIES: dict[str, Callable[[SparkSession, Job], DataFrame]] = {
    "applyInPandasWithState": apply_in_pandas,
    "transformWithStateInPandas": transform_in_pandas,
    "transformWithState": transform,
}
