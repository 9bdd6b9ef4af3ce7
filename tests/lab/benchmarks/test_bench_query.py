"""The queries of `fluxen bench query`, tiny: both engines give what DuckDB finds over all rows; and their report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

from fluxen_lab.benchmarks.compare import Comparison, compare, connect, parquet_relation
from fluxen_lab.benchmarks.context import Context, Options
from fluxen_lab.benchmarks.job import Batch, Job, Outcome, Settings
from fluxen_lab.benchmarks.query import PARTS, Part, _reported, expected_sql, run, within
from fluxen_lab.benchmarks.runner import Measured

QUERIES = [part for part in PARTS if not part.name.endswith("-large")]  # which are the same over more rows
EQUAL = Comparison(equal=True, expected_rows=5, actual_rows=5, detail="")


def tiny(part: Part) -> Part:
    """Three batches of a few hundred rows; the span stays, so that windows close."""
    return replace(part, workload=replace(part.workload, batches=3).scaled(0.002))


def measured(seconds: float) -> Measured:
    batches = tuple(Batch(number=number, seconds=seconds, started=0.0, phases_ms={}) for number in range(4))
    job = Job(query="q", data=Path("data"), work=Path("work"), settings=Settings(tuned=True))
    return Measured(job=job, outcome=Outcome(batches=batches), rows_per_batch=100, data_batches=4)


def test_a_part_has_the_median_of_each_engine_and_is_correct_if_both_are() -> None:
    runs = {"fluxen": [measured(1.0), measured(4.0), measured(2.0)], "spark": [measured(5.0)] * 3}
    found = _reported(PARTS[0], _prepared(), runs, {"fluxen": EQUAL, "spark": EQUAL})
    assert (found["fluxen_rows_per_s"], found["spark_rows_per_s"], found["ratio"]) == (50, 20, 2.5)
    assert (found["fluxen_runs"], found["correct"]) == ([100, 25, 50], True)
    assert found["spark_settings"] == "hdfs, 2 shuffle partitions, tuned"
    wrong = replace(EQUAL, equal=False)
    assert not _reported(PARTS[0], _prepared(), runs, {"fluxen": EQUAL, "spark": wrong})["correct"]


def _prepared() -> Any:
    from fluxen_lab.benchmarks.context import Prepared

    return Prepared(workload=PARTS[0].workload, data=Path("data"))


@pytest.mark.spark
@pytest.mark.parametrize("part", [tiny(part) for part in QUERIES], ids=[part.name for part in QUERIES])
def test_both_engines_give_what_the_oracle_finds(spark: Any, part: Part, tmp_path: Path) -> None:
    from fluxen_lab.benchmarks.spark.queries import QUERIES, on_fluxen
    from fluxen_lab.benchmarks.spark.sources import sink

    data = tmp_path / "data"
    part.workload.write(data)
    connection = connect()
    for name, build in {"spark": QUERIES[part.name], "fluxen": on_fluxen(part.name)}.items():
        job = Job(query=part.name, data=data, work=tmp_path / name, bound_us=part.workload.bound_us)
        writer = build(spark, job).writeStream.foreachBatch(sink(job)).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / f"{name}-checkpoint")).start().awaitTermination()
        results = within(part, data, parquet_relation(job.out, part.columns))
        found = compare(connection, expected_sql(part, data), results, part.columns, tolerance=1e-9)
        assert found.expected_rows > 100
        assert found.equal, f"{name}: {found.detail}"


@pytest.mark.spark
@pytest.mark.slow
def test_engines_take_turns_in_processes_that_stay(tmp_path: Path) -> None:
    said: list[str] = []
    context = Context(work=tmp_path, options=Options(scale=0.002), say=said.append)
    part = PARTS[0]
    found = run(context, [replace(part, workload=replace(part.workload, batches=4))], rounds=1)
    assert found["correct"]
    assert [line for line in said if line.startswith("two-way")] == [
        "two-way, fluxen, 1",
        "two-way, spark, 1",
        "two-way, fluxen, checked",
        "two-way, spark, checked",
    ]
    assert (found["ratio"] or 0) > 0
