"""DataFrames that are easy to get wrong: streams of which one is behind, times at a window's end, sums without room,
functions of one name, local times that a clock skips, and what has to be refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import fluxen as fx
from fluxen.errors import CheckpointError, QueryError
from fluxen.testing import feeds, oracle
from tests.query_cases import SECOND

pytestmark = pytest.mark.spark

START = 1_700_000_000 * SECOND
"""A multiple of 20 seconds."""
LEFT_AND_CAME = "(SELECT k, ts AS t FROM a UNION ALL SELECT k, ts + INTERVAL 1 HOUR FROM a)"
BOTH = "a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts + INTERVAL 5 SECONDS"


def rows(*given: tuple[float, int]) -> pa.Table:
    """Rows of (seconds, key), with the key as n as well."""
    times = [START + round(second * SECOND) for second, _ in given]
    keys = pa.array([key for _, key in given], pa.int64())
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "k": keys, "n": keys})


@contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


@pytest.fixture
def views(spark: Any, tmp_path: Any) -> Any:
    """Makes names stand for streams of these tables, or for all of their rows."""

    def make(tables: dict[str, list[pa.Table]], delays: dict[str, str], *, streaming: bool) -> dict[str, Any]:
        made = {}
        for name, stream in feeds(spark, tables, tmp_path / "input").items():
            if not streaming:
                pq.write_table(pa.concat_tables(tables[name]), tmp_path / f"{name}.parquet")
                stream = spark.read.schema(stream.schema).parquet(str(tmp_path / f"{name}.parquet"))
            made[name] = stream.withWatermark("ts", delays.get(name, "0 seconds"))
            made[name].createOrReplaceTempView(name)
        return made

    return make


@pytest.fixture
def same(spark: Any, views: Any, drain: Any, collected: Any) -> Any:
    """Checks that a query gives on fluxen, to the end of its input, what Spark gives over all rows at once."""

    def check(tables: dict[str, list[pa.Table]], query: Any, **delays: str) -> None:
        build = query if callable(query) else lambda _: spark.sql(query)
        made = fx.query(build(views(tables, delays, streaming=True))).adapt(sites=2, partitions=8)
        drain(made, collected, endOfInput=True)
        expected = build(views(tables, delays, streaming=False)).collect()
        assert expected
        assert collected.canonical() == oracle.canonical_rows(row.asDict(recursive=True) for row in expected)

    return check


# ---- event times


def test_streams_of_a_union_are_late_by_their_own_watermarks(same):
    ahead, behind = [rows((1000 + at, 1)) for at in range(3)], [rows((30 * at, 2)) for at in range(3)]
    united = "(SELECT * FROM a UNION ALL SELECT * FROM b)"
    sql = f"SELECT k, window(ts, '10 seconds') AS w, count(*) AS n FROM {united} GROUP BY 1, 2"
    same({"a": ahead, "b": behind}, sql)


def test_streams_of_a_union_have_their_own_delays(same):
    tables = {"a": [rows((100, 1), (200, 1)), rows((300, 1))], "b": [rows((100, 2), (200, 2)), rows((150, 2))]}

    def united(made: dict[str, Any]) -> Any:
        return made["a"].union(made["b"]).groupBy("k", F.window("ts", "10 seconds")).agg(F.sum("n").alias("n"))

    same(tables, united, a="1 second", b="100 seconds")


def test_parts_of_one_stream_are_united_by_spark(spark, views):
    made = views({"a": [rows((1, 1))]}, {}, streaming=True)["a"]
    counted = made.where("k = 1").union(made.where("k = 2")).groupBy(F.window("ts", "10 seconds")).count()
    assert len(fx.query(counted).plans) == 1


def test_another_column_in_the_place_of_an_event_time_moves_no_watermark(same, spark, views):
    """Rows of the second batch would be late, were the later times of the first one event times."""
    tables = [rows((1, 1), (20, 2)), rows((2, 1), (30, 2))]
    same({"a": tables}, f"SELECT DISTINCT k, t FROM {LEFT_AND_CAME}", a="1 minute")


def test_a_union_in_our_own_words_does_not_hide_who_is_behind(spark, views):
    made = views({"a": [rows((1, 1))], "b": [rows((1, 1))]}, {}, streaming=True)
    with pytest.raises(QueryError, match=r"use fx.union\(\)"):
        fx.aggregate(made["a"].union(made["b"]), "k", "ts", window="1 second", n=fx.count())


@pytest.mark.parametrize(
    "sql",
    [
        """SELECT window(window_time(w), '20 seconds') AS ww, sum(n) AS n FROM
        (SELECT window(ts, '10 seconds') AS w, count(*) AS n FROM a GROUP BY 1) GROUP BY 1""",
        """SELECT window_time(w) AS t, sum(n) AS n FROM
        (SELECT k, window(ts, '10 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2) GROUP BY 1""",
        """SELECT ts, count(*) AS n FROM (SELECT a.ts FROM a JOIN b ON a.k = b.k
        AND b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts) GROUP BY ts""",
    ],
)
def test_results_that_end_just_where_the_watermark_is_are_counted(same, sql):
    """After the first batch the watermark is a microsecond before the end of windows that the second one closes."""
    last = 20 - 1e-6
    tables = [rows((last, 1)), rows((last, 2), (45, 3))]
    same({"a": tables, "b": tables}, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, session_window(ts, '2 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2",
        """SELECT a.k, session_window(a.ts, '2 seconds') AS w, count(*) AS n FROM a JOIN b ON a.k = b.k
        AND b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts GROUP BY 1, 2""",
    ],
)
def test_a_row_at_the_watermark_goes_on_with_the_session_that_ends_there(same, sql):
    """After the first batch the watermark is at 12, where the session of key 1 ends and its next row is."""
    tables = [rows((10, 1), (12, 2)), rows((12, 1)), rows((14, 1), (40, 3)), rows((50, 3))]
    same({"a": tables, "b": tables}, sql)


