"""Plans of a stage at a batch boundary: new trees for sites, and moves of groups by one of two protocols.

The optimizer (`fluxen.control.plans.optimizer`) says which tree a site should have; here the change becomes part of the
next epoch. A move suggested by the policy is carried out by moving state (MSLB) or by parallel track (PTLB), whichever
is predicted to be less work (`fluxen.control.moves.parallel_track` has what they do to the state). The protocols'
messages between the distribution manager and the sites become entries of the log; since a batch boundary is a quiescent
point, those that only wait for rows under way are due at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fluxen.arrays import Json
from fluxen.control.actions import Action
from fluxen.control.manager import Manager
from fluxen.control.moves.parallel_track import move_by_track, trackable
from fluxen.control.moves.relocation import STEPS as MSLB_STEPS
from fluxen.control.moves.rerouting import with_routing
from fluxen.control.plans.optimizer import Observed, Optimizer, price
from fluxen.errors import ConfigError, DamagedError
from fluxen.operators.base import Operator
from fluxen.policies.base import Move, Replan, Stats
from fluxen.state.epoch import StageState
from fluxen.state.record import SiteRecord
from fluxen.state.trees import intermediates, members, nodes, read, write

__all__ = ["MSLB_STEPS", "PTLB_STEPS", "MoveProtocol", "Prediction", "StagePlans"]

MoveProtocol = Literal["auto", "mslb", "ptlb"]
PTLB_STEPS = (
    "ComputePartitionsToMove",
    "PartitionsToMove",
    "DuplicatePartitions",
    "AllOldPurged",
    "DeletePartitions",
)
_AT_ONCE = {"mslb": 6, "ptlb": 3}
"""steps that are due when a move begins; the others follow when it ends"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Work of a move by each protocol, in probes; None where it is not possible."""

    mslb: float
    ptlb: float | None
    rows: float = 0.0
    """state rows that would move"""

    @property
    def better(self) -> Literal["mslb", "ptlb"]:
        return "ptlb" if self.ptlb is not None and self.ptlb < self.mslb else "mslb"


