"""A query's options as one adaptation per stage."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from fluxen.control.adaptation import Adaptation
from fluxen.control.plans.optimizer import Optimizer
from fluxen.control.plans.replanning import StagePlans
from fluxen.control.stage import Stage
from fluxen.engine.options import AdaptOptions
from fluxen.policies import Auto, Policy

__all__ = ["adaptations"]


def adaptations(
    stages: Sequence[Stage],
    options: AdaptOptions,
    *,
    cores: int = 1,
    remote: bool = False,
    guarded: bool = True,
) -> list[Adaptation]:
    """`cores`: how many sites can work at once; `remote`: moving state means copying files; `guarded` as in
    `fluxen.control.keys.repartition`.
    """
    each = options.by_stage([stage.operator for stage in stages])
    return [
        Adaptation(
            policy=_policy(own, cores),
            partitioner=own.partitioner,
            guarded=guarded,
            memory=own.memory,
            operator=stage.operator,
            remote=remote,
            planning=StagePlans(stage.operator, move_protocol=own.move_protocol, replan=_replan(own.replan)),
        )
        for stage, own in zip(stages, each)
    ]


def _policy(options: AdaptOptions, cores: int) -> Policy:
    """The policy that was asked for, or Auto."""
    # a partitioner that nobody has given a policy beside it says where groups are
    policy = copy.deepcopy(options.policy) or Auto(relocates=options.partitioner is None)
    bounds = options.bounds(cores)
    if bounds is not None and isinstance(policy, Auto):
        policy.between(*bounds)
    return policy


def _replan(given: bool | Optimizer | None) -> bool | Optimizer:
    return True if given is None else copy.deepcopy(given)
