"""A time to live on Spark, and what `explain` says about state that has none."""

from __future__ import annotations

import pytest

import fluxen as fx
from fluxen.errors import QueryError
from fluxen.testing import feed, feeds, oracle
from tests.spark.rows import events

pytestmark = pytest.mark.spark

BATCHES = [
    events([1, 2, 1], [0, 1, 2], [1, 2, 3]),
    events([1, 2], [9, 10], [4, 5]),
    events([1, 2, 2], [30, 31, 19], [6, 7, 8]),
    events([1], [34], [9]),
]
LIFE = 7_000_000


def test_running_values_and_last_rows_forget(spark, drain, collected):
    aggregates = {"n": fx.count(), "total": fx.sum("v")}
    query = fx.aggregate(feed(spark, BATCHES), by="k", time="ts", ttl="7 seconds", **aggregates)
    drain(query.adapt(sites=2, partitions=8), collected)
    assert collected.canonical() == oracle.canonical_rows(oracle.running(BATCHES, ["k"], "ts", aggregates, ttl=LIFE))
    again = type(collected)()
    query = fx.aggregate(feed(spark, BATCHES), by="k", time="ts", last=5, ttl="7 seconds", **aggregates)
    drain(query.adapt(sites=2, partitions=8), again, checkpoint="last")
    assert again.canonical() == oracle.canonical_rows(oracle.last(BATCHES, ["k"], "ts", 5, aggregates, ttl=LIFE))


def test_a_join_without_event_time_forgets_by_the_time_of_its_batches(spark, drain, collected, tmp_path):
    bare = [table.drop_columns(["ts"]) for table in BATCHES]
    joined = fx.join(feeds(spark, {"a": bare, "b": bare}), on="k", ttl="1 hour").adapt(sites=2, partitions=8)
    run = drain(joined, collected)
    whole = oracle.join({"a": bare, "b": bare}, {"a": ["k"], "b": ["k"]}, None)
    assert collected.canonical() == oracle.canonical_rows(whole)
    (marks,) = [stage["watermarks"] for stage in run.epoch["stages"]]
    assert all(mark is not None for mark in marks)
    assert len(list((tmp_path / "checkpoint" / "epochs").glob("*.time"))) <= 5


def test_a_time_to_live_where_state_expires_anyway_is_refused(spark):
    stream = feed(spark, BATCHES)
    with pytest.raises(QueryError, match="windows go when they are closed"):
        fx.aggregate(stream, by="k", time="ts", window="1 second", ttl="1 day", n=fx.count())
    with pytest.raises(QueryError, match="give either within or ttl"):
        fx.distinct(stream, by="k", time="ts", within="1 second", ttl="1 day")
    with pytest.raises(QueryError, match="ttl must be positive"):
        fx.distinct(stream, by="k", ttl="0 seconds")
    with pytest.raises(TypeError, match="ttl"):
        fx.stateful(stream, by="k", operator=object(), ttl="1 day")


def test_explain_says_what_is_kept_and_what_never_goes(spark, capsys):
    stream = feed(spark, BATCHES)
    queries = [
        (
            fx.join({"a": stream, "b": stream}, on="k", time="ts", within="1 minute"),
            [
                "stage 1 (join) of a on k (time ts), b on k (time ts)",
                "  state: rows of a, until the watermarks of the other inputs are 1 minute of event time past them",
            ],
        ),
        (
            fx.join({"a": stream, "b": stream}, on="k").aggregate(by="k", n=fx.count()),
            [
                "  state: rows of b, which never expire: give within='1 hour', between={...} or ttl='7 days'",
                "stage 2 (running aggregate) by k, after stage 1",
                "  state: a row per key, which never expires: give ttl='7 days' or window='1 hour'",
            ],
        ),
        (
            fx.aggregate(stream, by=["k", "v"], last=10, ttl="7 days", n=fx.count()),
            [
                "stage 1 (last aggregate) by k, v",
                "  state: up to 9 rows per key, for 7 days of the time of batches",
            ],
        ),
        (
            fx.aggregate(stream, by="k", time="ts", window="1 hour", n=fx.count()),
            [
                "  state: a row per key and open window of 1 hour, until the watermark passes its end",
            ],
        ),
        (
            fx.distinct(stream, by="k", time="ts").adapt(sites=2, policy="flux-load"),
            [
                "fluxen: 2 sites, 256 partition groups, policy FluxLoad, memory_per_site auto, of what executors have, "
                "shared by the stages",
                "  state: a row per key that was kept, which never expires: give within='1 hour' or ttl='7 days'",
            ],
        ),
    ]
    for query, expected in queries:
        query.explain()
        shown = capsys.readouterr().out.splitlines()
        assert [line for line in expected if line not in shown] == [], shown
