"""Aggregation and distinct against the oracle: random keys, cuts, lateness, moves and crashes, without Spark."""

from __future__ import annotations

import tempfile
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories import Histories, aggregate_cases, distinct_cases, examples, replay


@pytest.mark.parametrize("cases", [aggregate_cases, distinct_cases])
def test_results_equal_the_oracle_whatever_the_history(cases):
    seen: Counter[str] = Counter()

    @examples(100)
    @given(case=cases(), history=st.data())
    def check(case, history):
        with tempfile.TemporaryDirectory() as directory:
            results = replay(case, Histories(history, seen), directory)
        assert results == case.expected()

    check()
    print(f"groups that moved again while their first move was under way: {seen['moved again']}")
