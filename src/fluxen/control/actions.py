"""A suggestion the manager let through, and what it does to the routing table.

The suggestions themselves are in `fluxen.policies.base`; the runtimes carry actions out and tell
`fluxen.control.manager.Manager.finish` when they are done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluxen.policies.base import Ints, Move, Repartition, Suggestion, decode, encode

__all__ = ["Action", "next_placement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One adaptation under way. `bytes` is the size expected from the statistics; `finish` may correct it."""

    id: int
    suggestion: Suggestion
    started: float
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "suggestion": encode(self.suggestion),
            "started": self.started,
            "bytes": self.bytes,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Action:
        return cls(
            id=data["id"],
            suggestion=decode(data["suggestion"]),
            started=data["started"],
            bytes=data["bytes"],
        )


def next_placement(pg: Ints, placement: Ints, actions: Iterable[Action]) -> Ints:
    """The routing table after these actions; the given one is left alone.

    >>> move = Action(id=1, suggestion=Move(pgs=(5,), donor=0, receiver=1, why=""), started=0.0, bytes=0)
    >>> next_placement(np.array([0, 5]), np.array([0, 0]), [move]).tolist()
    [0, 1]
    """
    table = np.array(placement, dtype=np.int64)
    for action in actions:
        suggestion = action.suggestion
        if isinstance(suggestion, Move):
            table[np.searchsorted(pg, np.asarray(suggestion.pgs, dtype=np.int64))] = suggestion.receiver
        elif isinstance(suggestion, Repartition):
            for group, site in suggestion.placement:
                table[pg == group] = site
    return table
