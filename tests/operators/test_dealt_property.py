"""Keys dealt over several sites and together again, beside everything else that may happen: results stay the oracle's.

tests/operators/test_join_property.py and its neighbours draw the same of other queries; here families are frequent.
"""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contracts.test_operators import CASES
from tests.effort import examples
from tests.histories import Histories, replay


class Dealt(Histories):
    """Something about families after every batch, where groups do not go to disk; otherwise often."""

    changes = ("none", "deal", "deal", "deal")


@pytest.mark.parametrize(
    ("name", "spills"), [("join", False), ("join", True), ("join tree", False), ("outer join", False)]
)
@examples(20)
@given(seed=st.integers(0, 1000), data=st.data())
def test_results_equal_the_oracle_whatever_is_dealt(name, spills, seed, data):
    case = CASES[name](seed)
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Dealt(data), directory, spills=spills)
    assert results == case.expected()
