"""A query with another operator in the place of its first stage's: how emulations get into a query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fluxen.operators.base import Operator

__all__ = ["wrapped"]


def wrapped(query: Any, wrap: Callable[[Operator], Operator]) -> Any:
    """The query with `wrap` of its first stage's operator."""
    operator = query.plans[0].stage.operator
    changed: dict[int, Any] = {}

    def rebuilt(plan: Any) -> Any:
        if id(plan) not in changed:
            inputs = tuple(one if one.plan is None else replace(one, plan=rebuilt(one.plan)) for one in plan.inputs)
            mine = plan.stage.operator is operator
            stage = replace(plan.stage, operator=wrap(operator)) if mine else plan.stage
            changed[id(plan)] = replace(plan, stage=stage, inputs=inputs)
        return changed[id(plan)]

    return replace(query, last=rebuilt(query.last))
