"""A query as users hold it: an ordinary value that can be refined, explained and started.

The words that make one are in `fluxen.spark.words`; what runs is in `fluxen.spark.run`.
"""

from __future__ import annotations

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
from fluxen.policies.base import Policy
from fluxen.spark.plan.base import Keys, Length, Shape, StagePlan, same
from fluxen.spark.plan.graph import in_order
from fluxen.spark.plan.sources import row_by_row
from fluxen.spark.plan.top import Order
from fluxen.state.store import Store

if TYPE_CHECKING:
    from fluxen.spark.writer import StreamWriter


@dataclass(frozen=True, kw_only=True)
class Query:
    """A continuous query: an ordinary value until `writeStream...start()` runs it.

    Example::

        query = fx.aggregate(clicks, by="site", n=fx.count()).where("n > 10").adapt(sites=2)
        query.explain()
        query.columns
    """

    last: StagePlan
    """the stage whose results are the query's; it knows those that feed it"""
    shape: Shape = same
    """what select, where and withColumn make of that stage's results"""
    options: AdaptOptions
    store: Callable[[str], Store] = Store
    """opens a checkpoint; experiments put one here that is slow on purpose"""
    note: str = ""
    """what Spark does with the last stage's results, for explain()"""

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

        Example::

            query.select("site", (F.col("n") * 2).alias("twice"))
        """
        return self._shaped("select", lambda rows: rows.select(*columns))

    def where(self, condition: str | Column) -> Query:
        """Those results for which the condition holds, as DataFrame.where.

        Example::

            query.where("n > 10")
        """
        return self._shaped("where", lambda rows: rows.where(condition))

    filter = where

    def withColumn(self, name: str, column: Column) -> Query:
        """The results with a column more, or another in its place, computed row by row, as DataFrame.withColumn.

        Example::

            query.withColumn("many", F.col("n") > 10)
        """
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
        session: Length | None = None,
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

        Example::

            pairs = fx.join({"a": clicks, "b": more_clicks}, on="user", time="ts", within="1 minute")
            pairs.aggregate(by="a_site", time="a_ts", window="10 seconds", n=fx.count())
        """
        from fluxen.spark.words import aggregate

        return aggregate(
            self,
            by,
            time,
            last=last,
            window=window,
            slide=slide,
            session=session,
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
        """`fx.distinct` over this query's results, in the same micro-batch; for `time` see `aggregate`.

        Example::

            pairs.distinct(by="user", time="a_ts", within="1 hour")
        """
        from fluxen.spark.words import distinct

        return distinct(self, by, time, within=within, lateness=lateness, ttl=ttl)

    def union(self, *others: DataFrame | Query, time: str | None = None) -> Query:
        """`fx.union` of this query's results and others, in the same micro-batch; for `time` see `aggregate`.

        Example::

            fx.distinct(clicks, by="user").union(more_clicks)
        """
        from fluxen.spark.words import union

        return union(self, *others, time=time)

    def top(self, by: Keys, n: int, order: Order, time: str | None = None, **options: Any) -> Query:
        """`fx.top` over this query's results, in the same micro-batch; for `time` see `aggregate`.

        Example::

            minutes = fx.aggregate(clicks, by="site", time="ts", window="1 minute", n=fx.count())
            minutes.top(by="window", n=3, order=[("n", "desc")])
        """
        from fluxen.spark.words import top

        return top(self, by, n, order, time, **options)

    def adapt(
        self,
        *,
        sites: int | Literal["auto"] | Sequence[int] | Unset | None = UNSET,
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
        latency: str | timedelta | Unset | None = UNSET,
        balance: Literal["auto", "mslb", "ptlb"] | Unset = UNSET,
        stages: Mapping[int, Mapping[str, Any]] | Unset | None = UNSET,
    ) -> Query:
        """How the query runs and adapts; what is not named stays as it is.

        sites=4                     parallel instances of every stage; None for as many as there are cores; "auto", or
                                    bounds such as (1, 8), for as many as it takes: more when busy, fewer when idle
        partitions=256              partition groups, what moves and spills; fixed for a checkpoint
        memory_per_site="256m"      state of a site in memory, or a list; None: a share of what there is; "unlimited"
        policy="flux-load"          what moves and spills: an object (fx.FluxLoad(imbalance=1.5)), a name, a name with
                                    settings ({"name": "flux-load", "imbalance": 1.5}), or one of your own by its path
                                    ("my_package.my_module:MyPolicy"); None is fx.Auto(), "static" for none
        partitioner="readj"         which site owns which key, in the same ways; None for contiguous hash ranges
        placement=(0.6, 0.2, 0.2)   share of the partition groups that each site starts with; None for equal shares
        time_budget="2 seconds"     how long a site may work on a batch; further rows wait
        skew_buffer="64m"           rows that may wait at a site; without a time budget, those that take it too long
        clock="event"               policies count event time, for replays; "wall" by default
        move_protocol="mslb"        groups move with their state, "ptlb" by parallel track, "auto" as is less work
        replan=False                sites of a join with plan="tree" keep the tree they start with; or an fx.Optimizer
        latency="1 second"          what a batch should take: limits of files and Kafka double and halve for it
        stages={1: {"policy": "active-disk", "memory_per_site": "1g"}}
                                    options of single stages, by their numbers in explain()

        Example::

            query = query.adapt(sites=4, memory_per_site="256m").adapt(policy="flux-hybrid")
        """
        if not isinstance(balance, Unset) and not isinstance(move_protocol, Unset):
            raise ConfigError("balance is the older word for move_protocol; give only move_protocol")
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
            move_protocol=move_protocol if isinstance(balance, Unset) else balance,
            replan=replan,
            stages=stages,
            latency=latency,
        )
        return replace(self, options=replace(self.options, **given)).without_conflicts()

    def without_conflicts(self) -> Query:
        """The query itself, unless options contradict each other or a stage."""
        check_conflicts([plan.stage.operator for plan in self.plans], self.options)
        return self

    def explain(self) -> None:
        """Print what each stage does, what it keeps, and when that goes, if it ever does."""
        before = [[one.note for one in plan.inputs] for plan in self.plans]
        print(explained(self.options, [plan.stage for plan in self.plans], before, self.note))

    def in_mode(self, mode: str) -> Query:
        """The query with its last stage in the output mode "update", if that is asked for and another way of running
        the stage; otherwise as it is."""
        updating = self.last.updating if mode == "update" else None
        return self if updating is None else replace(self, last=updating())

    @property
    def writeStream(self) -> StreamWriter:
        """Where the results go; from here on the query is complete, so options that lack something are refused.

        Example::

            run = query.writeStream.format("memory").queryName("busy").option("checkpointLocation", checkpoint).start()
            run.processAllAvailable()
            run.stop()
        """
        from fluxen.spark.writer import StreamWriter

        check_complete([plan.stage.operator for plan in self.plans], self.options)
        return StreamWriter(self)
