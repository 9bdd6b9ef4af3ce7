"""Queries as users build them: `join`, `aggregate`, `distinct`, `stateful`, and the `Query` they give.

Building a query checks everything that can be known without data. What runs is in `fluxen.spark.run`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from fluxen.errors import ConfigError, QueryError
from fluxen.operators.functions import Aggregate
from fluxen.policies import RiverDQ
from fluxen.spark import stages
from fluxen.spark.checks import check
from fluxen.spark.explain import explained
from fluxen.spark.options import Adapt
from fluxen.spark.stages import Keys, Length, StagePlan
from fluxen.state.store import Store

if TYPE_CHECKING:
    from fluxen.spark.writer import StreamWriter


@dataclass(frozen=True, kw_only=True)
class Query:
    """A continuous query: an ordinary value until `writeStream...start()` runs it."""

    sources: tuple[DataFrame, ...]
    plans: tuple[StagePlan, ...]
    options: Adapt
    store: Callable[[str], Store] = Store
    """opens a checkpoint; experiments put one here that is slow on purpose"""

    @property
    def schema(self) -> st.StructType:
        """Schema of the results."""
        return self.plans[-1].schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def spark(self) -> SparkSession:
        return self.sources[0].sparkSession

    def adapt(self, **options: Any) -> Query:
        """Sites, partitions, memory, policy and partitioner; see `fluxen.spark.options.Adapt` for each."""
        known = {name for name in Adapt.__dataclass_fields__ if not name.startswith("_")}
        unknown = sorted(set(options) - known)
        if unknown:
            raise ConfigError(f"adapt() does not know {', '.join(unknown)}; it takes {', '.join(sorted(known))}")
        return replace(self, options=replace(self.options, **options)).checked()

    def checked(self) -> Query:
        """The query itself, once no option of it would be ignored."""
        check([plan.stage.operator for plan in self.plans], self.options)
        return self

    def aggregate(
        self,
        by: Keys,
        time: str | None = None,
        *,
        last: int | None = None,
        window: Length | None = None,
        lateness: Length | None = None,
        ttl: Length | None = None,
        **aggregates: Aggregate,
    ) -> Query:
        """A second stateful stage over this query's results, in the same micro-batch.

        If `time` is an event time of the stage before (a join's `<input>_<time>`, the latest or earliest one of an
        aggregate), no result is late here; any other column is taken as a source's, less `lateness`.
        """
        _no_idle(aggregates)
        template = self.spark.createDataFrame([], self.schema)
        plan = stages.aggregate_stage(template, by, time, last, window, lateness, aggregates, ttl)
        if window is not None and time is not None and self.plans[-1].stage.unbounded(time):
            warnings.warn(
                f"windows over {time!r} close only at the end of input: nothing says how old its values may become; "
                "give the join before within or between, or take another time",
                stacklevel=2,
            )
        return replace(self, plans=(*self.plans, plan)).checked()

    def explain(self) -> None:
        """Print what each stage does, what it keeps, and when that goes, if it ever does."""
        print(explained(self.options, [plan.stage for plan in self.plans]))

    @property
    def writeStream(self) -> StreamWriter:
        from fluxen.spark.writer import StreamWriter

        return StreamWriter(self)


def _query(sources: Sequence[DataFrame], plan: StagePlan) -> Query:
    return Query(sources=tuple(sources), plans=(plan,), options=Adapt())


def _streaming(df: Any, what: str) -> None:
    if not isinstance(df, DataFrame):
        raise QueryError(f"{what} must be a DataFrame, got {type(df).__name__}; make one with spark.readStream")
    if not df.isStreaming:
        raise QueryError(f"{what} is not a streaming DataFrame; read it with spark.readStream")


def _no_idle(aggregates: Mapping[str, Any]) -> None:
    if "idle" in aggregates and not isinstance(aggregates["idle"], Aggregate):
        raise QueryError("idle is for join(): a stage with one input has no other whose watermark it could follow")


def join(
    inputs: Mapping[str, DataFrame],
    on: Keys | Mapping[str, Keys],
    time: str | Mapping[str, str] | None = None,
    *,
    within: Length | None = None,
    between: Mapping[tuple[str, str], tuple[Length | None, Length | None]] | None = None,
    lateness: Length | Mapping[str, Length] | None = None,
    idle: Length | Mapping[str, Length] | None = None,
    plan: Literal["mjoin", "tree"] = "mjoin",
    ttl: Length | None = None,
) -> Any:
    """Join two to eight inputs on equal keys.

    `within` limits the latest minus the earliest event time of a result; `between` instead bounds pairs:
    {("b", "a"): ("-60 seconds", "60 seconds")} for b.ts - a.ts, with None for a side that is open. With neither,
    everything is kept, unless `ttl` says for how long: rows more than that apart do not join, in event time or, without
    `time`, in the time of the batches they came in. Rows older than their input's watermark (its latest event time less
    `lateness`, as of the batch before) are dropped and counted. An input with `withWatermark()` has its delay as
    lateness; otherwise it is none. Columns: the key under the first input's names, then `<input>_<column>`.

    An input without a row for `idle` (one length for all, or some by name) no longer holds the others' state and the
    stages behind: its watermark follows theirs, and rows that come after all are late if they are older.

    `plan="mjoin"` joins all inputs at once and keeps nothing but their rows. `plan="tree"` joins them in steps, keeps
    what the steps find, and lets every site choose and change its own order of steps; the results are the same.

    Streaming inputs give a `Query`; static ones give the answer in one go, as a DataFrame.
    """
    for name, df in inputs.items():
        if not isinstance(df, DataFrame):
            raise QueryError(f"input {name!r} must be a DataFrame, got {type(df).__name__}")
    streaming = {name: df.isStreaming for name, df in inputs.items()}
    if any(streaming.values()) and not all(streaming.values()):
        static = [name for name, flag in streaming.items() if not flag]
        raise QueryError(
            f"input {static[0]!r} is static while others stream; join it with Spark's own join(), or stream it"
        )
    built = stages.join_stage(inputs, on, time, within, between, lateness, plan, idle, ttl)
    if all(streaming.values()):
        return _query(list(inputs.values()), built)
    return stages.run_static(list(inputs.values()), built)


def aggregate(
    stream: DataFrame,
    by: Keys,
    time: str | None = None,
    *,
    last: int | None = None,
    window: Length | None = None,
    lateness: Length | None = None,
    ttl: Length | None = None,
    **aggregates: Aggregate,
) -> Query:
    """Aggregate by key: over the `last` n rows of each key (one result per input row), over tumbling event-time
    windows (emitted when the watermark passes their end), or, with neither, over everything so far (one row per key
    that changed in the batch). A null key is a group of its own.

    With `ttl` a key's running value is forgotten when it has not been updated for that long, and of the last n rows
    only those count that are at most that old; in event time or, without `time`, in the time of the batches."""
    _streaming(stream, "the input of aggregate()")
    _no_idle(aggregates)
    return _query([stream], stages.aggregate_stage(stream, by, time, last, window, lateness, aggregates, ttl))


def distinct(
    stream: DataFrame,
    by: Keys,
    time: str | None = None,
    *,
    within: Length | None = None,
    lateness: Length | None = None,
    ttl: Length | None = None,
) -> Query:
    """The first row of each key; with `within`, again the first row more than that after the last one kept.

    `ttl` says the same, also for rows without event time, which go by the time of the batches they come in."""
    _streaming(stream, "the input of distinct()")
    return _query([stream], stages.distinct_stage(stream, by, time, within, lateness, ttl))


def stateful(stream: DataFrame, by: Keys | None, operator: Any, time: str | None = None) -> Query:
    """User code over partition groups: an object with process, extract, install and info (see
    `fluxen.operators.stateful.GroupOperator`).

    With `by=None` the code keeps no state and must not care which rows come together: rows are routed by what sites
    have time for (`RiverDQ`, unless `adapt` names another policy), not by what is in them.
    """
    _streaming(stream, "the input of stateful()")
    query = _query([stream], stages.stateful_stage(stream, by, time, operator))
    return query if by is not None else query.adapt(policy=RiverDQ())
