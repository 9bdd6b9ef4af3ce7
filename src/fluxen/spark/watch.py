"""Waits for the end of a running query, and flushes while its input pauses."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from fluxen.engine.loop import Loop
from fluxen.state.store import Store

__all__ = ["planned_batch", "watch"]

IDLE_SECONDS = 1.0
"""How long a query waits without input before it emits what the watermark has closed."""
_LOOK_SECONDS = 0.5


def watch(stream: StreamingQuery, loop: Loop[Any], *, finite: bool) -> None:
    """Return when the stream has ended."""
    planned = planned_batch(loop.store)
    idle_since: float | None = None
    while stream.isActive:
        if stream.awaitTermination(_LOOK_SECONDS):
            return
        loop.statistics.keep_up()
        # a batch that Spark planned before the start may have been delivered under the next epoch's number
        idle = not stream.status["isDataAvailable"] and loop.epoch.batch >= planned
        if not idle or not loop.due():
            idle_since = None
        elif idle_since is None:
            idle_since = time.monotonic()
        elif time.monotonic() - idle_since > IDLE_SECONDS and not finite:
            loop.flush()


def planned_batch(store: Store) -> int:
    """The newest batch in Spark's own log; -1 before the first."""
    return max((int(name) for name in store.list("spark/offsets") if name.isdigit()), default=-1)
