"""Partitioners in charge of random queries, with crashes between any two steps: results stay the oracle's.

With everything that makes them careful switched off, a key is isolated as soon as it is seen and goes back two batches
after it was.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fluxen as fx
from fluxen.control.keys import hotkeys, repartition
from tests.aggregate_cases import aggregate_cases
from tests.cases import distinct_cases, join_cases
from tests.effort import examples
from tests.histories import Histories, replay

HASTY = [
    (repartition, "PATIENCE", 1),
    (hotkeys, "CERTAIN", 0.0),
    (hotkeys, "QUIET", 2),
    (hotkeys, "COOL", 0.3),
    (hotkeys, "WINDOW_ROWS", 2),
]


class Governed(Histories):
    """What moves is the partitioner's business alone."""

    def reroute(self, heavy: list[int]) -> None:
        return None


@pytest.mark.parametrize("partitioner", [fx.Readj(alpha=1.0), fx.Slotted(alpha=1.0)], ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("spills", [False, True])
@examples(25)
@given(data=st.data())
def test_results_equal_the_oracle_under_a_partitioner_in_haste(partitioner, spills, data):
    case = data.draw(join_cases() if spills else st.one_of(join_cases(), aggregate_cases(), distinct_cases()))
    with tempfile.TemporaryDirectory() as directory, ExitStack() as hasty:
        for module, name, value in HASTY:
            hasty.enter_context(patch.object(module, name, value))
        results = replay(case, Governed(data), directory, spills=spills, partitioner=partitioner, guarded=False)
    assert results == case.expected()
