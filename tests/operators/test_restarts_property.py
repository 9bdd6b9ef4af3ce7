"""A checkpoint that goes on under another policy with every restart, and Auto in haste: results stay the oracle's.

Every batch is a restart here. Auto asks for keys at once, isolates and deals what it sees, and takes it back two
batches later.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import fluxen.testing as ft
from fluxen.control.keys import splitting
from fluxen.policies import Auto
from fluxen.policies.auto import candidates, isolation
from tests.cases import Case, join_cases
from tests.effort import examples
from tests.histories import Histories, replay
from tests.operators.test_partitioners_property import HASTY
from tests.operators.test_policies_property import EAGER
from tests.operators.test_together_property import EVERYTHING
from tests.outer_cases import outer_cases

IN_HASTE = [
    *HASTY,
    (isolation, "ASKS", 1),
    (isolation, "STANDS_OUT", 1.0),
    (isolation, "RELIEF", 0.0),
    (isolation, "COOL", 1),
    (isolation, "_COLD", 10.0),
    (candidates, "MARGIN", 0.0),
    (splitting, "CERTAIN", 0.0),
    (splitting, "SEEN", 1),
    (splitting, "MOST_PATIENCE", 1),
    (splitting, "RELIEF", -10.0),
    (splitting, "COOLED", 10.0),
    (splitting, "PATIENT", 2),
]


class Governed(Histories):
    """What moves is the policies' business, but for other numbers of sites."""

    routes = ("none", "none", "rescale")
    changes = ("none",)

    def after(self, bench: ft.LocalEngine) -> None:
        for one in bench.log.events():
            if one["outcome"] == "done" and one["epoch"] == bench.epoch.number:
                event(f"{one['kind']} done")


def in_haste(case: Case, data: Any, **options: Any) -> list[str]:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as hasty:
        for module, name, value in IN_HASTE:
            hasty.enter_context(patch.object(module, name, value))
        return replay(case, Governed(data), directory, **options)


@examples(40)
@given(data=st.data())
def test_results_equal_the_oracle_under_another_policy_after_every_restart(data: Any) -> None:
    case = data.draw(EVERYTHING)
    names = sorted(EAGER)
    assert in_haste(case, data, policy=lambda: EAGER[data.draw(st.sampled_from(names), label="policy")]()) == (
        case.expected()
    )


@pytest.mark.parametrize("spills", [False, True])
@examples(40)
@given(data=st.data())
def test_results_equal_the_oracle_while_auto_isolates_deals_and_takes_back(spills: bool, data: Any) -> None:
    case = data.draw(st.one_of(join_cases(), join_cases(plan="tree"), *([] if spills else [outer_cases()])))
    assert in_haste(case, data, spills=spills, policy=lambda: Auto(min_collection=0.5)) == case.expected()
