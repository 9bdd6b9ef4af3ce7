"""What users need to test their own queries.

`oracle` computes a query over all rows at once, in plain Python; `Bench` runs the engine in one process, with crashes
wherever a test wants them; `feed` and `feeds` (in `fluxen.spark.feed`) stream Arrow tables into Spark batch by batch;
`FakeClock` stands still until told otherwise.
"""

from __future__ import annotations

from typing import Any

from fluxen.testing import oracle
from fluxen.testing.bench import Bench, BenchStage, FaultyStore, SimulatedCrash
from fluxen.testing.stages import aggregate, distinct, join, stateful

__all__ = [
    "Bench",
    "BenchStage",
    "FakeClock",
    "FaultyStore",
    "SimulatedCrash",
    "aggregate",
    "distinct",
    "feed",
    "feeds",
    "join",
    "oracle",
    "stateful",
]


class FakeClock:
    """A clock that moves only when told.

    >>> clock = FakeClock(10.0)
    >>> clock.advance(2.5)
    >>> clock()
    12.5
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def __getattr__(name: str) -> Any:
    if name in ("feed", "feeds"):  # need Spark
        from fluxen.spark import feed

        return getattr(feed, name)
    raise AttributeError(f"module 'fluxen.testing' has no attribute {name!r}")
