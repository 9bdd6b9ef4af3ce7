"""The m-way join against the oracle: random inputs, keys, bounds, cuts, moves and crashes, without Spark.

The same bodies run on real Spark, with fewer examples, in tests/spark/test_property.py.
"""

from __future__ import annotations

import tempfile

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import join_cases
from tests.effort import examples
from tests.histories import Histories, replay


@examples(100)
@given(case=join_cases(), history=st.data())
def test_results_equal_the_oracle_whatever_the_history(case, history):
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory)
    assert results == case.expected()


@examples(100)
@given(case=join_cases(), history=st.data())
def test_what_is_spilled_is_only_late_never_lost_or_doubled(case, history):
    """Groups go to disk, move, are cleaned up and come back at random, and the process dies anywhere."""
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory, spills=True)
    assert results == case.expected()


@examples(60)
@given(case=join_cases(steady=True), history=st.data())
def test_spilled_keys_that_keep_getting_rows_lose_nothing_when_their_window_closes(case, history):
    """Windows close over generations on disk again and again: each is settled once, then forgotten."""
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory, spills=True)
    assert results == case.expected()
