"""The rates of `fluxen bench replan` change, and its keys load the first site."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq

from fluxen_lab.datagen.changing import REPLAN
from fluxen_lab.datagen.hashing import xxhash64


def test_the_first_stream_becomes_fast_and_the_others_slow(tmp_path):
    workload = REPLAN.scaled(0.1)
    workload.write(tmp_path)
    first = [pq.read_metadata(tmp_path / name / "00000.parquet").num_rows for name in "abc"]
    last = [pq.read_metadata(tmp_path / name / "00013.parquet").num_rows for name in "abc"]
    assert first == workload.counts(0) == [1000, 1000, 1000]
    assert last == workload.counts(13) == [10000, 500, 500]
    assert workload.rows == 4 * 3000 + 10 * 11000


def test_three_quarters_of_the_rows_have_keys_of_the_first_site_and_b_and_c_share_few(tmp_path):
    REPLAN.scaled(0.1).write(tmp_path)
    a, b, c = (pq.read_table(tmp_path / name / "00007.parquet").column("key").to_numpy() for name in "abc")
    assert abs(np.mean(xxhash64(a) < 0) - 0.75) < 0.05
    assert abs(np.mean(a % 2) - 0.5) < 0.05
    assert np.mean(b % 2) < 0.02
    assert np.mean(c % 2) > 0.98
