"""What `fluxen bench adapt` measures: its streams, its rates, and that every scenario can be run and checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluxen_lab.benchmarks import BENCHES, oracle
from fluxen_lab.benchmarks.adapt import SCENARIOS, rate
from fluxen_lab.benchmarks.compare import connect
from fluxen_lab.benchmarks.job import Batch, Job, Outcome
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.datagen.scenarios import DRIFT, HOTKEY, LOAD, MIXED, Shaped


def share_of_most_frequent(path: Path) -> tuple[int, float]:
    keys = pq.read_table(path).column("key").value_counts().to_pylist()
    most = max(keys, key=lambda one: one["counts"])
    return most["values"], most["counts"] / sum(one["counts"] for one in keys)


def test_the_scenarios_are_those_that_were_promised():
    assert [one.name for one in SCENARIOS] == ["hog", "hotkey", "memory", "rates", "drift", "load", "mixed"]
    assert all(one.variants[0] == "static" and one.variants[-1] == "auto" for one in SCENARIOS)
    assert all(2 <= len(one.singles) <= 4 for one in SCENARIOS)
    assert "adapt" in BENCHES


def test_the_load_falls_to_a_tenth_and_comes_back():
    rows = [LOAD.counts(batch) for batch in range(LOAD.batches)]
    assert (rows[0], rows[10], rows[29]) == (15_000, 150_000, 15_000)
    assert LOAD.rows == sum(rows)
    assert MIXED.rows == 2 * sum(MIXED.counts(batch) for batch in range(MIXED.batches))


def test_rows_are_in_the_order_of_their_times_when_the_load_changes(tmp_path):
    small = LOAD.scaled(0.1)
    small.write(tmp_path)
    times = [pq.read_table(path).column("ts").cast("int64") for path in sorted((tmp_path / "rows").glob("*.parquet"))]
    found = pa.chunked_array([chunk for column in times for chunk in column.chunks]).to_numpy()
    assert len(found) == small.rows
    assert (found[1:] > found[:-1]).all()


def test_a_hot_key_appears_and_goes(tmp_path):
    small = HOTKEY.scaled(0.05)
    small.write(tmp_path)
    before, during, after = (share_of_most_frequent(tmp_path / "a" / f"{n:05d}.parquet") for n in (2, 10, 20))
    assert during[1] > 0.03 > 5 * max(before[1], after[1])


def test_the_most_popular_key_is_another_one_later(tmp_path):
    small = DRIFT.scaled(0.02)
    small.write(tmp_path)
    first, last = (share_of_most_frequent(tmp_path / "rows" / f"{n:05d}.parquet") for n in (0, 23))
    assert first[0] != last[0]
    assert min(first[1], last[1]) > 0.05


def measured(seconds: list[float], *, finished: bool = True, owed: float = 0.0) -> Measured:
    batches = tuple(Batch(number=n, seconds=s, started=0.0, phases_ms={}) for n, s in enumerate(seconds))
    outcome = Outcome(batches=batches, finished=finished, state={"owed_seconds": owed})
    return Measured(
        job=Job(query="q", data=Path("d"), work=Path("w")), outcome=outcome, rows_per_batch=1, data_batches=9
    )


def test_a_rate_counts_the_rows_that_batches_really_had():
    shaped = Shaped(name="s", streams=replace(LOAD, batches=4).streams, batches=4, low=((0, 3),))
    low, full = shaped.counts(2), shaped.counts(3)
    assert rate(measured([9.0, 9.0, 1.0, 3.0]), shaped) == pytest.approx((low + full) / 4.0)
    assert rate(measured([9.0, 9.0, 1.0, 3.0], owed=4.0), shaped) == pytest.approx((low + full) / 8.0)
    assert rate(measured([9.0, 9.0, 1.0], finished=False), shaped) is None


def test_the_oracle_joins_two_streams_too(tmp_path):
    small = HOTKEY.scaled(0.01)
    small.write(tmp_path)
    connection = connect()
    bound = 20_000_000
    fast = connection.execute(f"SELECT count(*) FROM ({oracle.join_sql(tmp_path, bound, 'b')})").fetchone()[0]
    files = [f"read_parquet('{tmp_path / name}/*.parquet')" for name in "ab"]
    plain = connection.execute(
        f"SELECT count(*) FROM {files[0]} a JOIN {files[1]} b ON a.key = b.key "
        f"AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= {bound}"
    ).fetchone()[0]
    assert fast == plain > 0
