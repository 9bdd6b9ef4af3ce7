"""The word `top`. The other words, and what a query is, are in `fluxen.spark.query`."""

from __future__ import annotations

from pyspark.sql import DataFrame

from fluxen.spark.plan.base import Keys, Length
from fluxen.spark.plan.top import Order, TopWords, top_stage
from fluxen.spark.query import Query, query_of, streaming


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
    """
    given = streaming(stream, "the input of top()")
    words = TopWords(by=by, n=n, order=order, time=time, closes=closes, lateness=lateness, ttl=ttl)
    return query_of([stream], top_stage(given, words))
