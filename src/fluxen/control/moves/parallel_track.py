"""Moves of partition groups between sites with unlike plans, as changes from one epoch to the next.

Two protocols (Zhu and Rundensteiner). *Moving state* (MSLB, section 4): the next epoch gives the group to the receiver,
which keeps the states both trees have, discards the others and recomputes what it lacks. Here that is a change of the
routing table and needs no code: `fluxen.operators.join.tree` notices states built for another tree. *Parallel track*
(PTLB, section 3): the receiver starts with nothing, new rows go to both, and the sender finishes what involves old rows
until the window has purged them; `start_track` and `finish_tracks` are the two ends of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fluxen.errors import ConfigError
from fluxen.operators.base import Operator
from fluxen.state.epoch import StageState
from fluxen.state.routing import base_group, mask_of, ranges
from fluxen.state.segment import SegmentRef
from fluxen.state.trees import Track

__all__ = ["finish_tracks", "move_by_track", "start_track", "trackable"]


def start_track(
    state: StageState,
    group: int,
    receiver: int,
    *,
    epoch: int,
    action: int = 0,
    now: float = 0.0,
    until: int | None = None,
    remains: bool = False,
) -> StageState:
    """Give `group` to `receiver` without its state; its owner so far keeps that as a copy to finish.

    `epoch` is the last one whose rows are old. With `until`, the sender also keeps all windows that end by then;
    with `remains`, the group's owner takes over in the end what the sender has kept since.
    """
    if not trackable(state, group):
        return state
    routing = state.routing
    if group >= routing.partitions and group not in routing.explicit_groups:
        raise ConfigError(f"group {group} is a copy that a move keeps; only groups with rows of their own move")
    copy = _free_id(state)
    table = routing.table if copy < routing.size else np.append(routing.table, np.int32(0))
    table = table.copy()
    table[copy], table[group] = routing.table[group], receiver
    heavy = np.flatnonzero(routing.explicit_groups == group)
    key = int(routing.explicit[heavy[0]]) if len(heavy) else None
    partition = group if key is None else int(base_group(np.array([key]), routing.partitions)[0])
    track = Track(
        group=copy,
        of=group,
        partition=partition,
        key=key,
        without=() if key is not None else _heavy_keys(state, partition),
        old_until_epoch=epoch,
        tree="" if state.trees is None else state.trees.held_by(group),
        receiver=receiver,
        action=action,
        until=until,
        remains=remains,
        started=now,
    )
    following = replace(routing, table=table)
    trees = state.trees
    if trees is not None:
        trees = trees.routed(routing, following).emptied(group, receiver)
    return replace(
        state,
        routing=following,
        segments=_handed_over(state.segments, group, copy, len(table)),
        trees=trees,
        tracks=(*state.tracks, track),
        residence=None if state.residence is None else state.residence.sized(len(table)).kept((group, copy)),
    )


def trackable(state: StageState, group: int) -> bool:
    """Whether the group has nothing that sender and receiver would both lay claim to.

    Rows that wait are neither old nor new yet, and generations on disk owe results to whatever comes.
    """
    apart = [*state.buffer, *(ref for ref in state.segments if ref.kind == "generation")]
    return not any(low <= group < high for ref in apart for low, high in ref.live)


def _handed_over(refs: Sequence[SegmentRef], group: int, copy: int, size: int) -> tuple[SegmentRef, ...]:
    """The segments with the rows of `group` counting for its `copy`."""
    segments = []
    for ref in refs:
        live, written = mask_of(ref.live, size), mask_of(ref.written or (), size)
        live[copy], live[group] = live[group], False
        written[copy] = written[group]
        if live.any():
            segments.append(replace(ref, live=ranges(live), written=ranges(written)))
    return tuple(segments)


def finish_tracks(state: StageState, inputs: int) -> StageState:
    """Delete the copies whose old rows are all gone; what remains goes to the groups' owners."""
    ended = [track for track in state.tracks if _purged(state, track, inputs)]
    if not ended:
        return state
    gone = [track.group for track in ended]
    segments = []
    for ref in state.segments:
        live = mask_of(ref.live, state.routing.size)
        for track in ended:
            if track.remains and live[track.group]:
                live[track.owners(state.routing)] = True
        live[gone] = False
        if live.any():
            written = mask_of(ref.written or (), state.routing.size) | live
            segments.append(replace(ref, live=ranges(live), written=ranges(written)))
    tracks = tuple(track for track in state.tracks if track not in ended)
    return replace(state, segments=tuple(segments), tracks=tracks)


def _purged(state: StageState, track: Track, inputs: int) -> bool:
    """Whether no old row of an input is left; what was made of old rows cannot outlive them."""
    held = [ref for ref in state.segments if mask_of(ref.live, state.routing.size)[track.group]]
    if track.until is not None:
        return not held and state.emitted[0] >= track.until
    return not any(ref.side < inputs and ref.first_epoch <= track.old_until_epoch for ref in held)


def _free_id(state: StageState) -> int:
    """A group id that neither a group nor a copy uses: ids of ended tracks are taken again."""
    routing = state.routing
    used = {*routing.explicit_groups.tolist(), *(track.group for track in state.tracks)}
    return next(i for i in range(routing.partitions, routing.size + 1) if i not in used)


def _heavy_keys(state: StageState, partition: int) -> tuple[int, ...]:
    routing = state.routing
    inside = base_group(routing.explicit, routing.partitions) == partition
    return tuple(int(h) for h in routing.explicit[inside])


def move_by_track(operator: Operator, state: StageState, group: int, receiver: int, **noted: Any) -> StageState:
    """Start a move by parallel track the way this operator needs it."""
    if operator.lifetime() is None:
        raise ConfigError(
            f"group {group} cannot move by parallel track: the rows of {operator.identity()['operator']} never expire, "
            "so it would never end; move it with its state"
        )
    until = None
    if operator.division == "windows":
        times = [ref.t_max for ref in state.segments if mask_of(ref.live, state.routing.size)[group]]
        # an open window belongs to one site as a whole
        until = max([state.watermarks[0], *times])
    return start_track(state, group, receiver, until=until, remains=operator.division == "keys", **noted)
