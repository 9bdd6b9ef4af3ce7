"""Groups that close: by which event time, and where it is to be had."""

from __future__ import annotations

from typing import Any, NamedTuple

from fluxen.spark.catalyst import event_timed, identifier, identifiers, items
from fluxen.spark.compile.pieces import Piece, definition, struct_end
from fluxen.spark.compile.refusals import refused

__all__ = ["Clock", "clock_of", "some_time"]


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
