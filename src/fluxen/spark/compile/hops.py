"""Overlapping windows: Spark makes a row of each row's windows, where the sites can do with the last one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from fluxen.spark.catalyst import Maker, identifier, identifiers, is_attribute, items
from fluxen.spark.compile.pieces import STAMPS, Piece, expanded

__all__ = ["Hopping", "hopping"]

_MOMENTS = (2**50, 2**50 + 1_234_567)
"""Event times at which windows are looked at, in microseconds."""


@dataclass(frozen=True, slots=True)
class Hopping:
    """The piece with the last of each row's windows; how many windows there are, and how far apart they start."""

    piece: Piece
    count: int
    slide: int


def hopping(piece: Piece, window: Any, read: Iterable[Any]) -> Hopping | None:
    """Where a column holds overlapping windows that nothing but the stage looks at, without those it can add itself.

    `read` are the other expressions that the stage reads. None where windows do not overlap, where their length is no
    multiple of their distance, or where what lies between is more than projections and filters.
    """
    number = identifier(window)
    if any(number in identifiers(one) for one in read):
        return None
    made = _without(piece.maker, piece.plan, number)
    return None if made is None else Hopping(replace(piece, plan=made[0]), *made[1])


def _without(maker: Maker, plan: Any, number: int) -> tuple[Any, tuple[int, int]] | None:
    """The plan with one row for all windows of a row, and how many there are and how far apart."""
    if plan.nodeName() == "Expand":
        return _last_only(maker, plan, number)
    if plan.nodeName() == "Project":
        entries = items(plan.projectList())
        made = next(one for one in entries if identifier(one) == number)
        if not is_attribute(made) and not is_attribute(made.child()):
            return None
        number = identifier(made if is_attribute(made) else made.child())
        looked = [one for one in entries if identifier(one) != identifier(made)]
    elif plan.nodeName() == "Filter":
        looked = [plan.condition()]
    else:
        return None
    if any(number in identifiers(one) for one in looked):
        return None
    (child,) = items(plan.children())
    below = _without(maker, child, number)
    return None if below is None else (maker.with_children(plan, [below[0]]), below[1])


def _last_only(maker: Maker, plan: Any, number: int) -> tuple[Any, tuple[int, int]] | None:
    windows = expanded(plan, number)
    others = [identifier(one) for one in items(plan.output()) if identifier(one) != number]
    if len(windows) < 2 or not all(_alike(expanded(plan, other)) for other in others):
        return None
    found = {_distance([_bounds(maker, one, moment) for one in windows], moment) for moment in _MOMENTS}
    (slide, *more) = found
    return None if more or slide is None else (maker.first_row(plan), (len(windows), slide))


def _alike(made: list[Any]) -> bool:
    return all(made[0].semanticEquals(other) for other in made[1:])


def _bounds(maker: Maker, window: Any, moment: int) -> tuple[int, int] | None:
    """The start and the end of the window of an event time; None where it is made of something else."""
    read = items(window.references().toSeq())
    if window.nodeName() != "CreateNamedStruct" or [one.dataType().typeName() in STAMPS for one in read] != [True]:
        return None
    found = maker.computed(window, moment)
    return None if found is None else (int(found.getLong(0)), int(found.getLong(1)))


def _distance(bounds: list[tuple[int, int] | None], moment: int) -> int | None:
    """How far apart windows of a moment start, the last one first, if they cover whatever that one does."""
    known = [one for one in bounds if one is not None]
    if len(known) < len(bounds):
        return None
    starts, sizes = [start for start, _ in known], {end - start for start, end in known}
    slide = starts[0] - starts[1]
    regular = slide > 0 and starts == [starts[0] - back * slide for back in range(len(starts))]
    covered = starts[0] <= moment < starts[0] + slide
    return slide if regular and covered and sizes == {len(starts) * slide} else None
