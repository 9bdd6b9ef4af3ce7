"""Spill, unspill and cleanup as transitions of a stage's state: metadata of the next epoch, no rows.

The rows follow when the next epoch runs (`fluxen.site.generations`). When to do any of it is a policy's business, but
for two rules of the engine that keep results complete: rows that owe results when their window closes are cleaned up
then, and so is everything at the end of a finite query.

Of a join tree only the inputs' rows go to disk. What is kept between them follows from them, so a group that leaves
memory drops it, and one that comes back makes anew what its site's tree keeps, as one that moves to another tree does.

Copies that the senders of moves by parallel track keep do not spill: they only lose rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from fluxen.arrays import Floats, Mask
from fluxen.state import generations
from fluxen.state.epoch import Epoch, StageState
from fluxen.state.history import GroupHistory
from fluxen.state.routing import mask_of, ranges


def spill(state: StageState, groups: Iterable[int], epoch: int, held: Floats | None = None) -> StageState:
    """These groups' active state, of which each `held` so many bytes, becomes a generation on disk."""
    mask = generations.chosen(_apart(state, groups), state.routing.size)
    history = state.history
    if history is not None and held is not None:
        history = history.sized(len(mask)).to_disk(mask, held * _stored(state))
    state = _bare(state, mask)
    label = generations.spilled_label(epoch)
    segments = generations.relabeled(state.segments, mask, label, active_only=True)
    return replace(state, segments=segments, history=history)


def cleanup(state: StageState, groups: Iterable[int], held: Floats | None = None) -> StageState:
    """The next epoch emits what these groups owe and leaves them on disk."""
    chosen = _apart(state, groups) - set(state.unspilling)
    mask = generations.chosen(chosen, state.routing.size)
    history = state.history
    if history is not None and held is not None:
        active = generations.active(state.segments, len(mask))  # of a group spilled just now, nothing is left to count
        history = history.sized(len(mask)).to_disk(mask, np.where(active, held * _stored(state), 0.0))
    state = _bare(state, mask)
    return replace(state, cleaning=tuple(sorted({*state.cleaning, *chosen})), history=history)


def unspill(state: StageState, groups: Iterable[int]) -> StageState:
    """The next epoch emits what these groups owe and sees them again."""
    chosen = _apart(state, groups)
    return replace(
        _bare(state, generations.chosen(chosen, state.routing.size)),
        cleaning=tuple(sorted({*state.cleaning} - chosen)),
        unspilling=tuple(sorted({*state.unspilling, *chosen})),
    )


def _apart(state: StageState, groups: Iterable[int]) -> set[int]:
    """The groups without copies that senders of moves keep."""
    return {*groups} - {track.group for track in state.tracks}


def _bare(state: StageState, groups: Mask) -> StageState:
    """The state without what join trees keep between these groups' inputs."""
    if state.trees is None or not groups.any():
        return state
    segments = []
    for ref in state.segments:
        if ref.side >= state.trees.inputs:
            live = mask_of(ref.live, len(groups)) & ~groups
            if not live.any():
                continue
            ref = replace(ref, live=ranges(live))
        segments.append(ref)
    return replace(state, segments=tuple(segments), trees=state.trees.bare(groups))


def _stored(state: StageState) -> Floats:
    """Per group, the share of its active bytes that goes to disk, its rows being spread evenly over its segments."""
    size = state.routing.size
    if state.trees is None:
        return np.ones(size)
    whole, stored = np.zeros(size), np.zeros(size)
    for ref in state.segments:
        if ref.kind == "state":
            live = mask_of(ref.live, size)
            each = ref.bytes / max(int(live.sum()), 1)
            whole[live] += each
            stored[live] += each if ref.side < state.trees.inputs else 0.0
    return np.divide(stored, whole, out=np.ones(size), where=whole > 0)


def owing_groups(state: StageState) -> list[int]:
    return [int(group) for group in np.flatnonzero(generations.owing(state.segments, state.routing.size))]


def owes(epoch: Epoch) -> bool:
    """Whether generations on disk still owe results."""
    return any(owing_groups(stage) for stage in epoch.stages)


def cleaning_up(epoch: Epoch) -> Epoch:
    """The same epoch with everything that owes results due for cleanup, as a flush starts from it."""
    shown = epoch.stats.get("stages", [])
    stages = []
    for number, stage in enumerate(epoch.stages):
        held = np.zeros(stage.routing.size)
        seen = shown[number]["groups"]["bytes"][: len(held)] if number < len(shown) else []
        held[: len(seen)] = seen
        stages.append(cleanup(stage, owing_groups(stage), held))
    return replace(epoch, stages=tuple(stages))


def observed(state: StageState, rows_in: Floats, rows_out: Floats, now: float) -> StageState:
    """The state with what a batch says about the groups."""
    size = state.routing.size
    history = (state.history or GroupHistory.none(size)).sized(size)
    return replace(state, history=history.after(rows_in, rows_out, now))
