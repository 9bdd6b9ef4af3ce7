"""Queries written for Spark, in SQL, on fluxen: their results are those of the same SQL over tables."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import fluxen as fx
from fluxen.errors import CheckpointError, ConfigError, QueryError
from fluxen.testing import feed, oracle
from tests.conftest import Collected
from tests.query_cases import SCHEMA, SECOND

pytestmark = pytest.mark.spark

BATCHES, SPAN = 2, 12
QUERIES = {
    "two streams": """
        SELECT a.k, a.v, b.v AS bv, b.ts FROM a JOIN b ON a.k = b.k
        AND b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts + INTERVAL 10 SECONDS WHERE a.n > 1""",
    "three streams, one stage": """
        SELECT a.k, b.s, c.n + 1 AS m FROM a, b, c WHERE a.k = b.k AND b.k = c.k AND c.n + 1 > a.v
        AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 4 SECONDS
        AND c.ts >= a.ts - INTERVAL 3 SECONDS AND c.ts < a.ts + INTERVAL 3 SECONDS""",
    "another key is another stage": """
        SELECT a.k, b.s, c.n FROM a JOIN b ON a.k = b.k AND abs(a.n) <= b.n
        AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS
        JOIN c ON b.s = c.s AND c.ts BETWEEN b.ts AND b.ts + INTERVAL 1 SECONDS""",
    "a stream with itself": """
        SELECT x.k, y.n FROM a x JOIN a y ON x.k = y.k AND y.ts > x.ts AND y.ts <= x.ts + INTERVAL 2 SECONDS""",
    "no bounds, and rows without a time": """
        SELECT x.k, x.ts, b.n FROM (SELECT k, if(n > 1, ts, NULL) AS ts FROM a) x JOIN b ON x.k = b.k AND b.n = 4""",
    "left": """
        SELECT a.k, a.s, b.k AS bk, b.s AS bs, b.ts FROM a LEFT JOIN b ON a.k = b.k
        AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS AND a.v > 1 AND b.n < a.n""",
    "full": """
        SELECT a.k, a.s, b.k AS bk, b.s AS bs, b.ts FROM a FULL JOIN b ON a.k = b.k
        AND b.ts BETWEEN a.ts - INTERVAL 1 SECOND AND a.ts + INTERVAL 3 SECONDS AND (a.s = b.s OR a.n + 1 > b.n)""",
    "windows": """
        SELECT s, window(ts, '10 seconds') AS w, count(*) AS n, avg(v) + 1 AS m, count(k, v) AS both,
        count(DISTINCT n) FILTER (WHERE v > 1) AS d, min_by(s, n) AS first, count_if(n > 2) AS c, bool_and(n > 0) AS e,
        sort_array(collect_list(n)) AS l, var_pop(n) AS spread
        FROM a GROUP BY s, window(ts, '10 seconds') HAVING count(*) > 2""",
    "hopping windows by an expression": """
        SELECT k % 2 AS p, window(ts, '10 seconds', '3 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2""",
    "windows of windows": """
        SELECT window(window_time(w), '20 seconds') AS ww, max(n) AS n FROM
        (SELECT k, window(ts, '10 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2) GROUP BY 1""",
    "a window's maximum joined back": """
        SELECT m.w, a.k, a.v FROM (SELECT window(ts, '10 seconds') AS w, max(v) AS mv FROM a GROUP BY 1) m
        JOIN a ON a.v = m.mv AND a.ts >= m.w.start AND a.ts < m.w.end""",
    "windows joined": """
        SELECT x.s, x.n, y.n AS m FROM (SELECT s, window(ts, '10 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2) x
        JOIN (SELECT s, window(ts, '10 seconds') AS w, count(*) AS n FROM b GROUP BY 1, 2) y
        ON x.s = y.s AND x.w = y.w""",
    "an event time dropped on the way": """
        SELECT s, w, count(*) AS n FROM (SELECT s, window(ts, '5 seconds') AS w FROM a WHERE n > 1) GROUP BY s, w""",
    "groups by time, in a WITH clause": """
        WITH q AS (SELECT ts, count(*) AS n, max(n) AS m FROM a GROUP BY ts) SELECT m, n FROM q WHERE m > 1""",
    "static tables above and below": """
        SELECT x.k, x.n, t.n AS tn FROM (SELECT a.*, t.v AS tv FROM a JOIN t ON a.n = t.n) x
        JOIN b ON x.k = b.k AND b.ts BETWEEN x.ts AND x.ts + INTERVAL 2 SECONDS LEFT JOIN t ON t.k = x.k AND t.n > 1""",
    "generated rows": """
        SELECT e, window(ts, '10 seconds') AS w, count(*) AS c FROM
        (SELECT explode(array(n, n + 1)) AS e, ts FROM a) GROUP BY e, window(ts, '10 seconds')""",
    "sessions": """
        SELECT s, session_window(ts, '2 seconds') AS w, count(*) AS n, max(n) + 1 AS m FROM a GROUP BY 1, 2""",
    "distinct rows": "SELECT DISTINCT s, n, k FROM a WHERE n > 0",
    "distinct rows of windows": """
        SELECT DISTINCT w, n FROM (SELECT k, window(ts, '10 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2)""",
    "united windows and rows": """
        SELECT 'a' AS x, k, count(*) AS n FROM a GROUP BY k, window(ts, '10 seconds')
        UNION ALL SELECT 'b', k, n FROM b WHERE n > 1
        UNION ALL SELECT s, max(k), count(*) FROM c GROUP BY s, window(ts, '5 seconds')""",
    "windows of united windows": """
        SELECT window(window_time(w), '20 seconds') AS ww, max(n) AS n FROM
        (SELECT k, window(ts, '10 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2
        UNION ALL SELECT k, window(ts, '5 seconds') AS w, count(*) AS n FROM b GROUP BY 1, 2) GROUP BY 1""",
    "a join united with a stream, joined again": """
        SELECT u.k, u.x, c.n FROM (SELECT a.k, a.ts, b.n AS x FROM a JOIN b ON a.k = b.k
        AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS UNION ALL SELECT k, ts, n FROM b WHERE n < 3) u
        JOIN c ON c.k = u.k AND c.ts BETWEEN u.ts AND u.ts + INTERVAL 2 SECONDS""",
    "distinct rows of united streams and results": """
        SELECT s, n FROM b UNION SELECT s, n FROM (SELECT s, count(*) AS n FROM a GROUP BY s, window(ts, '9 seconds'))
        """,
}
STAGES = {"another key is another stage": 2, "windows of windows": 2, "a window's maximum joined back": 2}
STAGES |= {"windows joined": 3, "distinct rows of windows": 2, "united windows and rows": 3}
STAGES |= {"windows of united windows": 4, "a join united with a stream, joined again": 3}
STAGES |= {"distinct rows of united streams and results": 3}


