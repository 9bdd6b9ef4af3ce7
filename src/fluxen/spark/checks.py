"""Options that cannot be followed in some combination or for some operator: refused when the query is built.

What an option may be by itself is checked by `fluxen.spark.options.Adapt`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxen.control.balance import lifetime
from fluxen.errors import ConfigError
from fluxen.operators.aggregate import Running
from fluxen.operators.base import Operator
from fluxen.operators.tree import TreeJoin
from fluxen.policies import FluxMemory, LocalDisk, RiverDQ
from fluxen.spark.options import Adapt

__all__ = ["check", "check_mode", "check_sites", "named"]


def named(number: int, operator: Operator) -> str:
    """A stage as users know it."""
    identity = operator.identity()
    words = [identity.get("form", ""), identity["operator"], f"plan={identity['plan']!r}" if "plan" in identity else ""]
    return f"stage {number + 1} ({' '.join(word for word in words if word)})"


def check(operators: Sequence[Operator], options: Adapt) -> None:
    """Raise if an option would be ignored, wholly or at some stage."""
    _check_trees(operators, options)
    _check_tracks(operators, options)
    if options.partitioner is not None and options.placement is not None:
        raise ConfigError("placement and partitioner both say where groups start; give one of them")
    if options.partitioner is not None and isinstance(options.policy, RiverDQ):
        raise ConfigError("RiverDQ and a partitioner both decide which site gets which rows; give one of them")
    if options.clock == "event" and not any(_timed(operator) for operator in operators):
        raise ConfigError("clock='event' needs the event time: pass time='column' to the query, or use clock='wall'")
    if options.memory is None and (isinstance(options.policy, FluxMemory) or type(options.policy) is LocalDisk):
        raise ConfigError(
            f"policy {type(options.policy).__name__} acts only where memory is limited; give memory_per_site as well"
        )


def _timed(operator: Operator) -> bool:
    time = operator.identity().get("time")
    return any(time) if isinstance(time, list) else time is not None


def _check_trees(operators: Sequence[Operator], options: Adapt) -> None:
    trees = any(isinstance(operator, TreeJoin) for operator in operators)
    if not trees and options.replan:
        raise ConfigError("replan is for fx.join(plan='tree'); this query has no join tree to change")
    if trees and options.memory_per_site is not None:
        raise ConfigError(
            "memory_per_site is for plan='mjoin': a join with plan='tree' does not spill its intermediate results"
        )
    if trees and options.buffer is not None:
        given = "skew_buffer" if options.time_budget is None else "time_budget"
        raise ConfigError(
            f"{given} is for plan='mjoin': rows of a join with plan='tree' cannot wait, as they would meet the states "
            "of two trees"
        )


def _check_tracks(operators: Sequence[Operator], options: Adapt) -> None:
    if options.balance != "ptlb":
        return
    for name in ("partitioner", "memory_per_site", "time_budget", "skew_buffer"):
        if getattr(options, name) is not None:
            raise ConfigError(f"balance='ptlb' does not go with {name}; use balance='mslb' or 'auto'")
    for number, operator in enumerate(operators):
        if lifetime(operator) is None:
            raise ConfigError(
                f"balance='ptlb' cannot move groups of {named(number, operator)}: only windowed join trees, tumbling "
                "windows and distinct with within let go of their state; use balance='mslb' or 'auto'"
            )


def check_sites(options: Adapt, sites: int) -> None:
    """Raise if a list names more sites than there are."""
    memory = options.memory
    if memory is not None and not isinstance(memory, int) and len(memory) > sites:
        raise ConfigError(f"memory_per_site has {len(memory)} sizes for {sites} sites; give one for each site")


def check_mode(operators: Sequence[Operator], mode: str) -> None:
    """Raise unless the query's last operator emits what `mode` says."""
    emits = "update" if isinstance(operators[-1], Running) else "append"
    if mode not in ("append", "update"):
        raise ConfigError(f"outputMode {mode!r} is not supported; this query emits {emits!r}")
    if mode != emits:
        what = "each batch's changed rows" if emits == "update" else "each result once"
        raise ConfigError(
            f"outputMode {mode!r} is not what {named(len(operators) - 1, operators[-1])} does: it emits {what}; "
            f"use {emits!r} or leave it out"
        )
