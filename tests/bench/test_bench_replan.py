"""The rates of `fluxen bench replan` change half-way, and its keys load the first site."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq

from fluxen.bench.replan import REPLAN, spark_hash


def test_all_streams_but_the_first_fall_to_a_twentieth(tmp_path):
    workload = REPLAN.scaled(0.1)
    workload.write(tmp_path)
    first = [pq.read_metadata(tmp_path / name / "00000.parquet").num_rows for name in "abc"]
    last = [pq.read_metadata(tmp_path / name / "00011.parquet").num_rows for name in "abc"]
    assert first == workload.counts(0) == [1000, 1000, 1000]
    assert last == workload.counts(11) == [1000, 50, 50]
    assert workload.rows == 6 * 3000 + 6 * 1100


def test_three_quarters_of_the_rows_have_keys_of_the_first_site(tmp_path):
    REPLAN.scaled(0.1).write(tmp_path)
    keys = pq.read_table(tmp_path / "a" / "00003.parquet").column("key").to_numpy()
    assert abs(np.mean(spark_hash(keys) < 0) - 0.75) < 0.05
