"""Every policy in charge of random queries, with crashes between any two steps: results stay the oracle's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxen import policies
from fluxen.policies import Policy
from tests.aggregate_cases import aggregate_cases
from tests.cases import distinct_cases, join_cases
from tests.effort import examples
from tests.histories import Histories, replay

# an epoch is a second to the policies here: each one may decide after every batch
EAGER: dict[str, Callable[[], Policy]] = {
    "Auto": lambda: policies.Auto(min_collection=0.5),
    "Static": policies.Static,
    "Random": lambda: policies.Random(seed=3, period=0.5, moves=3),
    "FluxLoad": lambda: policies.FluxLoad(min_collection=0.5, groups_per_move=2, guarded=False),
    "FluxMemory": lambda: policies.FluxMemory(min_collection=0.5, guarded=False),
    "FluxHybrid": lambda: policies.FluxHybrid(min_collection=0.5, guarded=False),
    "RiverDQ": lambda: policies.RiverDQ(gain=0.0),
    "LocalDisk": policies.LocalDisk,
    "LazyDisk": policies.LazyDisk,
    "ActiveDisk": policies.ActiveDisk,
    "ForecastDisk": policies.ForecastDisk,
}


class Governed(Histories):
    """What moves is the policy's business alone."""

    def reroute(self, heavy: list[int]) -> None:
        return None


def test_no_policy_is_left_out():
    assert set(EAGER) == set(policies.__all__) - {"POLICIES", "Policy", "Stats", "Suggestion"}


@pytest.mark.parametrize("name", EAGER)
@examples(10)
@given(case=st.one_of(join_cases(), aggregate_cases(), distinct_cases()), history=st.data())
def test_results_equal_the_oracle_under_every_policy(name, case, history):
    with tempfile.TemporaryDirectory() as directory:
        results = replay(case, Governed(history), directory, policy=EAGER[name])
    assert results == case.expected()
