"""The words that make a `Query`: `join`, `aggregate`, `distinct`, `stateful`, and `query` for a DataFrame as it is.

Building a query checks everything that can be known without data.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pyspark.sql import DataFrame

from fluxen.engine.options import AdaptOptions
from fluxen.errors import ConfigError, QueryError
from fluxen.operators.aggregate.functions import Aggregate
from fluxen.policies import RiverDQ
from fluxen.spark.batch_join import run_static
from fluxen.spark.compile.walk import compiled
from fluxen.spark.plan.aggregate import AggregateWords, aggregate_stage, named_results
from fluxen.spark.plan.base import Given, Keys, Length, StagePlan
from fluxen.spark.plan.join import Between, JoinWords, join_stage
from fluxen.spark.plan.rows import distinct_stage, stateful_stage
from fluxen.spark.plan.top import Order, TopWords, top_stage
from fluxen.spark.plan.union import union_stage
from fluxen.spark.query import Query
from fluxen.spark.stateless import Stateless
from fluxen.state.store import Store

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


def _settled(given: Given, what: str) -> Given:
    """An input whose rows stay what they are."""
    if given.plan is not None and given.plan.stage.operator.emits == "update":
        raise QueryError(
            f"{what} is a query whose results change later, and every change would count as a row; aggregate over "
            "windows of an event time, so that each result comes out once"
        )
    return given


def _query(inputs: Sequence[DataFrame | Query], last: StagePlan) -> Query:
    """A query that ends with this stage, with the options that its inputs have."""
    queries = [one for one in inputs if isinstance(one, Query)]
    adapted = [query.options for query in queries if query.options != AdaptOptions()]
    if any(options != adapted[0] for options in adapted):
        raise ConfigError("two inputs are adapted in different ways; call adapt() on the combined query instead")
    options = adapted[0] if adapted else AdaptOptions()
    if any(query.options.stages for query in queries[1:]):  # the first one's stages keep their numbers
        raise ConfigError("stages= goes by the stages' numbers, which change here; give it to the combined query")
    store = queries[0].store if queries else Store
    return Query(last=last, options=options, store=store).without_conflicts()


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

    Example::

        paid = fx.join(
            {"order": orders, "payment": payments},
            on="id",
            time={"order": "placed", "payment": "paid"},
            between={("payment", "order"): ("0 seconds", "15 minutes")},
        )
    """
    given = {name: _settled(_given(one, f"input {name!r}"), f"input {name!r}") for name, one in inputs.items()}
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
    session: Length | None = None,
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
    `session="30 seconds"` instead makes a group of rows of a key that are at most that far apart, with the column
    `session_window` as Spark's session_window() has it: from the first row to that long after the last.

    Results are named by keyword, as in n=fx.count(), or in `aggregates`, a dict that may hold any name, those of
    keywords included: aggregates={"time": fx.max("ts")}.

    With `ttl` a key's running value is forgotten when it has not been updated for that long, and of the last n rows
    only those count that are at most that old; in event time or, without `time`, in the time of the batches.

    Example::

        busy = fx.aggregate(
            clicks, by="site", time="ts", window="1 minute", n=fx.count(), users=fx.count("user", distinct=True)
        )
    """
    given = _settled(_streaming(stream, "the input of aggregate()"), "the input of aggregate()")
    words: dict[str, Any] = {"by": by, "time": time, "last": last, "window": window, "slide": slide, "emit": emit}
    words |= {"session": session, "lateness": lateness, "ttl": ttl}
    results = named_results(aggregates, named, words)
    built = aggregate_stage(given, AggregateWords(**words), results)
    (origin,) = built.origins
    windowed = window is not None or session is not None
    if given.plan is not None and windowed and origin is not None and given.plan.stage.unbounded(origin):
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

    `ttl` says the same, also for rows without event time, which go by the time of the batches they come in.

    Example::

        once = fx.distinct(clicks, by=["user", "site"], time="ts", within="10 minutes")
    """
    given = _settled(_streaming(stream, "the input of distinct()"), "the input of distinct()")
    return _query([stream], distinct_stage(given, by, time, within, lateness, ttl))


