"""Further event times that a join's inputs bring along from the stages before them.

A result of a join of a and b has the times of both. A stage behind that joins it by b's with a third stream still has
a's among its results, and as a's is not far from b's, it knows how far that one has come as well.

>>> more = Carried(name="first_a_ts", side=0, later=-30, earlier=0)
>>> known = distances(((0, -5), (-5, 0)), {"first_b_ts": 0, "c_ts": 1}, [more])
>>> known["c_ts", "first_a_ts"], known["first_a_ts", "c_ts"]
(-35, -5)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fluxen.arrays import UNBOUNDED
from fluxen.operators.join.probe import Bounds
from fluxen.operators.join.reduction import at_least
from fluxen.operators.join.tightest import closure

__all__ = ["Carried", "carried_along", "distances"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A result column that holds an event time which an input goes by only in so far as it is near its own."""

    name: str
    side: int
    later: int
    """how much later than the input's own event time it is, at least"""
    earlier: int
    """how much later the input's own is, at least"""


def carried_along(times: Sequence[int], carried: Sequence[Carried]) -> dict[str, int]:
    """What no result to come lies below, given that for the sides' own event times."""
    return {one.name: at_least(times[one.side], one.later) for one in carried}


def distances(low: Bounds, timed: Mapping[str, int], carried: Sequence[Carried]) -> dict[tuple[str, str], int]:
    """`Operator.distances` of a join: `timed` are the result columns with the sides' own event times."""
    size = len(low) + len(carried)
    between = [[0 if i == j else -UNBOUNDED for j in range(size)] for i in range(size)]
    for i, row in enumerate(low):
        between[i][: len(row)] = row
    nodes = dict(timed)
    for at, one in enumerate(carried, start=len(low)):
        between[one.side][at], between[at][one.side] = one.later, one.earlier
        nodes[one.name] = at
    tight = closure(tuple(tuple(row) for row in between))
    found = {(a, b): tight[i][j] for a, i in nodes.items() for b, j in nodes.items() if a != b}
    return {pair: apart for pair, apart in found.items() if apart > -UNBOUNDED // 2}
