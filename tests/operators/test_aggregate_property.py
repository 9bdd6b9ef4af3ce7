"""Aggregation and distinct against the oracle: random keys, cuts, lateness, moves and crashes, without Spark."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxen.partitioning import ConsistentHash, Readj, Redist, Scan, Slotted
from tests.histories import Histories, aggregate_cases, distinct_cases, examples, replay


@examples(200)
@given(case=st.one_of(aggregate_cases(), distinct_cases()), history=st.data())
def test_results_equal_the_oracle_whatever_the_history(case, history):
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory)
    assert results == case.expected()


@pytest.mark.parametrize("partitioner", [ConsistentHash, Readj, Redist, Scan, Slotted])
@examples(12)
@given(case=aggregate_cases(least=5), history=st.data())
def test_results_equal_the_oracle_while_a_partitioner_isolates_keys_of_combined_rows(partitioner, case, history):
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory, partitioner=partitioner())
    assert results == case.expected()
