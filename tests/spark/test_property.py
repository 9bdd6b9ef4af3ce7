"""Random queries, data, batch cuts and restarts on real Spark against the oracle; joins against DuckDB as well.

The same cases meet thousands of histories without Spark in tests/operators.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

import fluxen as fx
from fluxen.testing import feeds, oracle
from tests.aggregate_cases import aggregate_cases
from tests.cases import Case, distinct_cases, join_cases
from tests.conftest import Collected
from tests.effort import examples

pytestmark = pytest.mark.spark

FEW = examples(
    6,
    least=6,
    phases=[Phase.explicit, Phase.generate],  # shrinking takes minutes here; the tests without Spark do it
    database=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def replay(spark: Any, case: Case, history: Any, **adapted: Any) -> list[str]:
    """Run the case, stopping after some batches and going on with another number of sites."""
    sink = Collected()
    inputs = {name: [batch[i] for batch in case.batches] for i, name in enumerate("abcde"[: len(case.batches[0])])}
    stop = history.draw(st.integers(1, len(case.batches)), label="batches before the restart")
    with tempfile.TemporaryDirectory() as directory:
        for upto in sorted({stop, len(case.batches)}):
            given_now = {name: tables[:upto] for name, tables in inputs.items()}
            streams = feeds(spark, given_now, Path(directory) / "input")
            sites = history.draw(st.integers(1, 3), label="sites")
            query = case.query(list(streams.values())).adapt(sites=sites, partitions=8, **adapted)
            writer = query.writeStream.foreachBatch(sink).option("checkpointLocation", f"{directory}/checkpoint")
            last = upto == len(case.batches)
            writer.option("endOfInput", case.ends and last).trigger(availableNow=True).start().awaitTermination()
    return sink.canonical()


def in_duckdb(case: Case) -> list[str]:
    """The join over all rows that were not late, in DuckDB."""
    assert case.sql is not None
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for i, name in enumerate("abcde"[: len(case.batches[0])]):
            tables = [batch[i] for batch in case.batches]
            keys = [column for column in tables[0].column_names if column.startswith("k")]
            batches, _ = oracle.on_time(tables, case.time, case.lateness, keys)
            rows = [row for batch in batches for row in batch]
            connection.register(name, pa.Table.from_pylist(rows, schema=case.batches[0][i].schema))
        return oracle.canonical_rows(connection.sql(case.sql()).to_arrow_table().to_pylist())


@FEW
@given(case=join_cases(), history=st.data())
def test_joins_on_spark_equal_the_oracle_and_duckdb(spark, case, history):
    results = replay(spark, case, history)
    assert results == case.expected()
    assert results == in_duckdb(case)


@FEW
@given(case=aggregate_cases(), history=st.data())
def test_aggregates_on_spark_equal_the_oracle(spark, case, history):
    assert replay(spark, case, history) == case.expected()


@FEW
@given(case=distinct_cases(), history=st.data())
def test_distinct_on_spark_equals_the_oracle(spark, case, history):
    assert replay(spark, case, history) == case.expected()


@FEW
@given(case=join_cases(plan="tree"), history=st.data())
def test_trees_on_spark_equal_the_oracle(spark, case, history):
    assert replay(spark, case, history) == case.expected()


def at_once(draw: Any, case: Case) -> dict[str, Any]:
    """Groups that move at random, and whatever else goes with that."""
    protocols = ["mslb", *(["ptlb"] if all(one.stage.operator.lifetime() for one in case.stages) else [])]
    return {
        "policy": fx.Random(seed=draw(st.integers(0, 99)), moves=1),
        "move_protocol": draw(st.sampled_from(protocols)),
        "partitioner": draw(st.sampled_from([None, "slotted"])),
        "memory_per_site": draw(st.sampled_from([None, "4k", "40k"])),
        "time_budget": draw(st.sampled_from([None, "5 milliseconds"])),
    }


@examples(5, least=5, phases=[Phase.explicit, Phase.generate], database=None)
@given(data=st.data())
def test_everything_at_once_on_spark_equals_the_oracle(spark, data):
    case = data.draw(st.one_of(join_cases(steady=True), join_cases(plan="tree"), distinct_cases()))
    assert replay(spark, case, data, **at_once(data.draw, case)) == case.expected()
