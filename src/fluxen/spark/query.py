"""Queries as users build them: `join`, `aggregate`, `distinct`, `stateful`, and the `Query` they give.

Building a query checks everything that can be known without data. What runs is in `fluxen.spark.run`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as st

from fluxen.control.plans.optimizer import Optimizer
from fluxen.engine.checks import check_complete, check_conflicts
from fluxen.engine.explain import explained
from fluxen.engine.options import UNSET, AdaptOptions, Unset, given_options
from fluxen.errors import ConfigError, QueryError
from fluxen.operators.aggregate.functions import Aggregate
from fluxen.partitioning.base import Partitioner
from fluxen.policies import RiverDQ
from fluxen.policies.base import Policy
from fluxen.spark.batch_join import run_static
from fluxen.spark.plan.aggregate import AggregateWords, aggregate_stage, named_results
from fluxen.spark.plan.base import Given, Keys, Length, Shape, StagePlan, same
from fluxen.spark.plan.graph import in_order
from fluxen.spark.plan.join import Between, JoinWords, join_stage
from fluxen.spark.plan.rows import distinct_stage, stateful_stage
from fluxen.spark.plan.sources import row_by_row
from fluxen.state.store import Store

if TYPE_CHECKING:
    from fluxen.spark.writer import StreamWriter


@dataclass(frozen=True, kw_only=True)
class Query:
    """A continuous query: an ordinary value until `writeStream...start()` runs it."""

    last: StagePlan
    """the stage whose results are the query's; it knows those that feed it"""
    shape: Shape = same
    """what select, where and withColumn make of that stage's results"""
    options: AdaptOptions
    store: Callable[[str], Store] = Store
    """opens a checkpoint; experiments put one here that is slow on purpose"""

    # ---- the graph of stages

    @cached_property
    def plans(self) -> tuple[StagePlan, ...]:
        """All stages, each after those that feed it; a stage that several others read is there once."""
        return in_order(self.last)

    @property
    def inputs(self) -> tuple[tuple[DataFrame | None, ...], ...]:
        """Per stage and input its source; None where another stage feeds it."""
        return tuple(tuple(one.df if one.plan is None else None for one in plan.inputs) for plan in self.plans)

    @cached_property
    def results(self) -> DataFrame:
        """An empty table with the results' columns."""
        return self.shape(self.spark.createDataFrame([], self.last.schema))

    @property
    def schema(self) -> st.StructType:
        """Schema of the results."""
        return self.results.schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def spark(self) -> SparkSession:
        return self.last.inputs[0].df.sparkSession

    # ---- words

    def select(self, *columns: str | Column) -> Query:
        """Some columns of the results, renamed or computed row by row, as DataFrame.select.

        A column that is only renamed stays what it is: an event time of this stage's results is one for the next stage.
        A computed one is taken as a source's event time would be.
        """
        return self._shaped("select", lambda rows: rows.select(*columns))

    def where(self, condition: str | Column) -> Query:
        """Those results for which the condition holds, as DataFrame.where."""
        return self._shaped("where", lambda rows: rows.where(condition))

    filter = where

    def withColumn(self, name: str, column: Column) -> Query:
        """The results with a column more, or another in its place, computed row by row, as DataFrame.withColumn."""
        return self._shaped("withColumn", lambda rows: rows.withColumn(name, column))

    def _shaped(self, word: str, more: Shape) -> Query:
        before = self.shape
        changed = replace(self, shape=lambda rows: more(before(rows)))
        try:
            other = row_by_row(changed.results)
        except AnalysisException as error:
            raise QueryError(f"{word}(): {str(error).splitlines()[0]}") from error
        if other is not None:
            raise QueryError(
                f"{word}() works row by row, but this is a Spark {other}; use aggregate(), distinct() or fx.join()"
            )
        return changed

    def aggregate(
        self,
        by: Keys,
        time: str | None = None,
        *,
        last: int | None = None,
        window: Length | None = None,
        slide: Length | None = None,
        emit: Literal["append", "update"] = "append",
        lateness: Length | None = None,
        ttl: Length | None = None,
        aggregates: Mapping[str, Aggregate] | None = None,
        **named: Aggregate,
    ) -> Query:
        """`fx.aggregate` over this query's results, in the same micro-batch.

        If `time` is an event time of the stage before (a join's `<input>_<time>`, the latest or earliest one of an
        aggregate, a window's start or end), under whatever name select() gave it, no result is late here. Any other
        column, a computed one too, is taken as a source's, less `lateness`.
        """
        return aggregate(
            self,
            by,
            time,
            last=last,
            window=window,
            slide=slide,
            emit=emit,
            lateness=lateness,
            ttl=ttl,
            aggregates=aggregates,
            **named,
        )

    def distinct(
        self,
        by: Keys,
        time: str | None = None,
        *,
        within: Length | None = None,
        lateness: Length | None = None,
        ttl: Length | None = None,
    ) -> Query:
        """`fx.distinct` over this query's results, in the same micro-batch; for `time` see `aggregate`."""
        return distinct(self, by, time, within=within, lateness=lateness, ttl=ttl)

    def adapt(
        self,
        *,
        sites: int | Unset | None = UNSET,
        partitions: int | Unset = UNSET,
        memory_per_site: str | int | Sequence[str | int] | Unset | None = UNSET,
        policy: Policy | type[Policy] | str | Mapping[str, Any] | Unset | None = UNSET,
        partitioner: Partitioner | type[Partitioner] | str | Mapping[str, Any] | Unset | None = UNSET,
        placement: Sequence[float] | Unset | None = UNSET,
        time_budget: str | timedelta | Unset | None = UNSET,
        skew_buffer: str | int | Unset | None = UNSET,
        clock: Literal["wall", "event"] | Unset = UNSET,
        move_protocol: Literal["auto", "mslb", "ptlb"] | Unset = UNSET,
        replan: bool | Optimizer | Unset | None = UNSET,
        balance: Literal["auto", "mslb", "ptlb"] | Unset = UNSET,
    ) -> Query:
        """How the query runs and adapts. What is not named stays as it is, so two calls may come in any order.

        sites=4                     parallel instances of every stage; None for as many as there are cores
        partitions=256              partition groups, what moves and spills; fixed for a checkpoint
        memory_per_site="256m"      state a site may hold in memory, or ["256m", "1g"], one size per site; stages share
                                    it; None for no limit
        policy="flux-load"          what moves and spills: an object (fx.FluxLoad(imbalance=1.5)), a name, a name with
                                    settings ({"name": "flux-load", "imbalance": 1.5}), or a policy of your own by its
                                    path ("my_package.my_module:MyPolicy"); None for no adaptation
        partitioner="readj"         which site owns which key, in the same ways; None for contiguous hash ranges
        placement=(0.6, 0.2, 0.2)   share of the partition groups that each site starts with; None for equal shares
        time_budget="2 seconds"     how long a site may work on a batch; further rows wait in the skew buffer
        skew_buffer="64m"           rows that may wait at a site while the others go on; without a time budget, those
                                    that would take it longer than the others
        clock="event"               policies count event time, for replays; "wall" by default
        move_protocol="mslb"        groups move with their state; "ptlb": by parallel track; "auto" (the default):
                                    whichever is predicted to be less work. `balance` is the older word for it
        replan=False                sites of a join with plan="tree" keep the tree they start with; an fx.Optimizer for
                                    other settings
        """
        if not isinstance(balance, Unset):
            if not isinstance(move_protocol, Unset):
                raise ConfigError("balance is the older word for move_protocol; give only move_protocol")
            move_protocol = balance
        given = given_options(
            sites=sites,
            partitions=partitions,
            memory_per_site=memory_per_site,
            policy=policy,
            partitioner=partitioner,
            placement=placement,
            time_budget=time_budget,
            skew_buffer=skew_buffer,
            clock=clock,
            move_protocol=move_protocol,
            replan=replan,
        )
        return replace(self, options=replace(self.options, **given))._without_conflicts()

    def _without_conflicts(self) -> Query:
        """The query itself, unless options contradict each other or a stage."""
        check_conflicts([plan.stage.operator for plan in self.plans], self.options)
        return self

    def explain(self) -> None:
        """Print what each stage does, what it keeps, and when that goes, if it ever does."""
        print(explained(self.options, [plan.stage for plan in self.plans]))

    @property
    def writeStream(self) -> StreamWriter:
        """Where the results go; from here on the query is complete, so options that lack something are refused."""
        from fluxen.spark.writer import StreamWriter

        check_complete([plan.stage.operator for plan in self.plans], self.options)
        return StreamWriter(self)