def test_a_later_stage_knows_the_times_of_all_streams_before_it(same):
    """The second batch joins a row of a that is older than all that b and c have had."""
    tables = {
        "a": [rows((12, 1), (50, 2)), rows((60, 2)), rows((90, 2))],
        "b": [rows((20, 4)), rows((40, 1), (41, 1)), rows((90, 4))],
        "c": [rows((20, 4)), rows((40, 1), (42, 3)), rows((90, 4))],
    }
    same(
        tables,
        """SELECT window(a.ts, '5 seconds') AS w, count(*) AS n FROM a
        JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 30 SECONDS
        JOIN c ON b.n % 2 = c.n % 2 AND c.ts BETWEEN b.ts AND b.ts + INTERVAL 3 SECONDS GROUP BY 1""",
    )


def test_windows_that_nothing_closes_draw_a_warning(spark, views):
    views({name: [rows((1, 1))] for name in "ab"}, {}, streaming=True)
    sql = "SELECT window(a.ts, '5 seconds') AS w, count(*) AS n FROM a JOIN b ON a.k = b.k AND {} GROUP BY 1"
    with pytest.warns(UserWarning, match="only at the end of input"):
        fx.query(spark.sql(sql.format("a.ts <= b.ts")))
    fx.query(spark.sql(sql.format("a.ts <= b.ts AND b.ts <= a.ts + INTERVAL 1 HOUR")))


# ---- time zones


def night(*times: tuple[int, int]) -> pa.Table:
    """Local times of the night in which Berlin's clocks go from 2 to 3 o'clock."""
    found = [datetime(2026, 3, 29, hour, minute) for hour, minute in times]
    return pa.table({"ts": pa.array(found, pa.timestamp("us")), "k": pa.array([1] * len(found), pa.int64())})


def test_local_times_that_a_clock_skips_are_times_like_any_other(spark, drain, collected, tmp_path):
    """Spark has no watermarks on them; in fluxen's own words they are event times."""
    tables = [night((2, 30), (3, 30), (1, 0)), night((3, 31), (2, 31))]
    with setting(spark, "spark.sql.session.timeZone", "Europe/Berlin"):
        streams = feeds(spark, {"a": tables, "b": tables}, tmp_path / "input")
        joined = fx.join(streams, on="k", time="ts", within="5 minutes", lateness="3 hours")
        windows = joined.aggregate("k", "a_ts", window="10 minutes", n=fx.count(), latest=fx.max("b_ts"))
        drain(windows.adapt(sites=2, partitions=8), collected, endOfInput=True)
    found = [(row["window"]["start"], row["n"], row["latest"]) for row in collected.rows]
    at = [datetime(2026, 3, 29, *time) for time in ((1, 0), (2, 30), (2, 31), (3, 30), (3, 31))]
    assert sorted(found) == [(at[0], 1, at[0]), (at[1], 4, at[2]), (at[3], 4, at[4])]


