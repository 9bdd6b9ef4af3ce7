"""A query in a few lines: what each stage does, which state it keeps, and when that goes.

Meant for people who are about to let a query run for weeks: state that never expires is named as such.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxen.control.stage import Stage
from fluxen.engine.checks import named
from fluxen.engine.options import AdaptOptions
from fluxen.operators.base import Operator
from fluxen.partitioning.base import Partitioner
from fluxen.policies.base import Policy

__all__ = ["explained"]


def explained(
    options: AdaptOptions, stages: Sequence[Stage], before: Sequence[Sequence[str]] = (), after: str = ""
) -> str:
    """`before` is what the runtime does with the rows of each stage's inputs, `after` what it does with the results."""
    lines = [_adapting(options)]
    for number, stage in enumerate(stages):
        lines.append(f"{named(number, stage.operator)} {_by(stage.operator)}{_after(stage)}")
        lines += _alone(options, number)
        lines += _first(stage.operator, before[number] if before else ())
        clock = "the time of batches" if stage.on_arrival else "event time"
        lines += [f"  state: {line}" for line in stage.operator.keeps(clock)]
    lines += [f"then, in Spark: {after}"] if after else []
    return "\n".join(lines)


def _first(operator: Operator, notes: Sequence[str]) -> list[str]:
    names = operator.identity().get("inputs", [])
    of = [f" of {name}" for name in names] if len(names) == len(notes) else [""] * len(notes)
    return [f"  rows{whose}, in Spark: {note}" for whose, note in zip(of, notes) if note]


def _adapting(options: AdaptOptions) -> str:
    parts = [_sites(options)]
    parts.append(f"{options.partitions} partition groups")
    parts.append(f"policy {'Auto' if options.policy is None else type(options.policy).__name__}")
    if options.partitioner is not None:
        parts.append(f"partitioner {type(options.partitioner).__name__}")
    given, shared = options.memory_per_site or "auto", "of what executors have, " if options.finds_memory else ""
    parts.append(f"memory_per_site {given}{'' if given == 'unlimited' else f', {shared}shared by the stages'}")
    return f"fluxen: {', '.join(parts)}"


def _alone(options: AdaptOptions, number: int) -> list[str]:
    """What a stage has been told in place of what the query says."""
    given = (options.stages or {}).get(number + 1, {})
    said = [f"{name} {_said(value)}" for name, value in given.items()]
    return [f"  by itself: {', '.join(said)}"] if said else []


def _said(value: object) -> str:
    return type(value).__name__ if isinstance(value, Policy | Partitioner) else str(value)


def _sites(options: AdaptOptions) -> str:
    if options.sites is None:
        return "as many sites as cores"
    if options.sites == "auto":
        return "as many sites as it takes"
    return f"{options.sites} sites" if isinstance(options.sites, int) else "{} to {} sites".format(*options.sites)


def _by(operator: Operator) -> str:
    """Keys and event time in the user's words."""
    identity = operator.identity()
    if "on" in identity:
        inputs = zip(identity["inputs"], identity["on"], identity["time"])
        return "of " + ", ".join(f"{name} on {_listed(keys)}{_timed(time)}" for name, keys, time in inputs)
    keys = identity.get("by")
    return f"by {_listed(keys)}{_timed(identity.get('time'))}" if keys else "of rows in any order"


def _after(stage: Stage) -> str:
    """Which stages' results it reads."""
    fed = sorted({feed.stage + 1 for feed in stage.feeds if feed.stage is not None})
    return f", after stage {' and '.join(map(str, fed))}" if fed else ""


def _listed(described: Sequence[str]) -> str:
    return ", ".join(column.rsplit(" ", 1)[0] for column in described)


def _timed(time: str | None) -> str:
    return "" if time is None else f" (time {time})"
