"""What users need to test their own queries.

`oracle` computes a query over all rows at once, in plain Python; `LocalEngine` runs the engine in one process, with
crashes wherever a test wants them; `feed` and `feeds` (in `fluxen.testing.streams`) stream Arrow tables into Spark
batch by batch; `FakeClock` stands still until told otherwise."""

from __future__ import annotations

from typing import Any

from fluxen.local.aggregates import aggregate
from fluxen.local.engine import LocalEngine, LocalStage
from fluxen.local.stages import deduplicated, distinct, join, stateful, union
from fluxen.local.top import top
from fluxen.testing import oracle
from fluxen.testing.clock import FakeClock
from fluxen.testing.faults import FaultyStore, SimulatedCrash

__all__ = [
    "FakeClock",
    "FaultyStore",
    "LocalEngine",
    "LocalStage",
    "SimulatedCrash",
    "aggregate",
    "deduplicated",
    "distinct",
    "feed",
    "feeds",
    "join",
    "oracle",
    "stateful",
    "top",
    "union",
]


def __getattr__(name: str) -> Any:
    if name in ("feed", "feeds"):  # need Spark
        from fluxen.testing import streams

        return getattr(streams, name)
    raise AttributeError(f"module 'fluxen.testing' has no attribute {name!r}")