def test_lists_of_times_are_the_same_in_any_time_zone(spark, same):
    tables = [rows((1, 1), (2, 1), (2, 2)), rows((3, 1), (15, 2))]
    lists = "sort_array(collect_list(ts)) AS l, sort_array(collect_set(ts)) AS s"
    with setting(spark, "spark.sql.session.timeZone", "Europe/Berlin"):
        same({"a": tables}, f"SELECT k, {lists} FROM a GROUP BY k, window(ts, '10 seconds')")


def test_a_query_goes_on_with_its_state_in_another_time_zone(spark, views, drain, collected):
    tables = [rows((1, 1)), rows((2, 1))]
    sql = "SELECT string(max(u)) AS u FROM (SELECT ts, ts AS u FROM a) GROUP BY window(ts, '1 hour')"
    for upto, zone in ((1, "Europe/Berlin"), (2, "UTC")):
        with setting(spark, "spark.sql.session.timeZone", zone):
            views({"a": tables[:upto]}, {}, streaming=True)
            drain(fx.query(spark.sql(sql)).adapt(partitions=8), collected, endOfInput=upto == 2)
    assert collected.rows == [{"u": "2023-11-14 22:13:22"}]


def test_a_gap_in_days_is_refused_where_days_differ_in_length(spark, views):
    views({"a": [rows((1, 1))]}, {}, streaming=True)
    sql = "SELECT k, session_window(ts, '{}') AS w, count(*) AS n FROM a GROUP BY 1, 2"
    with setting(spark, "spark.sql.session.timeZone", "Europe/Berlin"):
        with pytest.raises(QueryError, match="say how many hours"):
            fx.query(spark.sql(sql.format("1 day")))
        assert len(fx.query(spark.sql(sql.format("24 hours"))).plans) == 1


# ---- keys


def test_zeros_of_both_signs_and_nan_are_keys_and_stay_as_they_are(same):
    odd = "SELECT ts, n, if(k = 1, -0.0D, if(k = 2, 0.0D, if(k = 3, double('NaN'), NULL))) AS z FROM {}"
    tables = [rows((1, 1), (2, 2), (3, 3), (4, 4)), rows((4, 2), (5, 1), (6, 3))]
    same(
        {"a": tables, "b": tables},
        f"""SELECT string(x.z) AS p, string(y.z) AS q, string(x.c) AS r, string(y.c) AS s, x.n, y.n AS m
        FROM (SELECT *, struct(z) AS c FROM ({odd.format("a")})) x
        JOIN (SELECT *, struct(z) AS c FROM ({odd.format("b")})) y ON x.z = y.z AND x.c = y.c
        AND x.ts BETWEEN y.ts - INTERVAL 3 SECONDS AND y.ts + INTERVAL 3 SECONDS""",
        a="4 seconds",
        b="4 seconds",
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT string(z) AS z, string(c.z) AS y, count(*) AS n FROM {} GROUP BY z, c, window(ts, '1 second')",
        "SELECT string(z) AS z, string(l[0]) AS y FROM (SELECT DISTINCT z, array(z) AS l, n FROM {})",
    ],
)
def test_zeros_of_both_signs_are_one_group_and_it_is_called_zero(same, sql):
    """Groups of one row each, which the JVM does not put together, as well as those of several."""
    tables = [rows((1, 1), (2, 2), (2.5, 1)), rows((3, 1), (4, 2))]
    signs = [pa.array([-0.0 if k == 1 else 0.0 for k in one["k"].to_pylist()]) for one in tables]
    signed = [one.append_column("z", sign) for one, sign in zip(tables, signs)]
    same({"a": signed}, sql.format("(SELECT *, struct(z) AS c FROM a)"))


