"""Random queries with random subsets of everything at work, and crashes between any two steps, against the oracle.

What any two mechanisms do to each other is in docs/mechanisms/together.md and tests/engine/test_together.py.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import fluxen as fx
import fluxen.testing as ft
from fluxen.control.moves import copying
from fluxen.engine.checks import check_conflicts
from fluxen.engine.options import AdaptOptions
from fluxen.errors import ConfigError
from tests.aggregate_cases import aggregate_cases
from tests.cases import Case, deduplicated_cases, distinct_cases, join_cases, staged_cases
from tests.effort import examples
from tests.histories import Histories, replay
from tests.operators.test_partitioners_property import HASTY
from tests.operators.test_policies_property import EAGER
from tests.outer_cases import outer_cases, staged_outer_cases
from tests.top_cases import top_cases

PARTITIONERS = (None, fx.Readj(alpha=1.0), fx.Slotted(alpha=1.0))
EVERYTHING = st.one_of(
    join_cases(),
    join_cases(plan="tree"),
    join_cases(steady=True),
    staged_cases(),
    staged_cases(plan="tree"),
    aggregate_cases(),
    distinct_cases(),
    deduplicated_cases(),
    top_cases(),
    outer_cases(),
    staged_outer_cases(),
)


class Together(Histories):
    """By hand, none, some or all of what `Histories` has."""

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self.routes = data.draw(st.sampled_from([("none",), Histories.routes]), label="routes by hand")
        self.changes = data.draw(st.sampled_from([("none",), Histories.changes]), label="changes by hand")
        self.rescales = data.draw(st.booleans(), label="rescales asked for")

    def after(self, bench: ft.LocalEngine) -> None:
        if self.rescales and self.data.draw(st.integers(0, 2), label="other sites, if 0") == 0:
            bench.loop.rescale(self.data.draw(st.integers(1, 4), label="sites asked for"))


def own_options(draw: Any, case: Case) -> dict[str, Any]:
    """What one stage, or the query, may be told."""
    protocols = ["auto", "mslb", *(["ptlb"] if all(one.stage.operator.lifetime() for one in case.stages) else [])]
    made = {
        "policy": draw(st.sampled_from(sorted(EAGER)), label="policy"),
        "partitioner": draw(st.sampled_from(PARTITIONERS), label="partitioner"),
        "move_protocol": draw(st.sampled_from(protocols), label="protocol"),
    }
    return {**made, "policy": EAGER[made["policy"]]()}


def per_stage(draw: Any, case: Case) -> dict[int, dict[str, Any]] | None:
    """Options of single stages, of any of them."""
    if len(case.stages) == 1 or draw(st.booleans(), label="all stages alike"):
        return None
    numbers = draw(st.sets(st.integers(1, len(case.stages))), label="stages with options of their own")
    sizes = st.sampled_from([None, 1, 3_000])
    return {n: own_options(draw, case) | {"memory_per_site": draw(sizes, label="memory of a stage")} for n in numbers}


def allowed(case: Case, options: dict[str, Any], own: dict[int, dict[str, Any]] | None) -> bool:
    """Only two who route are refused."""
    each = AdaptOptions(**options, stages=own)
    routed = any(one.partitioner and one.policy.routes for one in map(each.at, range(len(case.stages))))
    with pytest.raises(ConfigError, match="which site gets which rows") if routed else nullcontext():
        check_conflicts([one.stage.operator for one in case.stages], each)
    return not routed


@examples(60)
@given(data=st.data())
def test_results_equal_the_oracle_whatever_is_at_work_at_once(data: Any) -> None:
    case = data.draw(EVERYTHING)
    options, own = own_options(data.draw, case), per_stage(data.draw, case)
    if not allowed(case, options, own):
        options, own = options | {"partitioner": None}, None
    for name in ("policy", "partitioner"):
        event(f"{name} {type(options[name]).__name__}")
    policy = options.pop("policy")
    spills = data.draw(st.booleans(), label="spills by hand")
    with tempfile.TemporaryDirectory() as directory, ExitStack() as patched:
        for module, name, value in HASTY:
            patched.enter_context(patch.object(module, name, value))
        if data.draw(st.sampled_from([False, False, True]), label="hosts share no disk"):
            patched.enter_context(patch.object(copying, "LEAST", 1))
            patched.enter_context(patch.object(ft.FaultyStore, "local", property(lambda self: False)))
            patched.enter_context(patch("tempfile.tempdir", str(Path(directory) / "cache")))
        results = replay(
            case,
            Together(data),
            f"{directory}/checkpoint",
            spills=spills,
            policy=lambda: policy,
            guarded=False,
            own=own,
            **options,
        )
    assert results == case.expected()
