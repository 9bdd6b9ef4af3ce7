"""Queries at the edges of what the compiler reads: rows without a time, times of results, names, equal columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import fluxen as fx
from fluxen.errors import QueryError
from fluxen.testing import feed, oracle
from tests.query_cases import SECOND
from tests.spark.test_query import BATCHES, SPAN, collected_of, table

pytestmark = pytest.mark.spark


def sparse(seed: str, batch: int) -> pa.Table:
    """Rows of which every fifth has no event time."""
    rows = table(seed, batch)
    gone = pa.array([at % 5 == 2 for at in range(rows.num_rows)])
    return rows.set_column(4, rows.schema.field("ts"), pc.if_else(gone, None, rows.column("ts")))


TABLES = {name: [sparse(name, batch) for batch in range(BATCHES)] for name in "abc"}
COUNTED = "(SELECT s, window(ts, '{size}') AS w, count(*) AS n FROM {of} GROUP BY 1, 2)"
TEN = {of: COUNTED.format(size="10 seconds", of=of) for of in "ab"}
FIVE = {of: COUNTED.format(size="5 seconds", of=of) for of in "bc"}
QUERIES = {
    "rows without a time where no bound is": "SELECT a.k, a.n, b.v FROM a JOIN b ON a.k = b.k AND a.n = b.n",
    "rows without a time of an input that no bound is about": """
        SELECT a.k, a.n, b.n AS m, c.n AS o FROM a JOIN b ON a.k = b.k
        AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 2 SECONDS JOIN c ON c.k = a.k AND c.n = b.n""",
    "a semi join without bounds": "SELECT a.k, a.n FROM a LEFT SEMI JOIN b ON a.k = b.k AND a.n = b.n AND a.v < b.v",
    "times that are equal or both missing": "SELECT b.ts FROM a JOIN b ON a.n = b.n AND a.k = b.k AND a.ts <=> b.ts",
    "a full join on a key that is never null": """
        SELECT a.k, b.k AS l, a.n FROM a FULL JOIN b ON a.k <=> b.k
        AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS""",
    "windows of one end and two lengths": f"""
        SELECT x.n, y.n AS m FROM {TEN["a"]} x JOIN {FIVE["b"]} y ON x.s = y.s AND x.w = y.w
        JOIN {FIVE["c"]} z ON x.s = z.s AND z.w.end = x.w.end""",
    "fewer columns than are distinct": """
        SELECT n FROM (SELECT DISTINCT k, n FROM
        (SELECT k, window(ts, '10 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2))""",
    "distinct windows": "SELECT DISTINCT window(ts, '10 seconds') AS w, k FROM a",
    "groups of distinct windows": """
        SELECT w, sum(n) AS n FROM (SELECT DISTINCT w, n FROM
        (SELECT k, window(ts, '10 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2)) GROUP BY w""",
    "window_time() of joined windows": f"""
        SELECT window_time(w) AS t, sum(n + m) AS n FROM (SELECT x.w, x.n, y.n AS m FROM {TEN["a"]} x JOIN {TEN["b"]} y
        ON x.s = y.s AND x.w.start BETWEEN y.w.start - INTERVAL 20 SECONDS AND y.w.start + INTERVAL 10 SECONDS)
        GROUP BY 1""",
    "windows of joined windows": f"""
        SELECT window(window_time(w), '20 seconds') AS ww, sum(n + m) AS n FROM (SELECT x.w, x.n, y.n AS m
        FROM {TEN["a"]} x JOIN {TEN["b"]} y ON x.s = y.s
        AND x.w.start BETWEEN y.w.start - INTERVAL 20 SECONDS AND y.w.start + INTERVAL 10 SECONDS) GROUP BY 1""",
    "window_time() without its window, joined": """
        SELECT x.s, x.n, b.n AS m FROM (SELECT s, window_time(w) AS t, n FROM
        (SELECT s, window(ts, '5 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2)) x
        LEFT JOIN b ON x.s = b.s AND b.ts BETWEEN x.t AND x.t + INTERVAL 1 SECOND""",
    "session windows' window_time(), joined": """
        SELECT x.s, x.n, b.n AS m FROM b LEFT JOIN (SELECT s, window_time(w) AS t, n FROM
        (SELECT s, session_window(ts, '1 second') AS w, count(*) AS n FROM a GROUP BY 1, 2)) x
        ON x.s = b.s AND b.ts BETWEEN x.t AND x.t + INTERVAL 2 SECONDS""",
    "totals of a window, beside it": """
        SELECT w, s, k, count(*) AS n, grouping_id() AS g FROM (SELECT *, window(ts, '10 seconds') AS w FROM a)
        GROUP BY w, ROLLUP (s, k)""",
    "windows of rows, joined": """
        SELECT x.k, x.w, x.n, y.n AS m FROM (SELECT *, window(ts, '5 seconds') AS w FROM a) x
        JOIN (SELECT *, window(ts, '5 seconds') AS w FROM b) y ON x.k = y.k AND x.w = y.w""",
    "overlapping windows of rows, with those that have no partner": """
        SELECT w, count(*) AS n, count(m) AS m FROM (SELECT x.w, y.n AS m
        FROM (SELECT k, window(ts, '5 seconds', '2 seconds') AS w FROM a) x
        LEFT JOIN (SELECT k, n, window(ts, '5 seconds', '2 seconds') AS w FROM b) y ON x.k = y.k AND x.w = y.w)
        GROUP BY w""",
    "names that clash when put together": """
        SELECT x.a_b, x_a.b FROM (SELECT k, n AS a_b, ts FROM a) x JOIN (SELECT k, n AS b, ts FROM b) x_a
        ON x.k = x_a.k AND x.ts BETWEEN x_a.ts AND x_a.ts + INTERVAL 2 SECONDS""",
}
EMPTY = {"windows of one end and two lengths"}


@pytest.fixture(scope="module")
def views(spark: Any, tmp_path_factory: Any) -> Any:
    place = tmp_path_factory.mktemp("edges")
    for name, tables in TABLES.items():
        pq.write_table(pa.concat_tables(tables), place / f"{name}.parquet")

    def make(*, streaming: bool) -> None:
        for name, tables in TABLES.items():
            rows = (
                feed(spark, tables, place / name) if streaming else spark.read.parquet(str(place / f"{name}.parquet"))
            )
            rows.withWatermark("ts", f"{SPAN} seconds").createOrReplaceTempView(name)
        spark.read.parquet(str(place / "a.parquet")).createOrReplaceTempView("t")

    return make


@pytest.mark.parametrize("name", QUERIES)
def test_sql_gives_on_fluxen_what_it_gives_over_tables(spark, views, name, collected, drain):
    views(streaming=True)
    drain(fx.query(spark.sql(QUERIES[name])).adapt(sites=2, partitions=8), collected, endOfInput=True)
    views(streaming=False)
    expected = collected_of(spark, QUERIES[name])
    assert bool(expected) != (name in EMPTY)
    assert collected.canonical() == expected


def test_both_halves_of_one_stream_keep_their_filters_below_the_watermark(spark, collected, drain):
    rows = feed(spark, TABLES["a"])
    halves = [rows.where(half).withWatermark("ts", f"{SPAN} seconds") for half in ("n > 2", "n <= 2")]
    whole = halves[0].unionAll(halves[1]).groupBy(F.window("ts", "1 hour")).agg(F.sum("n").alias("n"))
    drain(fx.query(whole.select("n")).adapt(partitions=8), collected, endOfInput=True)
    expected = sum(row["n"] for row in pa.concat_tables(TABLES["a"]).to_pylist() if row["ts"] is not None)
    assert collected.rows == [{"n": expected}]


REFUSED = {
    "SELECT window(a.ts, '5 seconds') AS w, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY 1": "bound it in",
    "SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND a.ts <=> b.ts": "how much later",
    "SELECT a.k, count(*) AS n FROM t LEFT JOIN a ON t.k = a.k GROUP BY a.k": "static table",
    "SELECT a.k, count(*) AS n FROM a FULL JOIN t ON t.k = a.k GROUP BY a.k": "static table",
    """SELECT a.n FROM a JOIN b ON a.k = b.k AND a.ts = b.ts
    AND a.ts + make_dt_interval(0, 0, 0, b.n) < current_timestamp()""": "current_timestamp",
    """SELECT x.k FROM (SELECT k, count(*) AS n FROM a GROUP BY k) x
    JOIN (SELECT k FROM t WHERE ts < current_timestamp()) y ON x.k = y.k""": "current_timestamp",
    "SELECT k, count(*) + (SELECT max(r) FROM (SELECT rand() AS r FROM t)) AS n FROM a GROUP BY k": "rand",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_would_give_something_else_is_refused(spark, views, sql):
    views(streaming=True)
    with pytest.raises(QueryError, match=REFUSED[sql]):
        fx.query(spark.sql(sql))


def test_a_difference_of_times_is_one_of_local_times(spark, collected, drain, tmp_path):
    """In Berlin, from 00:50 to 01:10 UTC of that night the clock goes back by forty minutes."""
    first = 1_792_889_400 * SECOND  # 2026-10-25 00:50 UTC
    tables = {
        name: pa.table({"k": [1], "ts": pa.array([first + later * SECOND], pa.timestamp("us", "UTC"))})
        for name, later in (("early", 0), ("late", 1200))
    }
    sql = "SELECT early.k FROM early JOIN late ON early.k = late.k AND late.ts - early.ts <= INTERVAL 5 MINUTES"
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        for name, rows in tables.items():
            feed(spark, [rows], tmp_path / name).withWatermark("ts", "1 hour").createOrReplaceTempView(name)
        drain(fx.query(spark.sql(sql)).adapt(partitions=8), collected, endOfInput=True)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert oracle.canonical_rows(collected.rows) == oracle.canonical_rows([{"k": 1}])
