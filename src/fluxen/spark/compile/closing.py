"""Groups that close: by which event time, and where it is to be had."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

from fluxen.spark.catalyst import identifier, identifiers, is_attribute, items
from fluxen.spark.compile.pieces import Piece, definition, expanded, struct_end
from fluxen.spark.compile.refusals import place, refused
from fluxen.spark.plan.base import StagePlan

__all__ = ["Clock", "check_times", "clock_of", "some_time"]

_JUST = "1 microsecond"
"""rows to come may end just where the watermark is, and their group with them"""


class Clock(NamedTuple):
    """The event time of a stage's rows, as an expression over a piece, and a lateness for it."""

    piece: Piece
    time: Any
    lateness: str | None = None


def some_time(piece: Piece) -> Any:
    """An event time of the piece's rows, if they have one."""
    return next((one for one in piece.event_times if not struct_end(one)), None)


def clock_of(node: Any, piece: Piece, closing: Any) -> Clock:
    """By what groups of the column `closing` close: a timestamp itself, or what a window was made of."""
    plain = is_attribute(closing)
    if not struct_end(closing) and (piece.timed(closing) if plain else piece.stage is None):
        _warn_of_endless(node, piece, closing)
        return Clock(piece, closing, None if piece.stage is None else _JUST)
    made = definition(node, identifier(closing)) if plain else None
    read = set[int]() if made is None else identifiers(made)
    source = _source(piece, read) or _source(piece, _deeper(node, read))
    if source is None and plain and piece.stage is not None and piece.timed(closing):
        source = closing
    found = None if source is None else _had(piece, source)
    if source is None or found is None:
        if plain and _left_out(node, identifier(closing)):
            raise refused(
                f"ROLLUP, CUBE or GROUPING SETS that leave out {closing.name()}",
                node,
                "a total over all windows is never complete; group by the window beside them, as in GROUP BY "
                "window(ts, '1 minute'), ROLLUP (a, b)",
            )
        instead = "the event time it is made of is dropped before; keep it"
        if piece.stage is not None:
            instead = (
                "nothing says how far the stage before has come in this event time; bound it in the join before, or "
                "take the one that the bounds are about; of a UNION take one that has a watermark in all its parts, "
                "and make windows of it above"
            )
        raise refused(f"grouping by {closing.sql()}", node, instead)
    _warn_of_endless(node, piece, source)
    if not struct_end(source):
        return Clock(*found)
    # window_time() is a microsecond before the end
    return Clock(*found, _JUST if struct_end(closing) else "2 microseconds")


def _warn_of_endless(node: Any, piece: Piece, time: Any) -> None:
    if piece.endless(time):
        warnings.warn(
            f"groups by {time.sql()}{place(node)} close only at the end of input: nothing says how old its values may "
            "become; bound it from both sides in the join before",
            stacklevel=2,
        )


def _left_out(plan: Any, number: int) -> bool:
    """Whether rows are made, further down, that do not have a column which others have."""
    made = expanded(plan, number) if plan.nodeName() == "Expand" else []
    return any(one.foldable() for one in made) or any(_left_out(child, number) for child in items(plan.children()))


def check_times(node: Any, built: StagePlan) -> None:
    """Raise if a stage goes by a time that the stage before it does not know the progress of."""
    for given, time, origin in zip(built.inputs, built.times, built.origins):
        if given.plan is not None and time is not None and not given.plan.stage.timed(origin):
            raise refused(f"the event time {time}", node, "it is computed from results; take one that they have")


def _deeper(node: Any, read: set[int]) -> set[int]:
    """What columns are computed from: the window of a window_time()."""
    made = [definition(node, number) for number in sorted(read)]
    return set[int]().union(*(identifiers(one) for one in made if one is not None))


def _source(piece: Piece, read: set[int]) -> Any:
    """One of these columns that is an event time, perhaps one that projections have dropped."""
    plan = piece.plan
    while True:
        for attribute in items(plan.output()):
            if identifier(attribute) in read and piece.timed(attribute):
                return attribute
        children = items(plan.children())
        if not children:
            return None
        plan = next((child for child in children if child.isStreaming()), children[0])


def _had(piece: Piece, source: Any) -> tuple[Piece, Any] | None:
    """An event time, or when a window ends, and the piece that has it."""
    if struct_end(source):
        return piece.end(source)
    carrying = piece.carrying(source)
    return None if carrying is None else (carrying, source)
