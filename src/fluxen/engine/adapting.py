"""A query's options as one adaptation per stage."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from fluxen.control.adaptation import Adaptation
from fluxen.control.plans.optimizer import Optimizer
from fluxen.control.plans.replanning import StagePlans
from fluxen.control.stage import Stage
from fluxen.engine.options import AdaptOptions

__all__ = ["adaptations"]


def adaptations(
    stages: Sequence[Stage], options: AdaptOptions, *, remote: bool = False, guarded: bool = True
) -> list[Adaptation]:
    """`remote`: moving state means copying files; `guarded` as in `fluxen.control.keys.repartition`."""
    each = options.by_stage([stage.operator for stage in stages])
    return [
        Adaptation(
            policy=copy.deepcopy(own.policy),
            partitioner=own.partitioner,
            guarded=guarded,
            memory=own.memory,
            operator=stage.operator,
            remote=remote,
            planning=StagePlans(stage.operator, move_protocol=own.move_protocol, replan=_replan(own.replan)),
        )
        for stage, own in zip(stages, each)
    ]


def _replan(given: bool | Optimizer | None) -> bool | Optimizer:
    return True if given is None else copy.deepcopy(given)
