"""The relocation protocol's eight steps, told as events (Liu-05 section 5.1, Figure 13).

Between two micro-batches no row is under way, so most steps take no time here: deciding, pausing the inputs and
handing the groups over are one change of the routing table, committed with an epoch. What takes time is the receiver
reading the state it was given, which it does in the next batch. A relocation is therefore told in full one batch after
its move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluxen.control.events import Event
from fluxen.policies.base import Move, decode, describe, encode
from fluxen.state.record import SiteRecord

__all__ = ["STEPS", "Relocations"]

STEPS = (
    "ComputePartitionsToMove",
    "PartitionsToMove",
    "DeactivatePartitions",
    "Deactivated",
    "SendPartitions",
    "ReceivePartitions",
    "Received",
    "ReactivatePartitions",
)
"""1, 2: how much, which groups; 3, 4: their input pauses; 5, 6, 7: their state goes over; 8: their input resumes"""
_AT_THE_BOUNDARY = 6
"""Steps that are over when the epoch with the new routing table is committed."""


class Relocations:
    """Relocations whose receiver has not reported yet."""

    def __init__(self) -> None:
        self._open: list[tuple[Move, int, float]] = []
        self._ended: list[Event] = []

    def start(self, move: Move, size: int, now: float) -> None:
        self._open.append((move, size, now))

    def finish(self, records: Sequence[SiteRecord], now: float) -> None:
        """The batch after the moves has run; `records` tell how long the receivers read."""
        loading = {record.site: record.seconds.get("load", 0.0) for record in records}
        for move, size, started in self._open:
            received = min(started + loading.get(move.receiver, 0.0), now) if now >= started else started
            when = [started] * _AT_THE_BOUNDARY + [received] * (len(STEPS) - _AT_THE_BOUNDARY)
            steps = [{"step": i, "message": step, "when": t} for i, (step, t) in enumerate(zip(STEPS, when), start=1)]
            self._ended.append(
                Event(
                    id=0,
                    when=started,
                    last=received,
                    kind="relocation",
                    what=describe(move),
                    why=move.why,
                    outcome="done",
                    duration=received - started,
                    bytes=size,
                    detail={**encode(move), "steps": steps},
                )
            )
        self._open = []

    def new_events(self) -> list[Event]:
        ended, self._ended = self._ended, []
        return ended

    def snapshot(self) -> list[Any]:
        return [[encode(move), size, started] for move, size, started in self._open]

    def restore(self, state: Sequence[Any]) -> None:
        self._open = []
        for move, size, started in state:
            decoded = decode(move)
            assert isinstance(decoded, Move)
            self._open.append((decoded, size, started))