# ---- inputs of a stage


def _given(stream: DataFrame | Query, what: str) -> Given:
    if isinstance(stream, Query):
        return Given(df=stream.results, plan=stream.last, shape=stream.shape)
    if not isinstance(stream, DataFrame):
        raise QueryError(f"{what} must be a DataFrame or a Query, got {type(stream).__name__}")
    return Given(df=stream)


def _streaming(stream: DataFrame | Query, what: str) -> Given:
    given = _given(stream, what)
    if given.plan is None and not given.df.isStreaming:
        raise QueryError(f"{what} is not a streaming DataFrame; read it with spark.readStream")
    return given


def _query(inputs: Sequence[DataFrame | Query], last: StagePlan) -> Query:
    """A query that ends with this stage, with the options that its inputs have."""
    queries = [one for one in inputs if isinstance(one, Query)]
    adapted = [query.options for query in queries if query.options != AdaptOptions()]
    if any(options != adapted[0] for options in adapted):
        raise ConfigError("two inputs are adapted in different ways; call adapt() on the combined query instead")
    options = adapted[0] if adapted else AdaptOptions()
    store = queries[0].store if queries else Store
    return Query(last=last, options=options, store=store)._without_conflicts()


def join(
    inputs: Mapping[str, DataFrame | Query],
    on: Keys | Mapping[str, Keys],
    time: str | Mapping[str, str] | None = None,
    *,
    within: Length | None = None,
    between: Between | None = None,
    lateness: Length | Mapping[str, Length] | None = None,
    idle: Length | Mapping[str, Length] | None = None,
    plan: Literal["mjoin", "tree"] = "mjoin",
    ttl: Length | None = None,
    how: Literal["inner", "left", "right", "full", "semi", "anti"] = "inner",
) -> Any:
    """Join two to eight inputs on equal keys: streams, and results of other queries, which become stages of this one.

    `within` limits the latest minus the earliest event time of a result; `between` instead bounds pairs:
    {("b", "a"): ("-60 seconds", "60 seconds")} for b.ts - a.ts, with None for a side that is open. With neither,
    everything is kept, unless `ttl` says for how long: rows more than that apart do not join, in event time or, without
    `time`, in the time of the batches they came in. Rows older than their input's watermark (its latest event time less
    `lateness`, as of the batch before) are dropped and counted. An input with `withWatermark()` has its delay as
    lateness; otherwise it is none. Columns: the key under the first input's names, then `<input>_<column>`.

    An input that is a `Query` is as far as that query's results cannot fall behind, if its time is an event time of
    theirs (see `Query.aggregate`); otherwise its rows' times count, as those of a source. The same DataFrame or Query
    may be used several times: it is read, or runs, once.

    An input without a row for `idle` (one length for all, or some by name) no longer holds the others' state and the
    stages behind: its watermark follows theirs, and rows that come after all are late if they are older.

    `plan="mjoin"` joins all inputs at once and keeps nothing but their rows. `plan="tree"` joins them in steps, keeps
    what the steps find, and lets every site choose and change its own order of steps; the results are the same.

    `how` other than "inner" is for two inputs. Rows without a partner come out with nulls for the other input ("left",
    "right", "full"), or only they do ("anti"), once watermarks and bounds say that none can come; so these need `time`
    and bounds. "semi" gives each row of the first input that has a partner, once.

    Streaming inputs give a `Query`; static ones give the whole answer as a DataFrame.
    """
    given = {name: _given(one, f"input {name!r}") for name, one in inputs.items()}
    static = [name for name, one in given.items() if one.plan is None and not one.df.isStreaming]
    if static and len(static) < len(given):
        raise QueryError(
            f"input {static[0]!r} is static while others stream; join it with Spark's own join(), or stream it"
        )
    words = JoinWords(
        on=on, time=time, within=within, between=between, lateness=lateness, idle=idle, plan=plan, ttl=ttl, how=how
    )
    built = join_stage(given, words)
    if static:
        return run_static([one.df for one in given.values()], built)
    return _query(list(inputs.values()), built)


