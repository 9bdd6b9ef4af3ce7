"""An operator from outside the package: it meets the contract of operators and adapts on Spark like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluxen as fx
import fluxen.testing as ft
from fluxen.arrays import Json
from fluxen.operators.base import Input, Operator, Progress, Results, SiteInput, SiteOutput
from fluxen.operators.kernels import boundaries, total_order
from fluxen.operators.versions import latest, newest
from fluxen.partitioning import Resources
from fluxen.testing import feed, oracle
from tests.cases import SECOND, TIME, Case
from tests.contracts.operators import LATENESS, SCHEMA, case_of, check_results, check_times, check_traits, dense, trials


@dataclass(frozen=True, kw_only=True)
class Records(Operator):
    """The rows that beat every row of their key before them by at least `margin`; state is each key's best value."""

    margin: int = 1
    schema = "k long, ts timestamp, v long"
    shadows = True
    resources = Resources.of("CLL")

    def identity(self) -> Json:
        return {"operator": "records", "margin": self.margin}

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        return {"ts": progress.watermarks[0]}

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        return newest(tables)

    def process(self, given: SiteInput) -> Results:
        (rows,), late = given.on_time()
        if len(rows.h) == 0:
            return SiteOutput(late=late)
        rows = rows.take(total_order(rows.h, rows.h2, rows.t, rows.table, ["v"]))
        new = boundaries(rows.h, rows.h2)
        best, found = self._best(given, rows.take(new)), []
        for at, (key, v) in enumerate(zip((np.cumsum(new) - 1).tolist(), rows.table.column("v").to_pylist())):
            if key not in best or v >= best[key] + self.margin:
                best[key] = v
                found.append(at)
        records = rows.take(np.array(found, dtype=np.int64))
        yield records.table.append_column("ts", pa.array(records.t).view(TIME)).select(["k", "ts", "v"])
        state = newest([records.take(np.array([at])).with_keys() for at in range(len(found))]) if found else None
        return SiteOutput(state=(state,), rows_out=given.per_group(given.routing.groups(records.h)), late=late)

    def _best(self, given: SiteInput, keys: Input) -> dict[int, int]:
        """What state says about these keys, by their position."""
        best: dict[int, int] = {}
        for run, row, at in latest(given.runs[0], keys.h, keys.h2, given.routing.groups(keys.h)):
            best.update(zip(at.tolist(), run.segment.table.column("v").take(pa.array(row)).to_pylist()))
        return best


def expected(batches: list[pa.Table], margin: int, lateness: int = 0) -> list[dict[str, Any]]:
    best: dict[int, int] = {}
    found = []
    for rows in oracle.on_time(batches, "ts", lateness)[0]:
        for row in sorted(rows, key=lambda row: (row["ts"], row["v"])):
            if row["k"] not in best or row["v"] >= best[row["k"]] + margin:
                best[row["k"]] = row["v"]
                found.append(row)
    return found


def records(seed: int) -> Case:
    batches = dense(seed)
    late = f"{LATENESS} microseconds"
    stage = ft.stateful(SCHEMA, "k", Records(margin=2), SCHEMA, "ts", lateness=late)
    return case_of(stage, batches, lambda: expected([batch[0] for batch in batches], 2, LATENESS))


@pytest.mark.parametrize("trial", trials(Records()))
def test_it_meets_the_contract_of_operators(trial: str) -> None:
    check_results(records, trial)


def test_its_traits_make_sense_and_its_results_are_as_young_as_it_says() -> None:
    check_traits(Records())
    check_times(records)


@pytest.mark.spark
def test_it_runs_on_spark_while_its_groups_move(spark, drain, collected) -> None:
    batches = [batch[0] for seed in (0, 2) for batch in dense(seed, keys=40, rows=60)]
    query = fx.stateful(feed(spark, batches), by="k", operator=Records(margin=2), time="ts")
    run = drain(query.adapt(sites=3, partitions=16, policy=fx.Random(seed=5, period=0.0, moves=2)), collected)
    assert collected.canonical() == oracle.canonical_rows(expected(batches, 2))
    assert sum(event["kind"] == "move" and event["outcome"] == "done" for event in run.events) >= 5


@pytest.mark.spark
def test_a_key_of_it_gets_a_group_of_its_own(spark, drain, collected) -> None:
    """Repartitioning divides groups by keys, as its traits allow."""
    rng, weight = np.random.default_rng(3), 1.0 / np.arange(1, 2001)
    batches = []
    for number in range(6):
        k, v = rng.choice(2000, size=500, p=weight / weight.sum()), rng.integers(0, 100, 500)
        ts = pa.array(number * SECOND + rng.integers(0, SECOND, 500)).cast(TIME)
        batches.append(pa.table([pa.array(k), ts, pa.array(v)], schema=SCHEMA))
    query = fx.stateful(feed(spark, batches), by="k", operator=Records(), time="ts")
    run = drain(query.adapt(sites=4, partitions=64, partitioner=fx.Readj(sigma=0.01)), collected)
    assert collected.canonical() == oracle.canonical_rows(expected(batches, 1))
    assert run.epoch["stages"][0]["routing"]["explicit"]


@pytest.mark.spark
def test_an_operator_without_a_schema_is_refused_in_one_line(spark) -> None:
    class Silent(Records):
        schema = None

    with pytest.raises(fx.errors.QueryError, match="Silent says no schema"):
        fx.stateful(feed(spark, [SCHEMA.empty_table()]), by="k", operator=Silent())
