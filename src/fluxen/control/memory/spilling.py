"""Spill, unspill and cleanup as transitions of a stage's state: metadata of the next epoch, no rows.

The rows follow when the next epoch runs (`fluxen.site.generations`). When to do any of it is a policy's business, but
for two rules of the engine that keep results complete: rows that owe results when their window closes are cleaned up
then, and so is everything at the end of a finite query.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from fluxen.arrays import Floats
from fluxen.state import generations
from fluxen.state.epoch import Epoch, StageState
from fluxen.state.history import GroupHistory


def spill(state: StageState, groups: Iterable[int], epoch: int, held: Floats | None = None) -> StageState:
    """These groups' active state, of which each `held` so many bytes, becomes a generation on disk."""
    mask = generations.chosen(groups, state.routing.size)
    label = generations.spilled_label(epoch)
    segments = generations.relabeled(state.segments, mask, label, active_only=True)
    history = state.history
    if history is not None and held is not None:
        history = history.sized(len(mask)).to_disk(mask, held)
    return replace(state, segments=segments, history=history)


def cleanup(state: StageState, groups: Iterable[int], held: Floats | None = None) -> StageState:
    """The next epoch emits what these groups owe and leaves them on disk."""
    chosen = set(groups) - set(state.unspilling)
    history = state.history
    if history is not None and held is not None:
        mask = generations.chosen(chosen, state.routing.size)
        active = generations.active(state.segments, len(mask))  # of a group spilled just now, nothing is left to count
        history = history.sized(len(mask)).to_disk(mask, np.where(active, held, 0.0))
    return replace(state, cleaning=tuple(sorted({*state.cleaning, *chosen})), history=history)


def unspill(state: StageState, groups: Iterable[int]) -> StageState:
    """The next epoch emits what these groups owe and sees them again."""
    chosen = {*groups}
    return replace(
        state,
        cleaning=tuple(sorted({*state.cleaning} - chosen)),
        unspilling=tuple(sorted({*state.unspilling, *chosen})),
    )


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