def test_two_functions_of_one_name_are_two_keys(same):
    same_key, rest = F.udf(lambda k: k, "bigint"), F.udf(lambda k: k % 2, "bigint")
    tables = [rows((1, 1), (2, 2), (3, 3)), rows((4, 1), (5, 2))]

    def joined(made: dict[str, Any]) -> Any:
        a, b = made["a"].alias("a"), made["b"].alias("b")
        on = (same_key("a.k") == F.col("b.k")) & (rest("a.k") == F.col("b.k")) & F.expr(BOTH.split(" AND ", 1)[1])
        return a.join(b, on).select(F.col("a.k").alias("p"), F.col("b.k").alias("q"))

    same({"a": tables, "b": tables}, joined)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT s COLLATE UTF8_LCASE AS c, count(*) AS n FROM {} GROUP BY 1",
        "SELECT DISTINCT s COLLATE UTF8_LCASE AS c FROM {}",
        "SELECT k, min(s COLLATE UTF8_LCASE) AS c FROM {} GROUP BY k",
        "SELECT x.k FROM {} x JOIN {} y ON x.s COLLATE UTF8_LCASE = y.s COLLATE UTF8_LCASE",
        """SELECT x.k FROM {} x LEFT JOIN {} y ON x.k = y.k AND x.s COLLATE UTF8_LCASE = y.s COLLATE UTF8_LCASE
        AND x.ts BETWEEN y.ts AND y.ts + INTERVAL 1 SECOND""",
        """SELECT k FROM (SELECT k, row_number() OVER (PARTITION BY k ORDER BY s COLLATE UTF8_LCASE) AS r FROM {})
        WHERE r = 1""",
    ],
)
def test_what_compares_by_a_collation_is_refused(spark, views, sql):
    if spark.version.startswith("3."):
        pytest.skip("strings have no collations yet")
    views({"a": [rows((1, 1))]}, {}, streaming=True)
    named = "(SELECT *, string(k) AS s FROM a)"
    with pytest.raises(QueryError, match="string collate UTF8_LCASE"):
        fx.query(spark.sql(sql.format(named, named)))


# ---- sums


@pytest.mark.parametrize(
    ("kind", "value", "ansi"),
    [(pa.int64(), 2**62, "true"), (pa.decimal128(38, 0), Decimal("9" * 38), "false")],
)
def test_a_sum_without_room_ends_the_query(spark, views, drain, collected, kind, value, ansi):
    """Each batch's sum has room, only both together have not."""
    tables = [rows((at, 1)).set_column(2, "n", pa.array([value], kind)) for at in (1, 2)]
    with setting(spark, "spark.sql.ansi.enabled", ansi):
        views({"a": tables}, {}, streaming=True)
        query = fx.query(spark.sql("SELECT k, sum(n) AS total FROM a GROUP BY k")).adapt(partitions=8)
        with pytest.raises(QueryError, match=r"sum\(n\): a sum is larger than"):
            drain(query, collected)


def test_without_ansi_whole_numbers_wrap_as_sparks_do(spark, same):
    tables = [rows((at, 1)).set_column(2, "n", pa.array([2**62], pa.int64())) for at in (1, 2)]
    with setting(spark, "spark.sql.ansi.enabled", "false"):
        same({"a": tables}, "SELECT sum(n) AS total FROM a GROUP BY window(ts, '1 hour')")


def test_what_a_filter_leaves_out_of_an_aggregate_is_not_computed(spark, same):
    tables = [rows((1, 0), (2, 5)), rows((3, 0), (4, 2))]
    sql = "SELECT sum(10 div k) FILTER (WHERE k > 0) AS s FROM a GROUP BY window(ts, '1 hour')"
    with setting(spark, "spark.sql.ansi.enabled", "true"):
        same({"a": tables}, sql)


# ---- what has no state, and what is refused


def test_a_dataframe_without_state_is_run_by_spark(spark, views, tmp_path, capsys):
    tables = {name: [rows((1, 1), (2, 2))] for name in "ab"}
    views(tables, {}, streaming=True)
    query = fx.query(spark.sql("SELECT k FROM a WHERE k > 1 UNION ALL SELECT k + 10 FROM b")).adapt(sites=2)
    query.explain()
    assert "Spark: the whole query" in capsys.readouterr().out
    writer = query.writeStream.format("memory").queryName("stateless").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "stateless")).start().awaitTermination()
    assert sorted(row.k for row in spark.table("stateless").collect()) == [2, 11, 12]
    with pytest.raises(TypeError, match="site"):
        query.adapt(site=2)


