"""Outer, semi and anti joins against the oracle: random bounds, residual predicates, nulls, late rows and histories."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxen.operators.join.outer import HOWS
from tests.effort import examples
from tests.histories import Histories, replay
from tests.outer_cases import outer_cases, staged_outer_cases


@pytest.mark.parametrize("how", HOWS)
@examples(60)
@given(data=st.data())
def test_results_equal_the_oracle_whatever_the_history(how, data):
    case = data.draw(outer_cases((how,)))
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(data), directory)
    assert results == case.expected()


@examples(60)
@given(case=staged_outer_cases(), history=st.data())
def test_rows_that_come_out_alone_are_not_late_in_the_next_stage(case, history):
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Histories(history), directory)
    assert results == case.expected()
