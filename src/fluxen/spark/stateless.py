"""A streaming DataFrame that keeps no state, as `fluxen.query` gives it: Spark runs it whole.

It has the words of a `fluxen.spark.query.Query` that make sense for it, so a job need not know which of the two it has
until it is started: then it is one of Spark's own queries, with Spark's own checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st
from pyspark.sql.streaming import DataStreamWriter

from fluxen.engine.options import AdaptOptions
from fluxen.errors import CheckpointError
from fluxen.state.epoch import IDENTITY
from fluxen.state.store import Store

__all__ = ["Stateless"]


@dataclass(frozen=True, kw_only=True)
class Stateless:
    """A streaming DataFrame of which fluxen runs nothing."""

    df: DataFrame

    @property
    def schema(self) -> st.StructType:
        """Schema of the results."""
        return self.df.schema

    @property
    def columns(self) -> list[str]:
        return list(self.df.columns)

    @property
    def spark(self) -> SparkSession:
        return self.df.sparkSession

    def adapt(self, **options: Any) -> Stateless:
        """The query itself: the options of `Query.adapt` are checked, and there is nothing that they are about."""
        AdaptOptions(**{name: value for name, value in options.items() if name != "balance"})
        return self

    def explain(self) -> None:
        """Print who runs it."""
        print("fluxen: nothing, as the query keeps no state\nSpark: the whole query, as df.writeStream would start it")

    @property
    def writeStream(self) -> DataStreamWriter:
        """Spark's own writer: sinks, triggers and the checkpoint are Spark's."""
        return _Writer(self.df)


class _Writer(DataStreamWriter):  # type: ignore[misc]
    """Spark's writer, which would start anew on a checkpoint of fluxen's and bring all rows again."""

    def option(self, key: str, value: Any) -> _Writer:
        _refuse_fluxen(key, value)
        super().option(key, value)
        return self

    def options(self, **options: Any) -> _Writer:
        for key, value in options.items():
            _refuse_fluxen(key, value)
        super().options(**options)
        return self


def _refuse_fluxen(key: str, value: Any) -> None:
    if key.lower() == "checkpointlocation" and Store(str(value)).exists(IDENTITY):
        raise CheckpointError(
            f"checkpoint {value} is one of a query that keeps state, and this one keeps none: Spark would run it from "
            "the start; choose a new directory"
        )
