"""A query in a few lines: what each stage does, which state it keeps, and when that goes.

Meant for people who are about to let a query run for weeks: state that never expires is named as such.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxen.control.coordinator import Stage
from fluxen.durations import words
from fluxen.operators.aggregate import Running, Tumbling
from fluxen.operators.base import Operator
from fluxen.operators.distinct import Distinct
from fluxen.operators.join import Join
from fluxen.operators.last import LastRows
from fluxen.operators.stateful import Stateful
from fluxen.spark.checks import named
from fluxen.spark.options import Adapt
from fluxen.typing import UNBOUNDED, Json

__all__ = ["explained"]


def explained(options: Adapt, stages: Sequence[Stage]) -> str:
    lines = [_adapting(options)]
    for number, stage in enumerate(stages):
        lines.append(f"{named(number, stage.operator)} {_by(stage.operator)}")
        clock = "the time of batches" if stage.on_arrival else "event time"
        lines += [f"  state: {line}" for line in _state(stage.operator, clock)]
    return "\n".join(lines)


def _adapting(options: Adapt) -> str:
    parts = [f"{'as many sites as cores' if options.sites is None else f'{options.sites} sites'}"]
    parts.append(f"{options.partitions} partition groups")
    for name in ("policy", "partitioner"):
        if getattr(options, name) is not None:
            parts.append(f"{name} {type(getattr(options, name)).__name__}")
    if options.memory_per_site is not None:
        parts.append(f"memory_per_site {options.memory_per_site}, shared by the stages")
    return f"fluxen: {', '.join(parts)}"


def _by(operator: Operator) -> str:
    """Keys and event time in the user's words."""
    identity = operator.identity()
    if "on" in identity:
        inputs = zip(identity["inputs"], identity["on"], identity["time"])
        return "of " + ", ".join(f"{name} on {_listed(keys)}{_timed(time)}" for name, keys, time in inputs)
    keys = identity.get("by")
    return f"by {_listed(keys)}{_timed(identity.get('time'))}" if keys else "of rows in any order"


def _listed(described: Sequence[str]) -> str:
    return ", ".join(column.rsplit(" ", 1)[0] for column in described)


def _timed(time: str | None) -> str:
    return "" if time is None else f" (time {time})"


def _state(operator: Operator, clock: str) -> list[str]:
    identity = operator.identity()
    match operator:
        case Join():
            return [_rows_of(operator, side, clock) for side in range(operator.inputs)]
        case Tumbling():
            return [f"a row per key and open window of {words(operator.size)}, until the watermark passes its end"]
        case Running():
            return [f"a row per key, {_life(operator.ttl, clock, _RUNNING)}"]
        case LastRows():
            return [f"up to {operator.n - 1} rows per key, {_life(operator.ttl, clock, _GENERAL)}"]
        case Distinct():
            return [f"a row per key that was kept, {_life(operator.within, clock, _DISTINCT)}"]
        case Stateful():
            return [_code(identity)]
    return ["what the operator keeps"]


_GENERAL = "ttl='7 days'"
_RUNNING = "ttl='7 days' or window='1 hour'"
_DISTINCT = "within='1 hour' or ttl='7 days'"
_JOIN = "within='1 hour', between={...} or ttl='7 days'"


def _life(life: int, clock: str, give: str) -> str:
    if life >= UNBOUNDED:
        return f"which never expires: give {give}"
    return f"for {words(life)} of {clock}"


def _rows_of(join: Join, side: int, clock: str) -> str:
    """How long the rows of one input stay: as long as one of the other inputs may still bring a partner."""
    lives = [-join.reach[other][side] for other in range(join.inputs) if other != side]
    rows = f"rows of {join.names[side]}, "
    if max(lives) >= UNBOUNDED:
        return f"{rows}which never expire: give {_JOIN}"
    if max(lives) <= 0:
        return f"{rows}until the watermarks of the other inputs reach them"
    return f"{rows}until the watermarks of the other inputs are {words(max(lives))} of {clock} past them"


def _code(identity: Json) -> str:
    if identity.get("by") is None:
        return "none"
    return f"what {identity['code']} keeps, which never expires by itself: its own code must let go of it"
