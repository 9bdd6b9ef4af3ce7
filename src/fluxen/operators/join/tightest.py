"""What bounds on some pairs of inputs say of all pairs."""

from __future__ import annotations

from fluxen.arrays import UNBOUNDED
from fluxen.operators.join.probe import Bounds

__all__ = ["closure"]


def closure(low: Bounds) -> Bounds:
    """Tightest lower bounds on t_j - t_i implied by the given ones (upper bounds are their mirror image).

    Shortest paths over the difference constraints: what b - a and c - a allow also limits c - b.

    >>> closure(((0, -60, -60), (-60, 0, -(2**60)), (-60, -(2**60), 0)))[1][2]
    -120
    """
    size = len(low)
    tight = [[max(bound, -UNBOUNDED) for bound in row] for row in low]
    for k in range(size):
        for i in range(size):
            for j in range(size):
                tight[i][j] = max(tight[i][j], tight[i][k] + tight[k][j], -UNBOUNDED)
    return tuple(tuple(row) for row in tight)
