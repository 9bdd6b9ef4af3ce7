"""Static: the baseline that never adapts, as a conventional partitioned plan would not.

Its lively counterpart is `fluxen.policies.random`; both are there to be compared with.

>>> from fluxen.policies.base import Stats
>>> Static().suggest(Stats.build(sites=2, placement=[0, 0, 1], busy=[1, 0], idle=[0, 1]), now=1.0)
()
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxen.policies.base import Policy, Stats, Suggestion

__all__ = ["Static"]


class Static(Policy):
    """Suggests nothing.

    Example::

        query.adapt(policy="static")
    """

    relocates = False

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        return ()