class StagePlans:
    """The plans of one stage."""

    def __init__(
        self, operator: Operator, *, move_protocol: MoveProtocol = "auto", replan: bool | Optimizer = True
    ) -> None:
        if move_protocol not in ("auto", "mslb", "ptlb"):
            raise ConfigError(f"move_protocol must be 'auto', 'mslb' or 'ptlb', got {move_protocol!r}")
        self.operator, self.move_protocol = operator, move_protocol
        self.replan = bool(replan) or isinstance(replan, Optimizer)
        self.optimizer = replan if isinstance(replan, Optimizer) else Optimizer()
        self._protocols: dict[int, str] = {}  # running moves
        self._rates: dict[int, float] = {}  # site -> rows per second of event time
        self._watermark: int | None = None

    # ---- what the sites saw

    def observe(self, state: StageState, records: Sequence[SiteRecord]) -> None:
        watermark = max(state.watermarks)
        passed = 0 if self._watermark is None else (watermark - self._watermark) / 1e6
        self._watermark = watermark
        sites = state.routing.sites
        self._rates = {site: rate for site, rate in self._rates.items() if site < sites}
        self.optimizer.forget(sites)
        for record in records:
            if "fanout" in record.observed:
                self.optimizer.observe(record.site, record.observed)
            if 0 < passed < 1e9:
                rate = sum(side.rows_in for side in record.sides) / passed
                known = self._rates.get(record.site, rate)
                self._rates[record.site] = known + self.optimizer.weight * (rate - known)

    # ---- trees

    def suggestions(self, state: StageState, now: float) -> list[Replan]:
        """Sites that would do better with another tree."""
        plans = self.operator.plans
        if state.trees is None or not self.replan or plans is None:
            return []
        found = []
        for site, tree in enumerate(state.trees.sites):
            better = self.optimizer.suggest(site, tree, now)
            if better is not None:
                new, old = (write(shape, plans.names) for shape in (better[0], read(tree)))
                why = f"{new} costs {better[1]:.0f} probes a batch, {old} {better[2]:.0f}"
                found.append(Replan(site=site, tree=write(better[0]), why=why))
        return found

    def why_not(self, state: StageState, suggestion: Replan) -> str:
        """Why a site cannot have the tree; empty if it can."""
        if state.trees is None:
            return "there is no join tree to change"
        try:
            asked = len(members(read(suggestion.tree)))
        except DamagedError as error:
            return str(error)
        return "" if asked == self.operator.inputs else f"the tree joins {asked} inputs of {self.operator.inputs}"

    def replanned(self, state: StageState, suggestion: Replan, now: float) -> StageState:
        assert state.trees is not None
        self.optimizer.changed(suggestion.site, now, state.trees.sites[suggestion.site])
        return replace(state, trees=state.trees.replanned(suggestion.site, read(suggestion.tree)))

    # ---- moves

    def move(
        self,
        state: StageState,
        action: Action,
        manager: Manager,
        *,
        epoch: int,
        now: float,
        stats: Stats,
        records: Sequence[SiteRecord],
        copied: bool = False,
    ) -> StageState | None:
        """Begin a move by the protocol that is asked for or predicted to be less work; None for a plain relocation.

        With `copied`, state that moves is to be copied ahead: the receiver recomputes what it lacks when it has it.
        """
        move = action.suggestion
        assert isinstance(move, Move)
        predicted = self.predict(state, move, stats, records)
        protocol = predicted.better if self.move_protocol == "auto" else self.move_protocol
        if predicted.ptlb is None or not all(trackable(state, group) for group in move.pgs):
            protocol = "mslb"
        detail = {
            "protocol": protocol,
            "predicted": {"mslb": predicted.mslb, "ptlb": predicted.ptlb},
            "receiver": move.receiver,
            "rows": predicted.rows,
        }
        if protocol == "ptlb":
            for group in move.pgs:
                state = move_by_track(
                    self.operator, state, group, move.receiver, epoch=epoch, action=action.id, now=now
                )
            manager.wait(action.id)
        else:
            if state.trees is None or copied:
                return None  # all state fits wherever it goes, or it is not there yet
            groups = np.array(move.pgs, dtype=np.int32)
            state = with_routing(state, state.routing.moved(groups, move.receiver))
        self._protocols[action.id] = protocol
        self._log(manager, action, protocol, range(_AT_ONCE[protocol]), now, detail)
        return state

    def conclude(self, state: StageState, records: Sequence[SiteRecord], manager: Manager, now: float) -> None:
        """Log and finish the moves that the last batch ended."""
        going = {track.action for track in state.tracks}
        running = {action.id for action in manager.running}
        self._protocols = {action: found for action, found in self._protocols.items() if action in running}
        for action in manager.running:
            protocol = self._protocols.get(action.id)
            if protocol is None or action.id in going:
                continue
            detail: Json = {"protocol": protocol}
            if protocol == "mslb":
                assert isinstance(action.suggestion, Move)
                receiver = action.suggestion.receiver
                detail["recomputed"] = sum(
                    record.observed.get("recomputed", 0) for record in records if record.site == receiver
                )
            steps = MSLB_STEPS if protocol == "mslb" else PTLB_STEPS
            self._log(manager, action, protocol, range(_AT_ONCE[protocol], len(steps)), now, detail)
            manager.finish(action.id, now)
            del self._protocols[action.id]

    def _log(self, manager: Manager, action: Action, protocol: str, steps: range, now: float, detail: Json) -> None:
        names = MSLB_STEPS if protocol == "mslb" else PTLB_STEPS
        for number in steps:
            manager.log_step(
                kind=protocol,
                what=f"step {number + 1} of {len(names)}: {names[number]}",
                why=f"move {action.id}: {action.suggestion.why}",
                now=now,
                detail={"move": action.id, "step": number + 1, "message": names[number], **detail},
            )

    def predict(self, state: StageState, move: Move, stats: Stats, records: Sequence[SiteRecord]) -> Prediction:
        """State to move and recompute, against the rows that both sites would process until the window has passed."""
        donor = next(record for record in records if record.site == move.donor)
        whole = max(float(stats.site_bytes[move.donor]), 1.0)
        shares = {group: float(stats.bytes[stats.index(group)]) / whole for group in move.pgs}
        costs, share = self.optimizer.costs, sum(shares.values())
        rate = self._rates.get(move.donor, 0.0) * share
        life = self.operator.lifetime()
        if state.trees is not None:
            seen = self.optimizer.seen.get(move.donor)
            parts = [self._takeover(state, group, move.receiver, donor, part, seen) for group, part in shares.items()]
            moved, made = sum(part[0] for part in parts), sum(part[1] for part in parts)
            work = costs.move * moved + made
            if life is None:
                return Prediction(mslb=work, ptlb=None, rows=moved)
            per_row = costs.probe
            if seen is not None and sum(seen.rows) > 0:
                tree = read(state.trees.sites[move.donor])
                results = costs.make * seen.made(members(tree))
                per_row = (price(tree, seen, costs) + results) / sum(seen.rows)
            return Prediction(mslb=work, ptlb=rate * life / 1e6 * per_row, rows=moved)
        work = costs.move * share * sum(side.state_rows for side in donor.sides)
        if life is None:
            return Prediction(mslb=work, ptlb=None)
        twice = rate * life / 1e6 * costs.probe
        # the receiver must know which keys the sender has seen, and these are its state
        return Prediction(mslb=work, ptlb=twice + work if self.operator.division == "keys" else twice)

    def _takeover(
        self, state: StageState, group: int, receiver: int, donor: SiteRecord, share: float, seen: Observed | None
    ) -> tuple[float, float]:
        """Rows of a group's states that match the receiver's tree, and the work to recompute the missing ones."""
        assert self.operator.plans is not None
        assert state.trees is not None
        costs = self.optimizer.costs
        rows = {found: donor.sides[side].state_rows * share for found, side in self.operator.plans.sides.items()}
        has = intermediates(read(state.trees.held_by(group)))
        tree = read(state.trees.sites[receiver])
        needed = intermediates(tree)
        moved = sum(n for found, n in rows.items() if len(found) == 1 or (found in has and found in needed))
        work = 0.0
        for node in nodes(tree):
            wanted = members(node)
            if node is tree or wanted in has:
                continue
            made = 0.0
            if seen is not None:
                made = max(rows[i,] * seen.partners(i, [j for j in wanted if j != i]) for i in wanted)
            rows[wanted] = made
            work += costs.probe * sum(rows[members(child)] for child in node) + (costs.make + costs.keep) * made
        return moved, work

    # ---- persistence

    def snapshot(self) -> Json:
        return {
            "optimizer": self.optimizer.snapshot(),
            "protocols": {str(action): protocol for action, protocol in self._protocols.items()},
            "rates": {str(site): rate for site, rate in self._rates.items()},
            "watermark": self._watermark,
        }

    def restore(self, state: Any) -> None:
        self.optimizer.restore(state["optimizer"])
        self._protocols = {int(action): str(protocol) for action, protocol in state["protocols"].items()}
        self._rates = {int(site): float(rate) for site, rate in state["rates"].items()}
        self._watermark = state["watermark"]
