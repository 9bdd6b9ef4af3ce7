"""The queries of the soak test. Their rows (datagen/drift.py) never need more state: what grows is a fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["LAST", "QUERIES", "WINDOW", "WITHIN", "Soaked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """One query. `memory` is what a site may hold, as a share of what it would hold without a limit; `longer` is how
    many times as many batches it runs in process, where what it learns takes that long to be complete."""

    form: Literal["join", "tree", "tumbling", "last", "distinct"]
    inputs: int = 1
    policy: str = "Static"
    partitioner: str | None = None
    memory: float | None = None
    longer: int = 1


QUERIES: Mapping[str, Soaked] = {
    "join-local-disk": Soaked(form="join", inputs=2, policy="LocalDisk", memory=0.4),
    "join-lazy-disk": Soaked(form="join", inputs=3, policy="LazyDisk", memory=0.4),
    "join-active-disk": Soaked(form="join", inputs=2, policy="ActiveDisk", memory=0.4),
    "join-forecast-disk": Soaked(form="join", inputs=2, policy="ForecastDisk", memory=0.4),
    # one after the other every key is popular and gets a group of its own: some 4,700 batches until the last one has
    "tumbling": Soaked(form="tumbling", partitioner="Readj", longer=4),
    "last": Soaked(form="last", policy="FluxLoad"),
    "distinct": Soaked(form="distinct", policy="FluxMemory", memory=0.6),
    "tree": Soaked(form="tree", inputs=3, policy="FluxLoad"),
}
WITHIN = 20
"""Seconds of event time that joined rows may lie apart, and that distinct remembers a key."""
WINDOW = 10
"""Seconds of a tumbling window."""
LAST = 10
"""Rows per key that `last` averages over."""
