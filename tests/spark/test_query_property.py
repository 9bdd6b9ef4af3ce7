"""Random DataFrames on fluxen, with moves, spills, restarts and rescales in between, against Spark over all rows."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, reject
from hypothesis import strategies as st

import fluxen as fx
from fluxen.errors import QueryError
from fluxen.testing import feeds, oracle
from tests.conftest import Collected
from tests.effort import examples
from tests.query_cases import DELAY, QueryCase, query_cases

pytestmark = pytest.mark.spark


ANSI, ZONE = "spark.sql.ansi.enabled", "spark.sql.session.timeZone"


@pytest.fixture(autouse=True)
def as_before(spark: Any) -> Any:
    before = {name: spark.conf.get(name) for name in (ANSI, ZONE)}
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


FEW = examples(8, least=8, phases=[Phase.explicit, Phase.generate], database=None, print_blob=False)


class Falls(Collected):
    """A sink that fails once, after the epoch's rows have been there."""

    def __init__(self, at: int | None) -> None:
        super().__init__()
        self.at = at

    def __call__(self, results: Any, epoch: int) -> None:
        super().__call__(results, epoch)
        if epoch == self.at:
            self.at = None
            raise RuntimeError("the sink falls over")


def frames(spark: Any, case: QueryCase, upto: int, directory: Path) -> list[Any]:
    tables = {f"s{at}": found[:upto] for at, found in enumerate(case.tables)}
    return [case.read(one).withWatermark("ts", DELAY) for one in feeds(spark, tables, directory).values()]


def compiled(df: Any) -> fx.Query:
    """The query; a case is left out if it groups by a time that only a join further down had bounds on."""
    try:
        return fx.query(df)
    except QueryError as error:
        if "how far the stage before has come" not in str(error):
            raise
        reject()


def adapted(query: fx.Query, history: Any) -> fx.Query:
    query = query.adapt(sites=history.draw(st.integers(1, 3), label="sites"), partitions=8)
    how = history.draw(st.sampled_from(["rests", "moves", "spills"]), label="and")
    spills = any(plan.stage.operator.spills for plan in query.plans)
    if how == "moves":
        return query.adapt(policy=fx.Random(seed=history.draw(st.integers(0, 9), label="seed")))
    if how == "spills" and spills:
        return query.adapt(policy=fx.LocalDisk(), memory_per_site=2_000)
    return query


def replay(spark: Any, case: QueryCase, history: Any) -> list[str]:
    """Run the query, stopping after some batches; a sink that fails is a crash that the next start comes back from."""
    batches = len(case.tables[0])
    sink = Falls(history.draw(st.one_of(st.none(), st.integers(0, batches)), label="fails at epoch"))
    stop = history.draw(st.integers(1, batches), label="batches before the restart")
    with tempfile.TemporaryDirectory() as directory:
        for upto in sorted({stop, batches}):
            while True:
                query = adapted(compiled(case.build(frames(spark, case, upto, Path(directory) / "input"))), history)
                writer = query.writeStream.foreachBatch(sink).option("checkpointLocation", f"{directory}/checkpoint")
                fails = sink.at
                run = writer.option("endOfInput", upto == batches).trigger(availableNow=True).start()
                try:
                    run.awaitTermination()
                except Exception:
                    if fails is None or sink.at is not None:
                        raise
                    continue
                break
    return sink.canonical()


def at_once(spark: Any, case: QueryCase) -> list[str]:
    """The same DataFrame over tables."""
    whole = [pa.concat_tables(found) for found in case.tables]
    with tempfile.TemporaryDirectory() as directory:
        tables = []
        for at, table in enumerate(whole):
            path = f"{directory}/{at}.parquet"
            pa.parquet.write_table(table, path)
            tables.append(case.read(spark.read.parquet(path)))
        return oracle.canonical_rows(row.asDict(recursive=True) for row in case.build(tables).collect())


@FEW
@given(case=query_cases(), history=st.data())
def test_a_dataframe_gives_on_fluxen_what_it_gives_over_all_rows_at_once(spark, case, history):
    spark.conf.set(ANSI, str(case.ansi).lower())
    spark.conf.set(ZONE, case.zone)
    assert replay(spark, case, history) == at_once(spark, case)
