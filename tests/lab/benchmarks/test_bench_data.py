"""The benchmark's input: deterministic, of the stated distribution, one file per micro-batch in a known order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fluxen_lab.datagen.streams import StreamSpec, batch_table, write_stream, write_warm_variant, zipf_cdf, zipf_ranks
from fluxen_lab.datagen.workloads import AGGREGATE, FIXED, GROWTH_JOIN, GROWTH_ROWS, W1, W2, Workload

SPEC = StreamSpec(name="rows", rows=2_000, keys=100, skew=1.0, span_us=10_000_000, text=True, seed=7)
WORKLOADS = (AGGREGATE, W1, W2, FIXED, GROWTH_JOIN, GROWTH_ROWS)


def test_the_same_seed_gives_the_same_rows_and_another_seed_others() -> None:
    again = StreamSpec(name="rows", rows=2_000, keys=100, skew=1.0, span_us=10_000_000, text=True, seed=7)
    other = StreamSpec(name="rows", rows=2_000, keys=100, skew=1.0, span_us=10_000_000, text=True, seed=8)
    assert batch_table(SPEC, 3, 10).equals(batch_table(again, 3, 10))
    assert not batch_table(SPEC, 3, 10).equals(batch_table(other, 3, 10))


def test_batches_of_one_stream_differ() -> None:
    assert batch_table(SPEC, 0, 10)["text"] != batch_table(SPEC, 1, 10)["text"]


@pytest.mark.parametrize("keys", [10, 1_000])
def test_zipf_frequencies_follow_the_exact_finite_distribution(keys: int) -> None:
    size = 200_000
    ranks = zipf_ranks(np.random.default_rng(1), size, zipf_cdf(keys, 1.0))
    assert ranks.min() >= 0
    assert ranks.max() < keys
    weights = 1.0 / np.arange(1, keys + 1)
    expected = size * weights / weights.sum()
    observed = np.bincount(ranks, minlength=keys)
    # chi-square over all ranks: mean keys - 1, standard deviation sqrt(2 (keys - 1))
    statistic = float(((observed - expected) ** 2 / expected).sum())
    assert abs(statistic - (keys - 1)) < 5 * np.sqrt(2 * (keys - 1))


def test_event_times_rise_strictly_over_the_whole_stream_and_stay_in_its_span() -> None:
    times = np.concatenate([batch_table(SPEC, batch, 10)["ts"].cast("int64").to_numpy() for batch in range(10)])
    assert (np.diff(times) > 0).all()
    assert times[-1] - times[0] < SPEC.span_us


def test_text_has_sixteen_characters() -> None:
    assert {len(text) for text in batch_table(SPEC, 0, 10)["text"].to_pylist()} == {16}


def test_sums_of_values_do_not_depend_on_their_order() -> None:
    values = batch_table(SPEC, 0, 1)["value"].to_numpy()
    assert values.sum() == values[::-1].sum() == np.sort(values).cumsum()[-1]


def test_one_file_per_batch_strictly_ordered_by_modification_time(tmp_path: Path) -> None:
    files = write_stream(SPEC, tmp_path, 10)
    assert len(files) == 10
    assert (np.diff([path.stat().st_mtime for path in files]) >= 1).all()
    assert [pq.read_metadata(path).num_rows for path in files] == [200] * 10


def test_the_warm_variant_puts_strangers_before_the_same_files(tmp_path: Path) -> None:
    files = write_stream(SPEC, tmp_path / "rows", 3)
    write_warm_variant(tmp_path / "rows", tmp_path / "warm")
    found = sorted((tmp_path / "warm").iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in found] == ["warm-0.parquet", "warm-1.parquet", *(path.name for path in files)]
    assert max(pq.read_table(found[0])["key"].to_pylist()) < 0
    assert found[2].samefile(files[0])


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_batch_of_a_workload_has_the_same_number_of_rows(workload: Workload) -> None:
    for scaled in (workload, workload.scaled(0.013)):
        assert all(stream.rows % scaled.batches == 0 for stream in scaled.streams)
        assert scaled.batch_rows * scaled.batches == scaled.rows


def test_full_sizes_are_the_stated_ones() -> None:
    assert (AGGREGATE.rows, AGGREGATE.batches, AGGREGATE.streams[0].keys) == (5_000_000, 20, 1_000_000)
    assert (W1.rows, W1.batches, W1.bound_us) == (3_000_000, 20, 60_000_000)
    assert (W2.rows, W2.batches, W2.bound_us) == (900_000, 20, 200_000)
    assert AGGREGATE.scaled(1.0) == AGGREGATE


def test_a_smoke_run_keeps_results_per_row() -> None:
    small = W1.scaled(0.1)
    assert small.streams[0].rows / small.streams[0].keys == W1.streams[0].rows / W1.streams[0].keys
    skewed = W2.scaled(0.1)
    assert skewed.streams[0].rows / skewed.streams[0].span_us == W2.streams[0].rows / W2.streams[0].span_us