def aggregate(
    stream: DataFrame | Query,
    by: Keys,
    time: str | None = None,
    *,
    last: int | None = None,
    window: Length | None = None,
    slide: Length | None = None,
    emit: Literal["append", "update"] = "append",
    lateness: Length | None = None,
    ttl: Length | None = None,
    aggregates: Mapping[str, Aggregate] | None = None,
    **named: Aggregate,
) -> Query:
    """Aggregate by key: over the `last` n rows of each key (one result per input row), over event-time windows (emitted
    when the watermark passes their end), or, with neither, over everything so far (one row per key that changed in the
    batch). A null key is a group of its own.

    With `slide` a window starts that often, and a row is in all windows that cover it; otherwise one begins where the
    other ends. `emit="update"` gives a window's values in every batch that changes them, and nothing when it ends.

    Results are named by keyword, as in n=fx.count(), or in `aggregates`, a dict that may hold any name, those of
    keywords included: aggregates={"time": fx.max("ts")}.

    With `ttl` a key's running value is forgotten when it has not been updated for that long, and of the last n rows
    only those count that are at most that old; in event time or, without `time`, in the time of the batches."""
    given = _streaming(stream, "the input of aggregate()")
    words: dict[str, Any] = {"by": by, "time": time, "last": last, "window": window, "slide": slide, "emit": emit}
    words |= {"lateness": lateness, "ttl": ttl}
    results = named_results(aggregates, named, words)
    built = aggregate_stage(given, AggregateWords(**words), results)
    (origin,) = built.origins
    if given.plan is not None and window is not None and origin is not None and given.plan.stage.unbounded(origin):
        warnings.warn(
            f"windows over {time!r} close only at the end of input: nothing says how old its values may become; "
            "give the join before within or between, or take another time",
            stacklevel=3 if isinstance(stream, Query) else 2,
        )
    return _query([stream], built)


def distinct(
    stream: DataFrame | Query,
    by: Keys,
    time: str | None = None,
    *,
    within: Length | None = None,
    lateness: Length | None = None,
    ttl: Length | None = None,
) -> Query:
    """The first row of each key; with `within`, again the first row more than that after the last one kept.

    `ttl` says the same, also for rows without event time, which go by the time of the batches they come in."""
    given = _streaming(stream, "the input of distinct()")
    return _query([stream], distinct_stage(given, by, time, within, lateness, ttl))


def stateful(stream: DataFrame | Query, by: Keys | None, operator: Any, time: str | None = None) -> Query:
    """User code over partition groups: an object with process, extract, install and info (see
    `fluxen.operators.user_code.GroupOperator`), or a whole `fluxen.operators.base.Operator` of your own.

    With `by=None` the code keeps no state and must not care which rows come together: rows are routed by what sites
    have time for (`RiverDQ`, unless `adapt` names another policy), not by what is in them.
    """
    query = _query([stream], stateful_stage(_streaming(stream, "the input of stateful()"), by, time, operator))
    return query if by is not None else query.adapt(policy=RiverDQ())