def table(seed: str, batch: int) -> pa.Table:
    dice = random.Random(f"{seed} {batch}")
    start = 1_700_000_000 * SECOND + batch * SPAN * SECOND
    rows = [
        [dice.choice([1, 2, 3, None]), dice.choice(["x", "y"]), dice.choice([None, 1.5, -2.0, 7.25]), dice.randrange(5)]
        + [start + dice.randrange(SPAN * SECOND)]
        for _ in range(12)
    ]
    return pa.table([pa.array(column, kind) for column, kind in zip(zip(*rows), SCHEMA.types)], schema=SCHEMA)


TABLES = {name: [table(name, batch) for batch in range(BATCHES)] for name in "abc"}


@pytest.fixture(scope="module")
def views(spark: Any, tmp_path_factory: Any) -> Any:
    """Makes the names in QUERIES stand for streams, or for all of their rows."""
    place = tmp_path_factory.mktemp("query")
    for name, tables in TABLES.items():
        pq.write_table(pa.concat_tables(tables), place / f"{name}.parquet")

    def make(*, streaming: bool) -> None:
        for name, tables in TABLES.items():
            stream = feed(spark, tables, place / name) if streaming else None
            rows = stream or spark.read.parquet(str(place / f"{name}.parquet"))
            rows.withWatermark("ts", f"{SPAN} seconds").createOrReplaceTempView(name)
        spark.read.parquet(str(place / "a.parquet")).limit(6).createOrReplaceTempView("t")

    return make


def collected_of(spark: Any, sql: str) -> list[str]:
    return oracle.canonical_rows(row.asDict(recursive=True) for row in spark.sql(sql).collect())


