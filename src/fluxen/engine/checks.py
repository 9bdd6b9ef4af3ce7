"""Options that cannot be followed in some combination or for some operator: refused when the query is built.

What an option may be by itself is checked by `fluxen.engine.options.AdaptOptions`. A query is built step by step, in
any order, so there are two kinds of checks. What contradicts something that was said can only get worse by saying more:
`check_conflicts` refuses it at once. What lacks something may still get it: `check_complete` refuses that when the
query is about to be written.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxen.engine.options import PARTITIONS, AdaptOptions
from fluxen.errors import ConfigError
from fluxen.operators.base import Operator
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
    _check_tracks(operators, options)
    if options.partitioner is not None and options.placement is not None:
        raise ConfigError("placement and partitioner both say where groups start; give one of them")
    if options.partitioner is not None and options.policy is not None and options.policy.routes:
        name = type(options.policy).__name__
        raise ConfigError(f"{name} and a partitioner both decide which site gets which rows; give one of them")
    if options.partitions != PARTITIONS:
        _check_counts(options)
    if options.sites is not None and options.placement is not None and len(options.placement) != options.sites:
        raise ConfigError(f"placement has {len(options.placement)} shares for {options.sites} sites; give one for each")


def _check_counts(options: AdaptOptions) -> None:
    if options.sites is not None:
        Routing.even(partitions=options.partitions, sites=options.sites)


def _check_tracks(operators: Sequence[Operator], options: AdaptOptions) -> None:
    if options.move_protocol != "ptlb":
        return
    others = {
        "partitioner": options.partitioner,
        "memory_per_site": options.memory_per_site,
        "time_budget": options.time_budget,
        "skew_buffer": options.skew_buffer,
    }
    for name, value in others.items():
        if value is not None:
            raise ConfigError(f"move_protocol='ptlb' does not go with {name}; use 'mslb' or 'auto'")
    for number, operator in enumerate(operators):
        if operator.lifetime() is None:
            raise ConfigError(
                f"move_protocol='ptlb' cannot move groups of {named(number, operator)}: only windowed join trees, "
                "windows and distinct with within drop their state; use 'mslb' or 'auto'"
            )


# ---- what is missing


def check_complete(operators: Sequence[Operator], options: AdaptOptions) -> None:
    """Raise if an option would be ignored because another one, or a stage it is for, is missing."""
    check_conflicts(operators, options)
    _check_counts(options)
    _check_policy(operators, options)
    if options.placement is not None and options.sites is None:
        raise ConfigError(f"placement has {len(options.placement)} shares; give sites={len(options.placement)} as well")
    if options.clock == "event" and not any(_timed(operator) for operator in operators):
        raise ConfigError("clock='event' needs the event time: pass time='column' to the query, or use clock='wall'")
    if options.replan and all(operator.plans is None for operator in operators):
        raise ConfigError("replan is for fx.join(plan='tree'); this query has no join tree to change")
    if options.skew_buffer is not None and options.sites == 1 and options.time_budget is None:
        raise ConfigError(
            "skew_buffer lets rows wait while other sites go on, but there is sites=1; give more sites or a time_budget"
        )


def _check_policy(operators: Sequence[Operator], options: AdaptOptions) -> None:
    policy = options.policy
    if policy is None:
        return
    name = type(policy).__name__
    if policy.needs_memory and options.memory is None:
        raise ConfigError(f"policy {name} acts only where memory is limited; give memory_per_site as well")
    if policy.spills and options.memory is not None and not any(operator.spills for operator in operators):
        stages = ", ".join(named(number, operator) for number, operator in enumerate(operators))
        raise ConfigError(
            f"policy {name} spills generations of state, which only inner joins with plan='mjoin' have; groups of "
            f"{stages} take turns in memory: use FluxMemory or leave the policy out"
        )


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
