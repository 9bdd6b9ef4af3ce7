"""Stage plans in an order in which every one comes after those that feed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fluxen.control.stage import Feed
from fluxen.spark.plan.base import StagePlan

__all__ = ["in_order"]


def in_order(last: StagePlan) -> tuple[StagePlan, ...]:
    """The stages behind one of them and itself; one that several others read is there once."""
    found: dict[int, StagePlan] = {}

    def visit(plan: StagePlan) -> None:
        for one in plan.inputs:
            if one.plan is not None and id(one.plan) not in found:
                visit(one.plan)
        found[id(plan)] = plan

    visit(last)
    number = {known: at for at, known in enumerate(found)}
    return tuple(replace(plan, stage=replace(plan.stage, feeds=_feeds(plan, number))) for plan in found.values())


def _feeds(plan: StagePlan, number: Mapping[int, int]) -> tuple[Feed, ...]:
    if all(one.plan is None for one in plan.inputs):
        return ()
    return tuple(
        Feed() if one.plan is None else Feed(stage=number[id(one.plan)], time=time)
        for one, time in zip(plan.inputs, plan.origins)
    )