@pytest.mark.parametrize("name", QUERIES)
def test_sql_gives_on_fluxen_what_it_gives_over_tables(spark, views, name, collected, drain):
    views(streaming=True)
    query = fx.query(spark.sql(QUERIES[name])).adapt(sites=2, partitions=8)
    assert len(query.plans) == STAGES.get(name, 1)
    drain(query, collected, endOfInput=True)
    views(streaming=False)
    expected = collected_of(spark, QUERIES[name])
    assert expected
    assert collected.canonical() == expected


def last_of_each(rows: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    return list({repr([row[key] for key in keys]): row for row in rows}.values())


def test_running_values_and_windows_in_update_mode_end_with_the_same_values(spark, views, collected, tmp_path):
    sql = "SELECT s, window(ts, '10 seconds') AS w, sum(n) AS total FROM a GROUP BY 1, 2"
    views(streaming=True)
    query = fx.query(spark.sql(sql)).adapt(sites=2, partitions=8)
    writer = query.writeStream.outputMode("update").foreachBatch(collected).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "updates")).start().awaitTermination()
    views(streaming=False)
    found = oracle.canonical_rows(last_of_each(collected.rows, "s", "w"))
    assert len(collected.rows) > len(found)
    assert found == collected_of(spark, sql)


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        (
            """SELECT k, n, ts, rn FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n DESC, ts) AS rn FROM a)
            WHERE rn <= 2 AND n > 0""",
            ("k", "rn"),
        ),
        (
            """SELECT k, s, v FROM (SELECT *, row_number() OVER (PARTITION BY k, s ORDER BY ts DESC) AS last FROM a)
            WHERE last = 1""",
            ("k", "s"),
        ),
        (
            """SELECT w, n, rn FROM (SELECT w, n, row_number() OVER (PARTITION BY w ORDER BY n DESC) AS rn FROM
            (SELECT k, window(ts, '10 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2)) WHERE rn < 3""",
            ("w", "rn"),
        ),
    ],
)
def test_the_first_rows_of_each_key_end_as_row_number_has_them(spark, views, collected, drain, sql, keys):
    views(streaming=True)
    drain(fx.query(spark.sql(sql)).adapt(sites=2, partitions=8), collected, endOfInput=True)
    views(streaming=False)
    expected = collected_of(spark, sql)
    assert expected
    assert oracle.canonical_rows(last_of_each(collected.rows, *keys)) == expected


def test_duplicates_are_dropped_as_spark_drops_them(spark, collected, drain):
    rows = feed(spark, TABLES["a"]).withWatermark("ts", "1 hour")
    drain(fx.query(rows.dropDuplicates(["k", "s"]).select("k", "s")).adapt(partitions=8), collected)
    within, sink = rows.dropDuplicatesWithinWatermark(["n"]).select("n"), Collected()
    drain(fx.query(within).adapt(partitions=8), sink, "another")
    whole = pa.concat_tables(TABLES["a"]).to_pylist()
    assert sorted(row["n"] for row in sink.rows) == sorted({row["n"] for row in whole})
    assert sorted(map(repr, ((row["k"], row["s"]) for row in collected.rows))) == sorted(
        {repr((row["k"], row["s"])) for row in whole}
    )


def test_state_holds_only_columns_and_rows_that_the_query_needs(spark, views):
    views(streaming=True)
    sql = "SELECT b.v FROM a JOIN b ON a.k = b.k AND b.ts = a.ts WHERE a.n > 1 AND b.s = 'x'"
    (plan,) = fx.query(spark.sql(sql)).plans
    assert [sorted(one.df.columns) for one in plan.inputs] == [["k", "ts"], ["k", "ts", "v"]]
    assert ["a.n > 1" in one.note or "n > " in one.note for one in plan.inputs] == [True, False]
    assert "s = 'x'" in plan.inputs[1].note.replace("b.", "")


def test_explain_names_stages_keys_and_what_spark_does(spark, views, capsys):
    views(streaming=True)
    fx.explain(spark.sql(QUERIES["another key is another stage"]))
    said = capsys.readouterr().out
    assert "stage 1 (join) of a on k (time ts), b on k (time ts)" in said
    assert "after stage 1" in said
    assert "3 seconds of event time" in said
    assert len(said.splitlines()) <= 12


