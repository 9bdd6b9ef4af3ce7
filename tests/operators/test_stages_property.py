"""Queries of two and three stages against the oracle: whatever a join's results wait for, no stage drops them as late.

The first stage spills, its rows wait, one input lags behind another; groups move and the process dies anywhere.
"""

from __future__ import annotations

import tempfile

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import staged_cases
from tests.effort import examples
from tests.histories import Histories, replay


@examples(40)
@given(case=staged_cases(), history=st.data())
def test_results_that_come_late_by_right_are_not_lost_in_later_stages(case, history):
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory, spills=True)
    assert results == case.expected()


@examples(15)
@given(case=staged_cases("tree"), history=st.data())
def test_trees_feed_later_stages_as_well(case, history):
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory)
    assert results == case.expected()
