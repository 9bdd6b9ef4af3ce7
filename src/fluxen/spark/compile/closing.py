"""Groups that close: by which event time, and where it is to be had."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

from fluxen.spark.catalyst import event_timed, identifier, identifiers, items
from fluxen.spark.compile.moments import window_of_time
from fluxen.spark.compile.pieces import Piece, definition, struct_end
from fluxen.spark.compile.refusals import refused
from fluxen.spark.plan.base import StagePlan

__all__ = ["Clock", "check_bounded", "clock_of", "some_time"]


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
    read = {identifier(closing)}
    if struct_end(closing):
        made = definition(node, identifier(closing))
        read = set() if made is None else identifiers(made)
    source = next((one for one in piece.output if identifier(one) in read and event_timed(one)), None)
    if piece.stage is not None:
        made = None if source is None else definition(node, identifier(source))
        window = None if made is None else window_of_time(made)
        if window is not None and identifier(window) in piece.ids:
            return Clock(piece, piece.maker.field(window, "end"), "1 microsecond")
        if source is None or struct_end(source) or identifier(source) == identifier(closing):
            # rows to come may end just where the watermark is, and their group with them
            end = piece.maker.field(closing, "end") if struct_end(closing) else closing
            return Clock(piece, end, "1 microsecond")
        return Clock(piece, source)
    if source is not None:
        return Clock(piece, source)
    carried = _carried(piece, read)
    if carried is None:
        raise refused(f"grouping by {closing.sql()}", node, "the event time it is made of is dropped before; keep it")
    return carried


def check_bounded(node: Any, built: StagePlan, closing: bool) -> StagePlan:
    """The stage, unless rows of a stage before could be taken for late here: nothing says how old those may become."""
    for given, time, origin in zip(built.inputs, built.times, built.origins):
        if given.plan is None or time is None:
            continue
        if origin is None or not given.plan.stage.carries(origin):
            raise refused(
                f"going by {time} in a second stateful operator", node, "bound the event times in the join before it"
            )
        if closing and given.plan.stage.unbounded(origin):
            warnings.warn(
                f"groups by {time} close only at the end of input: nothing says how old its values may become; bound "
                "the event times in the join before",
                stacklevel=2,
            )
    return built


def _carried(piece: Piece, read: set[int]) -> Clock | None:
    """An event time below, which projections have dropped, brought up again."""
    plan = piece.plan
    while children := items(plan.children()):
        for attribute in items(plan.output()):
            if event_timed(attribute) and identifier(attribute) in read:
                carried = piece.carrying(attribute)
                return None if carried is None else Clock(carried, attribute)
        (plan, *_) = children
    return None