def top(
    stream: DataFrame | Query,
    by: Keys,
    n: int,
    order: Order,
    time: str | None = None,
    *,
    closes: str | None = None,
    lateness: Length | None = None,
    ttl: Length | None = None,
) -> Query:
    """The first `n` rows of each key: `row_number() over (partition by by order by order) <= n`, kept up to date.

    `order` is a list of columns with their directions: [("price", "desc"), ("ts", "asc")]; "asc_nulls_last" and
    "desc_nulls_first" where nulls are not to be the smallest, NaN being the largest of all. Rows that it does not tell
    apart are ordered by their other columns, ascending. The last row of each key is n=1, order=[("ts", "desc")].

    Results are updates: the rows with a column `rank` from 1. A batch that changes the first rows of a key brings those
    whose rank has another row now; (by, rank) tells which row of earlier batches each of them takes the place of.

    State is n rows per key, for ever unless `ttl` is given: a key without rows for that long is forgotten and starts
    anew; in event time or, without `time`, in the time of the batches. With `closes`, one of the columns in `by` that
    is a timestamp or a window, a group goes when the watermark of `time` has passed that time, or the window's end;
    rows that come for it after that are late.

    Example::

        dearest = fx.top(orders, by="customer", n=3, order=[("amount", "desc"), "placed"])
    """
    given = _settled(_streaming(stream, "the input of top()"), "the input of top()")
    words = TopWords(by=by, n=n, order=order, time=time, closes=closes, lateness=lateness, ttl=ttl)
    return _query([stream], top_stage(given, words))


def union(*streams: DataFrame | Query, time: str | None = None, lateness: Length | None = None) -> Query:
    """The rows of streams and of other queries' results, which have the same columns, as one stream.

    `time` is an event time that all of them have; a stage behind goes by it as far as the input has come that is
    behind the others. No row is late here. Streams alone are united as well by DataFrame.union, in Spark.

    Example::

        both = fx.union(clicks, more_clicks, time="ts").aggregate(by="site", n=fx.count())
    """
    given = [_streaming(one, f"input {number} of union()") for number, one in enumerate(streams, start=1)]
    return _query(streams, union_stage(given, time, lateness))


def stateful(stream: DataFrame | Query, by: Keys | None, operator: Any, time: str | None = None) -> Query:
    """User code over partition groups: an object with process, extract, install and info (see
    `fluxen.operators.user_code.GroupOperator`), or a whole `fluxen.operators.base.Operator` of your own.

    With `by=None` the code keeps no state and must not care which rows come together: rows are routed by what sites
    have time for (`RiverDQ`, unless `adapt` names another policy), not by what is in them.

    Example::

        gaps = fx.stateful(clicks, by="user", operator=Gaps(), time="ts")  # the class is in examples/own_operator.py
    """
    query = _query([stream], stateful_stage(_streaming(stream, "the input of stateful()"), by, time, operator))
    return query if by is not None else query.adapt(policy=RiverDQ())


def query(df: DataFrame, *, mode: Literal["append", "update"] = "append") -> Any:
    """A streaming DataFrame as it is, made with the DataFrame API or spark.sql(): fluxen runs its joins of streams and
    its aggregates, Spark everything that keeps no state.

    Windows come out once, when the watermark passes their end; with `mode="update"`, or outputMode("update") of the
    writer, whenever they have changed. `fx.explain(df)` shows the stages. What cannot be run is refused here.

    Gives a `Query`; for a DataFrame that keeps no state something like one, whose `writeStream` is Spark's own.

    Example::

        clicks.withWatermark("ts", "10 seconds").createOrReplaceTempView("clicks")
        df = spark.sql("SELECT site, window(ts, '1 minute') AS minute, count(*) AS n FROM clicks GROUP BY 1, 2")
        query = fx.query(df).adapt(sites=2)
    """
    if not isinstance(df, DataFrame):
        connect = "connect" in type(df).__module__
        raise QueryError(
            "Spark Connect hands out no plans to read; use a session of its own, such as fx.session()"
            if connect
            else f"query() takes a streaming DataFrame, got {type(df).__name__}"
        )
    if not df.isStreaming:
        raise QueryError("query() takes a streaming DataFrame, this one is static; read it with spark.readStream")
    if mode not in ("append", "update"):
        raise QueryError(f"mode must be 'append' or 'update', got {mode!r}")
    found = compiled(df, mode)
    if found is None:
        return Stateless(df=df)
    return Query(last=found.last, shape=found.shape, options=AdaptOptions(), note=found.note)


def explain(df: DataFrame) -> None:
    """Print what fluxen would run of a streaming DataFrame, and what Spark would.

    Example::

        fx.explain(clicks.withWatermark("ts", "10 seconds").dropDuplicatesWithinWatermark(["user", "site"]))
    """
    query(df).explain()
