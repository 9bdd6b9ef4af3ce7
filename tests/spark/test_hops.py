"""Windows that overlap: a row travels once where the sites can tell its other windows from the last one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fluxen as fx
from fluxen.testing import feed
from tests.query_cases import SECOND
from tests.spark.test_query import BATCHES, SPAN, collected_of, table

pytestmark = pytest.mark.spark


def before_1970(batch: int) -> pa.Table:
    rows = table("a", batch)
    ts = rows.column("ts").cast(pa.int64())
    return rows.set_column(4, "ts", pa.array([t - 1_700_000_008 * SECOND for t in ts.to_pylist()], rows.schema[4].type))


TABLES = {"a": [table("a", batch) for batch in range(BATCHES)], "z": [before_1970(batch) for batch in range(BATCHES)]}
WINDOW = "window(ts, '12 seconds', '3 seconds')"
ONCE = {
    "keys": f"""
        SELECT k, {WINDOW} AS w, count(*) AS n, avg(v) AS m, sort_array(collect_list(n)) AS l
        FROM a GROUP BY k, {WINDOW}""",
    "before 1970": f"SELECT s, {WINDOW} AS w, sum(n) AS n, min(v) AS v, count(DISTINCT k) AS d FROM z GROUP BY 1, 2",
    "an offset": "SELECT k, window(ts, '8 seconds', '2 seconds', '1 second') AS w, max(v) AS v FROM z GROUP BY 1, 2",
    "made below": f"SELECT k, w, count(s) AS n FROM (SELECT *, {WINDOW} AS w FROM a WHERE n > 0) GROUP BY k, w",
    "windows of windows": """
        SELECT k, window(window_time(w), '12 seconds', '3 seconds') AS x, count(*) AS n
        FROM (SELECT k, window(ts, '3 seconds') AS w FROM a) GROUP BY 1, 2""",
}
OFTEN = {
    "the window alone": f"SELECT {WINDOW}.end AS e, count(DISTINCT n) AS n FROM a WHERE n > 0 GROUP BY {WINDOW}",
    "no multiple": "SELECT k, window(ts, '10 seconds', '3 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2",
    "no overlap": "SELECT k, window(ts, '10 seconds') AS w, count(*) AS n FROM a GROUP BY 1, 2",
    "a filter on windows": f"""
        SELECT k, w, count(*) AS n FROM (SELECT *, {WINDOW} AS w FROM a) WHERE second(w.start) % 2 = 0 GROUP BY k, w""",
    "a value of windows": f"""
        SELECT k, w, max(second(w.start) + n) AS m FROM (SELECT *, {WINDOW} AS w FROM a) GROUP BY k, w""",
    "a key of windows": f"""
        SELECT p, w, count(*) AS n FROM (SELECT w, second(w.start) % 2 AS p FROM (SELECT {WINDOW} AS w FROM a))
        GROUP BY p, w""",
}


@pytest.fixture(scope="module")
def views(spark: Any, tmp_path_factory: Any) -> Any:
    place = tmp_path_factory.mktemp("hops")
    for name, tables in TABLES.items():
        pq.write_table(pa.concat_tables(tables), place / f"{name}.parquet")

    def make(*, streaming: bool) -> None:
        for name, tables in TABLES.items():
            whole = str(place / f"{name}.parquet")
            rows = feed(spark, tables, place / name) if streaming else spark.read.parquet(whole)
            rows.withWatermark("ts", f"{SPAN} seconds").createOrReplaceTempView(name)

    return make


@pytest.mark.parametrize("name", [*ONCE, *OFTEN])
def test_windows_are_the_same_however_rows_travel(spark, views, name, collected, drain):
    sql = (ONCE | OFTEN)[name]
    views(streaming=True)
    query = fx.query(spark.sql(sql)).adapt(sites=2, partitions=8)
    assert (query.plans[0].wire.hops is not None) == (name in ONCE)
    drain(query, collected, endOfInput=True)
    views(streaming=False)
    expected = collected_of(spark, sql)
    assert expected
    assert collected.canonical() == expected


@pytest.mark.parametrize(("window", "slide"), [("12 seconds", "3 seconds"), ("12 seconds", "5 seconds")])
@pytest.mark.parametrize("emit", ["append", "update"])
def test_windows_by_words_are_those_of_sql(spark, views, window, slide, emit, collected, drain):
    views(streaming=True)
    words = {"window": window, "slide": slide, "emit": emit, "lateness": f"{SPAN} seconds"}
    query = fx.aggregate(spark.table("z"), by="s", time="ts", n=fx.count(), v=fx.sum("v"), **words)
    assert (query.plans[0].wire.hops is not None) == (slide == "3 seconds")
    drain(query.adapt(sites=2, partitions=8), collected, endOfInput=emit == "append")
    views(streaming=False)
    sql = f"SELECT s, window(ts, '{window}', '{slide}') AS window, count(*) AS n, sum(v) AS v FROM z GROUP BY 1, 2"
    expected = collected_of(spark, sql)
    assert expected
    if emit == "append":
        assert collected.canonical() == expected
    else:
        last = {(row["s"], row["window"]["start"]): row["n"] for row in collected.rows}
        assert last == {(row.s, row.window.start): row.n for row in spark.sql(sql).collect()}