def test_a_dataframe_that_has_lost_its_state_does_not_start_anew_on_its_checkpoint(spark, views, drain, collected):
    views({"a": [rows((1, 1))]}, {}, streaming=True)
    run = drain(fx.query(spark.sql("SELECT k, count(*) AS n FROM a GROUP BY k")).adapt(partitions=8), collected)
    writer = fx.query(spark.sql("SELECT k FROM a")).writeStream
    with pytest.raises(CheckpointError, match="keeps none"):
        writer.option("checkpointLocation", run.checkpoint)


REFUSED = {
    "SELECT k, try_sum(n) AS n FROM a GROUP BY k": "without try_",
    "SELECT k, first(n) AS n FROM (SELECT k, n FROM a) GROUP BY k": "withWatermark",
    "SELECT a.k FROM a FULL JOIN b ON a.k = b.k AND b.ts <= a.ts": "later than them rows of a .* a.ts BETWEEN b.ts",
    "SELECT a.k FROM a LEFT ANTI JOIN (SELECT k FROM b) b ON a.k = b.k": "on b and add such a bound to ON",
    "SELECT k, session_window(t, '1 second') AS w, count(*) AS n FROM (SELECT k, ts + INTERVAL 1 HOUR AS t FROM a) "
    "GROUP BY 1, 2": r"put withWatermark\(\) on that column",
    f"SELECT window(t, '1 hour') AS w, count(*) AS n FROM {LEFT_AND_CAME} GROUP BY 1": "a watermark in all its parts",
    f"SELECT c.ts, count(*) AS n FROM (SELECT struct(a.ts) AS c FROM a JOIN b ON {BOTH}) GROUP BY c.ts": "grouping by",
    """SELECT w, count(*) AS n FROM (SELECT window(ts, '1 hour') AS w FROM a
    UNION ALL SELECT window(ts, '2 hours') FROM b) GROUP BY w""": "make windows of it above",
    "SELECT * FROM (SELECT window(ts, '1 hour') AS w, k, n FROM a) PIVOT (sum(n) FOR k IN (1, 2))": "FILTER",
    "SELECT k, n FROM a UNION ALL SELECT 1, 2": "read the table as a stream",
    "SELECT k, count(*) AS n FROM (SELECT k FROM a UNION ALL SELECT 1) GROUP BY k": "read the table as a stream",
    "SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts) AS r FROM a": "a filter such as rn <= 10",
    f"SELECT max(unix_timestamp()) AS n FROM (SELECT a.ts FROM a JOIN b ON {BOTH}) GROUP BY window(ts, '1 hour')": (
        "current_timestamp"
    ),
    "SELECT window(ts, '1 minute') AS w, k, count(*) AS n FROM a GROUP BY CUBE (window(ts, '1 minute'), k)": (
        r"window\(ts, '1 minute'\), ROLLUP"
    ),
}


def test_one_watermark_above_another_is_refused(spark, views):
    twice = views({"a": [rows((1, 1))]}, {}, streaming=True)["a"].withWatermark("ts", "1 hour")
    with pytest.raises(QueryError, match="ts has one already"):
        fx.query(twice.groupBy("k").count())


def test_functions_of_whole_groups_say_what_to_write_instead(spark, views):
    made = views({"a": [rows((1, 1))]}, {}, streaming=True)["a"]
    with pytest.raises(QueryError, match=r"fx.stateful\(\)"):
        fx.query(made.groupBy("k").applyInPandas(lambda group: group, made.schema))


def test_lists_that_hold_nulls_are_refused(spark, views):
    views({"a": [rows((1, 1))]}, {}, streaming=True)
    if spark.version < "4.2":
        pytest.skip("this Spark has no such lists, and may take the words for nothing")
    df = spark.sql("SELECT collect_list(k) RESPECT NULLS AS l FROM a GROUP BY window(ts, '1 hour')")
    with pytest.raises(QueryError, match=r"RESPECT NULLS.*coalesce"):
        fx.query(df)


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_run_is_refused_with_what_to_write_instead(spark, views, sql):
    views({name: [rows((1, 1))] for name in "ab"}, {}, streaming=True)
    with pytest.raises(QueryError, match=REFUSED[sql]):
        fx.query(spark.sql(sql))
