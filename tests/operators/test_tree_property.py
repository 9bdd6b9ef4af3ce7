"""Join trees against the oracle: random trees, re-plans per site, moves by both protocols, crashes; without Spark."""

from __future__ import annotations

import tempfile
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.histories import Histories, examples, join_cases, replay


def test_results_equal_the_oracle_whatever_the_trees_and_moves():
    seen: Counter[str] = Counter()

    @examples(120)
    @given(case=join_cases(plan="tree"), history=st.data())
    def check(case, history):
        with tempfile.TemporaryDirectory() as directory:
            results = replay(case, Histories(history, seen), directory)
        assert results == case.expected()

    check()
    print(f"groups that moved again while their first move was under way: {seen['moved again']}")
