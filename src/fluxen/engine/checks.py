"""Options that cannot be followed in some combination or for some operator: refused when the query is built.

What an option may be by itself is checked by `fluxen.engine.options.AdaptOptions`. A query is built step by step, in
any order, so there are two kinds of checks. What contradicts something that was said can only get worse by saying more:
`check_conflicts` refuses it at once. What lacks something may still get it: `check_complete` refuses that when the
query is about to be written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from fluxen.engine.options import PARTITIONS, AdaptOptions
from fluxen.errors import ConfigError
from fluxen.operators.base import Operator
from fluxen.policies import Auto
from fluxen.state.routing import Routing

__all__ = ["check_complete", "check_conflicts", "check_mode", "check_sites", "named"]


def named(number: int, operator: Operator) -> str:
    """A stage as users know it."""
    identity = operator.identity()
    words = [identity.get("form", ""), identity["operator"], f"plan={identity['plan']!r}" if "plan" in identity else ""]
    return f"stage {number + 1} ({' '.join(word for word in words if word)})"


# ---- contradictions


def check_conflicts(operators: Sequence[Operator], options: AdaptOptions) -> None:
    """Raise if two options, or an option and a stage, contradict each other."""
    for number, operator in enumerate(operators):
        own = options.at(number)
        _check_routes(own)
        if own.move_protocol == "ptlb" and operator.lifetime() is None:
            raise ConfigError(
                f"move_protocol='ptlb' cannot move groups of {named(number, operator)}: only joins, windows and "
                "distinct whose state expires get rid of it; use 'mslb' or 'auto', or give it to other stages with "
                "stages="
            )
    if options.partitions != PARTITIONS:
        _check_counts(options)


def _check_routes(options: AdaptOptions) -> None:
    if options.partitioner is not None and options.placement is not None:
        raise ConfigError("placement and partitioner both say where groups start; give one of them")
    if options.partitioner is not None and options.policy is not None and options.policy.routes:
        name = type(options.policy).__name__
        raise ConfigError(f"{name} and a partitioner both decide which site gets which rows; give one of them")
    sites = options.fixed_sites
    if sites is not None and options.placement is not None and len(options.placement) != sites:
        raise ConfigError(f"placement has {len(options.placement)} shares for {sites} sites; give one for each")
    if options.sites != sites and options.policy is not None and not isinstance(options.policy, Auto):
        name = type(options.policy).__name__
        raise ConfigError(
            f"sites={options.sites!r} lets fx.Auto() choose their number, and {name} never does; leave the policy out "
            "or give a number of sites"
        )


def _check_counts(options: AdaptOptions) -> None:
    if options.fixed_sites is not None:
        Routing.even(partitions=options.partitions, sites=options.fixed_sites)


# ---- what is missing


def check_complete(operators: Sequence[Operator], options: AdaptOptions) -> None:
    """Raise if an option would be ignored because another one, or a stage it is for, is missing."""
    check_conflicts(operators, options)
    _check_counts(options)
    if options.clock == "event" and not any(_timed(operator) for operator in operators):
        raise ConfigError("clock='event' needs the event time: pass time='column' to the query, or use clock='wall'")
    given = options.stages or {}
    if absent := [number for number in given if number > len(operators)]:
        raise ConfigError(f"stages has options for stage {absent[0]}; the query has {len(operators)}, see explain()")
    for name, check in _NEEDS.items():
        own = [number - 1 for number in given if name in given[number]]
        # what the query says is for all stages that do not say it themselves
        rest = [number for number in range(len(operators)) if number not in own]
        for stages in (*([number] for number in own), rest):
            mine = {number: (operators[number], options.at(number)) for number in stages}
            if any(getattr(one, name) is not None for _, one in mine.values()):
                check(mine)


_Stages: TypeAlias = Mapping[int, tuple[Operator, AdaptOptions]]
"""Stages that one option is for, each with all of its options."""


def _check_policy(stages: _Stages) -> None:
    policy = next(options.policy for _, options in stages.values())
    assert policy is not None
    name = type(policy).__name__
    if policy.needs_memory and not any(options.limits_memory for _, options in stages.values()):
        raise ConfigError(f"policy {name} acts only where memory is limited; give memory_per_site as well")
    # what executors have is no reason to refuse a policy
    asked = any(options.frugal for _, options in stages.values())
    if policy.spills and asked and not any(operator.spills for operator, _ in stages.values()):
        turns = ", ".join(named(number, operator) for number, (operator, _) in stages.items())
        raise ConfigError(
            f"policy {name} spills generations of state, which only inner joins have; groups of {turns} take turns in "
            "memory: use FluxMemory or leave the policy out"
        )


def _check_placement(stages: _Stages) -> None:
    for _, options in stages.values():
        if options.placement is not None and options.fixed_sites is None:
            shares = len(options.placement)
            raise ConfigError(f"placement has {shares} shares; give sites={shares} as well")


def _check_replan(stages: _Stages) -> None:
    asked = any(options.replan for _, options in stages.values())
    if asked and all(operator.plans is None for operator, _ in stages.values()):
        raise ConfigError("replan is for fx.join(plan='tree'); there is no join tree to change")


def _check_buffer(stages: _Stages) -> None:
    if any(options.sites == 1 and options.time_budget is None for _, options in stages.values()):
        raise ConfigError(
            "skew_buffer lets rows wait while other sites go on, but there is sites=1; give more sites or a time_budget"
        )


_NEEDS: dict[str, Callable[[_Stages], None]] = {
    "policy": _check_policy,
    "placement": _check_placement,
    "replan": _check_replan,
    "skew_buffer": _check_buffer,
}


def _timed(operator: Operator) -> bool:
    time = operator.identity().get("time")
    return any(time) if isinstance(time, list) else time is not None


def check_sites(options: AdaptOptions, sites: int) -> None:
    """Raise if a list names more sites than there are."""
    memory = options.memory
    if memory is not None and not isinstance(memory, int) and len(memory) > sites:
        raise ConfigError(f"memory_per_site has {len(memory)} sizes for {sites} sites; give one for each site")


def check_mode(operators: Sequence[Operator], mode: str) -> None:
    """Raise unless the query's last operator emits what `mode` says."""
    emits = operators[-1].emits
    if mode not in ("append", "update"):
        raise ConfigError(f"outputMode {mode!r} is not supported; this query emits {emits!r}")
    if mode != emits:
        what = "each batch's changed rows" if emits == "update" else "each result once"
        raise ConfigError(
            f"outputMode {mode!r} is not what {named(len(operators) - 1, operators[-1])} does: it emits {what}; "
            f"use {emits!r} or leave it out"
        )
