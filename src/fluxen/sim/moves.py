"""State on the move: quiesce, extract, transfer, install, restart (Flux section 5.2).

The actions come from `fluxen.control.manager`. While a group is under way the producers keep its tuples in the skew
buffer and serve everybody else; a site that is busy with its disk neither starts nor completes a step of the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fluxen.control import Action
from fluxen.policies.base import Bools, Floats, Move
from fluxen.sim.cluster import Cluster
from fluxen.sim.disk import Disk
from fluxen.sim.flow import Flow

__all__ = ["Moves"]


@dataclass(slots=True, kw_only=True)
class _Transfer:
    action: Action
    groups: list[int]
    donor: int
    receiver: int
    stage: Literal["ask", "quiesce", "send", "install"] = "ask"
    ahead: float = 0.0  # tuples in the donor's connections when the group was paused
    left: float = 0.0  # bytes still to send
    ready: float = 0.0  # when extraction is done


class Moves:
    """All transfers under way."""

    def __init__(self, cluster: Cluster, flow: Flow, disk: Disk) -> None:
        self.cluster, self.flow, self.disk = cluster, flow, disk
        self._transfers: list[_Transfer] = []

    def begin(self, action: Action) -> None:
        move = action.suggestion
        if not isinstance(move, Move):
            raise NotImplementedError(f"the simulator carries out moves, not {move.kind}")
        self._transfers.append(
            _Transfer(action=action, groups=list(move.pgs), donor=move.donor, receiver=move.receiver)
        )

    def step(self, now: float, dt: float, taken: Floats, running: Bools) -> list[Action]:
        """Advance all transfers by one step; returns the actions that are complete."""
        if not self._transfers:
            return []
        sending = sum(t.stage == "send" for t in self._transfers)
        rate = min(self.cluster.pair_bandwidth, self.cluster.total_bandwidth / max(1, sending))
        for transfer in self._transfers:
            if transfer.stage == "ask":
                self._pause(transfer, running)
            elif transfer.stage == "quiesce":
                # what arrived before the pause is gone, or everything is (a full buffer may have stopped all input)
                transfer.ahead = min(transfer.ahead - taken[transfer.donor], self.flow.in_queue[transfer.donor])
                self._extract(transfer, now, running)
            elif transfer.stage == "send" and now >= transfer.ready:
                transfer.left -= rate * dt
                if transfer.left <= 0:
                    transfer.stage = "install"
            if transfer.stage == "install" and running[transfer.receiver]:
                self._install(transfer)
        done = [t for t in self._transfers if t.stage == "install" and not t.groups]
        self._transfers = [t for t in self._transfers if t not in done]
        return [t.action for t in done]

    def _pause(self, transfer: _Transfer, running: Bools) -> None:
        if not running[transfer.donor]:
            return
        self.flow.stalled[transfer.groups] = True
        self.disk.leaving[transfer.groups] = True
        for group in transfer.groups:
            if self.flow.on_disk[group]:
                self.disk.fetch(group)
        self.flow.flush(transfer.donor)
        self.flow.regroup()
        self.disk.recount()
        transfer.ahead = float(self.flow.in_queue[transfer.donor])
        transfer.stage = "quiesce"

    def _extract(self, transfer: _Transfer, now: float, running: Bools) -> None:
        groups = transfer.groups
        spooled = self.flow.on_disk[groups].any() or self.flow.spool[groups].sum() >= 1
        if transfer.ahead >= 0.5 or spooled or not running[transfer.donor]:
            return
        for group in groups:
            self.flow.settle(group)
        transfer.left = float(self.disk.size[groups].sum())
        took = self._copy_time(transfer)
        self.flow.debt[transfer.donor] += took
        transfer.ready = now + took
        transfer.stage = "send"

    def _install(self, transfer: _Transfer) -> None:
        self.flow.debt[transfer.receiver] += self._copy_time(transfer)
        self.flow.site[transfer.groups] = transfer.receiver
        self.flow.stalled[transfer.groups] = False
        self.disk.leaving[transfer.groups] = False
        transfer.groups = []
        self.flow.regroup()
        self.disk.recount()

    def _copy_time(self, transfer: _Transfer) -> float:
        tuples = float(np.sum(self.disk.size[transfer.groups])) / self.cluster.tuple_bytes
        return tuples * self.cluster.state_tuple_time