REFUSED = {
    "SELECT * FROM a ORDER BY ts": "ORDER BY",
    "SELECT s, count(*) AS n FROM a GROUP BY s LIMIT 3": "LIMIT",
    "SELECT a.k FROM a JOIN b ON a.ts < b.ts": "without equal keys",
    "SELECT a.k FROM a LEFT JOIN b ON a.k = b.k": "how much later",
    "SELECT s, count(*) AS n, current_timestamp() AS now FROM a GROUP BY s": "current_timestamp",
    "SELECT s, n * rand() AS r FROM (SELECT s, count(*) AS n FROM a GROUP BY s)": "rand",
    "SELECT s, percentile_approx(n, 0.5) FROM a GROUP BY s": "percentile_approx",
    "SELECT m, count(*) FROM (SELECT s, max(n) AS m FROM a GROUP BY s) GROUP BY m": "running aggregates",
    "SELECT window(a.ts, '1 minute'), count(*) FROM a JOIN b ON a.k = b.k GROUP BY 1": "bound it in the join",
    "SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 HOUR AND a.n + b.n > 3": (
        "columns of both inputs"
    ),
    "SELECT t.k FROM (SELECT k, max(n) AS n FROM a GROUP BY k) x RIGHT JOIN t ON x.k = t.k": "static table",
    """SELECT m, count(*) FROM (SELECT max(n) AS m FROM a GROUP BY s UNION ALL SELECT n AS m FROM b)
    GROUP BY m""": "running aggregates",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_run_is_refused_by_name_when_it_is_built(spark, views, sql):
    views(streaming=True)
    with pytest.raises(QueryError, match=REFUSED[sql]):
        fx.query(spark.sql(sql))


def test_a_refusal_says_where(spark, views):
    views(streaming=True)
    with pytest.raises(QueryError, match="line 2, position 1"):
        fx.query(spark.sql("SELECT s, count(*) AS n FROM a GROUP BY s\nORDER BY n"))


def test_complete_mode_and_what_is_no_stream_are_refused(spark, views):
    views(streaming=True)
    with pytest.raises(ConfigError, match="complete"):
        fx.query(spark.sql("SELECT s, count(*) AS n FROM a GROUP BY s")).writeStream.outputMode("complete")
    with pytest.raises(QueryError, match="static"):
        fx.query(spark.range(3))
    with pytest.raises(QueryError, match="got list"):
        fx.query([1])  # type: ignore[arg-type]


def test_a_checkpoint_of_spark_itself_is_refused_with_how_to_go_on(spark, views, collected, drain, tmp_path):
    views(streaming=True)
    df = spark.sql("SELECT s, count(*) AS n FROM a GROUP BY s")
    native = df.writeStream.outputMode("update").format("noop").trigger(availableNow=True)
    native.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    with pytest.raises(CheckpointError, match=r"Spark's own.*offsets"):
        drain(fx.query(df), collected)


def test_stateless_parts_may_change_between_two_runs_and_stateful_ones_not(spark, views, collected, drain):
    def query(only: str, key: str) -> fx.Query:
        views(streaming=True)
        return fx.query(spark.sql(f"SELECT {key} AS g, count(*) AS n FROM a WHERE {only} GROUP BY 1")).adapt(
            partitions=8
        )

    drain(query("n > 1", "k % 2"), collected)
    drain(query("n > 2 AND s = 'x'", "k % 2"), collected)
    with pytest.raises(CheckpointError, match="k % 3"):
        drain(query("n > 1", "k % 3"), collected)


def test_python_functions_stay_with_spark(spark, collected, drain):
    twice = F.udf(lambda n: 2 * n, "long")
    rows = feed(spark, TABLES["a"]).withWatermark("ts", "1 hour")
    df = rows.withColumn("m", twice("n")).groupBy("s").agg(F.sum("m").alias("m")).select("s", twice("m").alias("mm"))
    drain(fx.query(df).adapt(partitions=8), collected)
    whole = pa.concat_tables(TABLES["a"]).to_pylist()
    expected = {s: 4 * sum(row["n"] for row in whole if row["s"] == s) for s in ("x", "y")}
    assert {row["s"]: row["mm"] for row in last_of_each(collected.rows, "s")} == expected
