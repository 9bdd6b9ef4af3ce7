"""Moves whose state is copied ahead: when to wait for the copy, and when to switch.

Where the checkpoint is not a disk that all hosts share, a receiver has to fetch a group's segments before it can serve
it. For a large group that would be one long batch. So the group stays with its donor while the receiver copies what
there is, a little per batch (`fluxen.site.copy_ahead`); once hardly anything is missing, the next epoch has the new
table, and only the tail is fetched at the switch. Generations on disk are not copied: they are fetched if and when they
are cleaned up or come back. Pure decisions; `fluxen.control.adaptation` carries them out.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxen.arrays import Floats
from fluxen.control.actions import Action
from fluxen.policies.base import Move
from fluxen.site.copy_ahead import LEAST
from fluxen.state.epoch import StageState
from fluxen.state.record import SiteRecord

TAIL = 1 << 20
"""Bytes that may be missing at the switch of what the receiver was asked to copy."""
MERGED = LEAST
"""Bytes that may have been merged into new files since it was asked."""
PATIENCE = 60.0
"""Seconds after which a move is carried out whatever is missing: state that grows faster than it is copied."""


def large(action: Action, held: Floats) -> bool:
    """Whether a move is worth copying ahead; `held` is what the receiver needs at once of each group."""
    move = action.suggestion
    return isinstance(move, Move) and float(held[list(move.pgs)].sum()) >= LEAST


def pairs(actions: Sequence[Action]) -> tuple[tuple[int, int], ...]:
    """(group, receiver) of moves: what receivers copy in the next batch."""
    moves = [action.suggestion for action in actions if isinstance(action.suggestion, Move)]
    return tuple((pg, move.receiver) for move in moves for pg in move.pgs)


def under_way(running: Sequence[Action], state: StageState) -> list[Action]:
    """Of all that is running, the moves that receivers were asked to copy."""
    asked = set(state.arriving)
    return [action for action in running if (wanted := pairs([action])) and asked.issuperset(wanted)]


def possible(action: Action, state: StageState) -> bool:
    """Whether the move still means what it meant: a restart may have spread the groups over other sites."""
    move = action.suggestion
    assert isinstance(move, Move)
    routing = state.routing
    return move.receiver < routing.sites and all(routing.table[pg] == move.donor for pg in move.pgs)


def arrived(action: Action, records: Sequence[SiteRecord], now: float) -> bool:
    """Whether to switch now: the receiver has all but the tail, or it has taken too long."""
    move = action.suggestion
    assert isinstance(move, Move)
    missing = {record.site: record.ahead_left for record in records}
    copied = missing.get(move.receiver, TAIL + 1) <= TAIL and _merged(move, records) <= MERGED
    return copied or now - action.started >= PATIENCE


def _merged(move: Move, records: Sequence[SiteRecord]) -> int:
    """Bytes of old rows of the groups that are in new files: others have merged them, and they must be copied again."""
    old = [
        ref
        for record in records
        if record.site != move.receiver
        for ref in record.added
        if ref.kind != "generation" and ref.first_epoch < record.epoch
    ]
    return sum(ref.bytes for ref in old if any(low <= pg < high for low, high in ref.live for pg in move.pgs))
