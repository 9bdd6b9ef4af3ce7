"""`fluxen bench nexmark`: its auction house, what it reports of a query, and a handful of queries on Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("duckdb")

from fluxen_lab.benchmarks.compare import Comparison, connect
from fluxen_lab.benchmarks.job import Batch, Job, Outcome
from fluxen_lab.benchmarks.nexmark.bench import Found, part
from fluxen_lab.benchmarks.nexmark.check import checked, read_streams
from fluxen_lab.benchmarks.nexmark.queries import QUERIES
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.datagen.nexmark import NEXMARK, STREAMS, Nexmark

SMALL = Nexmark(name="small", streams=(), batches=4, events=20_000, rate=200)
EQUAL = Comparison(equal=True, expected_rows=5, actual_rows=5, detail="")


def whole(workload: Nexmark, stream: str) -> pa.Table:
    return pa.concat_tables(list(workload.tables(stream)))


def column(table: pa.Table, name: str) -> Any:
    found = table.column(name)
    return (found.cast("int64") if pa.types.is_timestamp(found.type) else found).to_numpy()


# ---- the streams


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids() -> None:
    assert SMALL.counts() == {"person": 400, "auction": 1_200, "bid": 18_400}
    assert {name: whole(SMALL, name).num_rows for name in STREAMS} == SMALL.counts()
    assert NEXMARK.counts() == {"person": 20_000, "auction": 60_000, "bid": 920_000}


def test_the_same_seed_gives_the_same_files_one_per_batch_and_another_seed_others(tmp_path: Path) -> None:
    SMALL.write(tmp_path / "one")
    SMALL.write(tmp_path / "two")
    for name in STREAMS:
        one, two = (sorted((tmp_path / copy / name).glob("*.parquet")) for copy in ("one", "two"))
        assert len(one) == SMALL.batches
        assert [pq.read_table(path) for path in one] == [pq.read_table(path) for path in two]
    assert whole(replace(SMALL, seed=2), "bid") != whole(SMALL, "bid")


def test_times_follow_the_rate_and_no_two_events_share_one() -> None:
    times = np.concatenate([column(whole(SMALL, name), "dateTime") for name in STREAMS])
    assert len(np.unique(times)) == SMALL.events
    assert times.max() - times.min() == (SMALL.events - 1) * 1_000_000 // SMALL.rate


def test_rows_are_in_order_of_time_unless_disorder_is_asked_for_and_then_no_later_than_that() -> None:
    assert (np.diff(column(whole(SMALL, "bid"), "dateTime")) > 0).all()
    late = column(whole(replace(SMALL, disorder_us=500_000), "bid"), "dateTime")
    behind = np.maximum.accumulate(late) - late
    assert 400_000 < behind.max() <= 500_000
    assert sorted(late) == sorted(column(whole(SMALL, "bid"), "dateTime"))
    few = column(whole(replace(SMALL, disorder_us=500_000, disordered=0.02), "bid"), "dateTime")
    behind = np.maximum.accumulate(few) - few
    assert 0.015 < np.mean(behind > 0) < 0.025
    assert behind.max() <= 500_000


def test_half_of_the_bids_go_to_hot_auctions_and_three_quarters_come_from_hot_bidders() -> None:
    bids, auctions = whole(SMALL, "bid"), whole(SMALL, "auction")
    assert np.mean(column(bids, "auction") % 100 == 0) == pytest.approx(0.5, abs=0.03)
    assert np.mean(column(bids, "bidder") % 100 == 1) == pytest.approx(0.75, abs=0.03)
    assert np.mean(column(auctions, "seller") % 100 == 0) == pytest.approx(0.75, abs=0.03)
    one = column(whole(replace(SMALL, hot=0.3), "bid"), "auction")
    assert np.mean(one == 1_000) - np.mean(column(bids, "auction") == 1_000) == pytest.approx(0.3, abs=0.05)


def test_ids_prices_and_closing_times_are_those_of_the_suite() -> None:
    auctions, persons, bids = (whole(SMALL, name) for name in ("auction", "person", "bid"))
    assert column(auctions, "id").tolist() == list(range(1_000, 2_200))
    assert column(persons, "id").tolist() == list(range(1_000, 1_400))
    assert set(column(auctions, "category").tolist()) == {10, 11, 12, 13, 14}
    assert (column(auctions, "expires") > column(auctions, "dateTime")).all()
    assert (column(auctions, "reserve") > column(auctions, "initialBid")).all()
    prices = column(bids, "price")
    assert (prices.min() >= 100, prices.max() <= 10**8) == (True, True)
    assert np.median(prices) == pytest.approx(100_000, rel=0.2)
    named = [("channel_id" in url, channel.startswith("channel-")) for url, channel in _pairs(bids)]
    assert all(hot for own, hot in named if own)


def _pairs(bids: pa.Table) -> list[tuple[str, str]]:
    return list(zip(bids.column("url").to_pylist(), bids.column("channel").to_pylist()))


def test_a_smoke_run_is_shorter_at_the_same_rate() -> None:
    small = NEXMARK.scaled(0.01)
    assert (small.rate, small.batches, small.events % (50 * small.batches)) == (NEXMARK.rate, NEXMARK.batches, 0)
    assert NEXMARK.scaled(1.0) == NEXMARK


# ---- the oracle


def test_every_query_has_an_answer_over_all_rows(tmp_path: Path) -> None:
    assert list(QUERIES) == [f"q{number}" for number in range(23)]
    SMALL.write(tmp_path)
    connection = connect()
    read_streams(connection, tmp_path)
    for name, query in QUERIES.items():
        found = connection.execute(f"SELECT * FROM ({query.expected})")
        assert {one.name.lower() for one in query.columns} <= {one[0].lower() for one in found.description}, name
        assert found.fetchone() is not None, name


def test_the_last_row_of_each_key_counts_and_a_wrong_one_is_found(tmp_path: Path) -> None:
    SMALL.write(tmp_path / "data")
    connection = connect()
    read_streams(connection, tmp_path / "data")
    query = QUERIES["q17"]
    old = f"SELECT * REPLACE (0 AS total_bids) FROM ({query.expected})"

    def deliver(batch: int, rows: str) -> None:
        folder = tmp_path / "out" / f"batch-{batch:05d}"
        folder.mkdir(parents=True)
        connection.execute(f"COPY ({rows}) TO '{folder / 'part.parquet'}' (FORMAT parquet)")

    deliver(0, old)
    deliver(1, query.expected)
    assert checked(connection, query, tmp_path / "out").equal
    deliver(2, old)
    assert not checked(connection, query, tmp_path / "out").equal


# ---- what is reported


def measured(seconds: float = 1.0, error: str | None = None) -> Measured:
    batches = tuple(Batch(number=number, seconds=seconds, started=0.0, phases_ms={}) for number in range(4))
    outcome = Outcome(error=error) if error else Outcome(batches=batches, finished=True)
    return Measured(job=Job(query="q", data=Path(), work=Path()), outcome=outcome, rows_per_batch=100, data_batches=4)


def done(*seconds: float) -> Found:
    return Found(measured(), EQUAL, [measured(one) for one in seconds])


def failed(error: str) -> Found:
    return Found(measured(error=error), None)


def test_a_query_that_both_run_has_medians_and_a_ratio() -> None:
    found = part("q3", 400, {"fluxen": done(1.0, 5.0, 2.0), "spark": done(4.0, 4.0, 4.0)})
    assert (found["engine"], found["correct"], found["refused"], found["ratio"]) == ("fluxen", True, None, 2.0)
    assert (found["fluxen_rows_per_s"], found["spark_rows_per_s"]) == (50, 25)


def test_what_keeps_no_state_is_sparks() -> None:
    error = "QueryError: the query keeps no state, so there is nothing for fluxen to run"
    found = part("q0", 400, {"fluxen": failed(error), "spark": done(1.0)})
    assert (found["engine"], found["correct"], found["refused"], found["error"]) == ("spark", True, None, None)
    assert (found["fluxen_rows_per_s"], found["spark_rows_per_s"], found["ratio"]) == (None, 100, None)


def test_a_refusal_has_its_reason_and_a_failure_is_wrong() -> None:
    refused = part("q18", 400, {"fluxen": failed("QueryError: not known"), "spark": failed("AnalysisException: no")})
    assert (refused["refused"], refused["correct"], refused["spark_reason"]) == (
        "not known",
        None,
        "AnalysisException: no",
    )
    broken = part("q3", 400, {"fluxen": failed("KeyError: 'x'"), "spark": done(1.0)})
    assert (broken["refused"], broken["correct"], broken["error"]) == (None, False, "KeyError: 'x'")


# ---- on Spark


@pytest.fixture(scope="module")
def house(tmp_path_factory: Any) -> tuple[Path, Any]:
    data = tmp_path_factory.mktemp("nexmark")
    replace(SMALL, batches=3, events=6_000, rate=100, disorder_us=2_000_000, hot=0.2).write(data)
    connection = connect()
    read_streams(connection, data)
    return data, connection


@pytest.mark.spark
@pytest.mark.parametrize("name", ["q3", "q5", "q7", "q9", "q11", "q15", "q17", "q18", "q19"])
def test_fluxen_gives_what_the_oracle_finds(spark: Any, house: tuple[Path, Any], name: str, tmp_path: Path) -> None:
    from fluxen_lab.benchmarks.spark.nexmark import on_fluxen
    from fluxen_lab.benchmarks.spark.sources import sink

    data, connection = house
    job = Job(query=name, data=data, work=tmp_path)
    writer = on_fluxen(name)(spark, job).writeStream.foreachBatch(sink(job)).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    found = checked(connection, QUERIES[name], job.out)
    assert found.expected_rows > 0
    assert found.equal, found.detail
