"""Aggregation and distinct against the oracle: random keys, cuts, lateness, moves and crashes, without Spark."""

from __future__ import annotations

import tempfile

from hypothesis import given
from hypothesis import strategies as st

from tests.aggregate_cases import aggregate_cases
from tests.cases import deduplicated_cases, distinct_cases
from tests.effort import examples
from tests.histories import Histories, replay


@examples(200)
@given(case=st.one_of(aggregate_cases(), distinct_cases()), history=st.data())
def test_results_equal_the_oracle_whatever_the_history(case, history):
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory)
    assert results == case.expected()


@examples(50)
@given(case=deduplicated_cases(), history=st.data())
def test_duplicates_are_dropped_as_spark_drops_them_whatever_the_history(case, history):
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory)
    assert results == case.expected()


@examples(60)
@given(case=aggregate_cases(forgets=True), history=st.data())
def test_what_has_outlived_its_time_is_forgotten_whatever_the_history(case, history):
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory)
    assert results == case.expected()
