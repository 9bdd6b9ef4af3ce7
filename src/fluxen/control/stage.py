"""A query's stages as control sees them: a graph, in an order in which every stage comes after those that feed it."""

from __future__ import annotations

from dataclasses import dataclass

from fluxen.arrays import MAX_TIME, MIN_TIME
from fluxen.operators.base import Operator, Progress

__all__ = ["Feed", "Stage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Where the rows of one input of a stage come from: a source, or the results of an earlier stage."""

    stage: int | None = None
    """the stage whose results they are; None for a source"""
    time: str | None = None
    """which of that stage's result columns is their event time"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stateful stage of a query as the coordinator knows it."""

    operator: Operator
    lateness: tuple[int, ...]
    """per input, in microseconds"""
    feeds: tuple[Feed, ...] = ()
    """per input, where its rows come from; empty where all of them are sources"""
    idle: tuple[int | None, ...] = ()
    """per input: microseconds without a row after which it no longer holds the others back; None for never"""
    on_arrival: bool = False
    """rows have no event time and state expires: the time of a row is that of its batch"""

    @property
    def inputs(self) -> tuple[Feed, ...]:
        """Where the rows of each input come from."""
        return self.feeds or (Feed(),) * self.operator.inputs

    def unbounded(self, column: str) -> bool:
        """Whether a result column carries event times that may be as old as they like, however far the inputs are."""
        return self._anywhere().get(column) == MIN_TIME

    def timed(self, column: str | None) -> bool:
        """Whether a result column carries event times that the stage knows the progress of."""
        return column in self._anywhere()

    def _anywhere(self) -> dict[str, int]:
        here = (0,) * self.operator.inputs
        progress = Progress(watermarks=here, emitted=here, owed=(MAX_TIME,) * self.operator.sides)
        return self.operator.output_watermarks(progress)
