"""Join trees against the oracle: random trees, re-plans per site, moves by both protocols, crashes; without Spark."""

from __future__ import annotations

import tempfile

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import join_cases
from tests.effort import examples
from tests.histories import Histories, replay


@examples(120)
@given(case=join_cases(plan="tree"), history=st.data())
def test_results_equal_the_oracle_whatever_the_trees_and_moves(case, history):
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory)
    assert results == case.expected()


@examples(80)
@given(case=join_cases(plan="tree"), history=st.data())
def test_trees_that_spill_lose_and_double_nothing(case, history):
    """What is kept between the inputs is dropped when a group goes to disk, and made again when it comes back."""
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory, spills=True)
    assert results == case.expected()
