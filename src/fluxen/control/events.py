"""The log of a stage's adaptations: one entry per adaptation or refusal.

Written by `fluxen.control.manager` only; a runtime stores the entries in its epochs and shows them to the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

__all__ = ["Event", "Outcome"]

Outcome: TypeAlias = Literal["running", "done", "failed", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """When, what and why; how it ended, how long it took and how many bytes it concerned.

    The id of an adaptation is that of its action; refusals have negative ids. `reason` says why it was refused or
    failed. The same refusal again and again is one entry: `count` says how often and `last` when it was last seen.
    """

    id: int
    when: float
    kind: str
    what: str
    why: str
    outcome: Outcome
    reason: str = ""
    duration: float = 0.0
    bytes: int = 0
    count: int = 1
    last: float = 0.0
    detail: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Event:
        return cls(**data)
