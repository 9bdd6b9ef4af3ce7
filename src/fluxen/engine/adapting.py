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
    share = options.shared_by([stage.operator for stage in stages])
    return [
        Adaptation(
            policy=copy.deepcopy(options.policy),
            partitioner=options.partitioner,
            guarded=guarded,
            memory=share.memory,
            operator=stage.operator,
            remote=remote,
            planning=StagePlans(stage.operator, move_protocol=options.move_protocol, replan=_replan(options.replan)),
        )
        for stage in stages
    ]


def _replan(given: bool | Optimizer | None) -> bool | Optimizer:
    return True if given is None else copy.deepcopy(given)
