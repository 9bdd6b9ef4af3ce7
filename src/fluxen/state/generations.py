"""Generations of partition groups: which rows have met, and which combinations are still owed. Metadata only.

A spill does not touch a row: the group's part of every active segment becomes an inactive generation by a new entry in
the epoch, and rows that arrive later are the next active generation (Liu-07 section 3). Rows of one generation have met
each other; rows of different generations have not, so a group owes results as soon as it has two of them. A cleanup
makes them one again: on disk, or, when the group is brought back, active. The site's half, which packs what was spilled
and computes what is owed, is `fluxen.operators.spilling`.

Labels of generations grow with the epochs and no two generations of a group share one: a cleanup in epoch e leaves
2e + 1, a spill decided after epoch e makes 2e + 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from fluxen.state.routing import mask_of, ranges
from fluxen.state.segment import SegmentRef
from fluxen.typing import Mask

Groups = Iterable[int]


def cleaned_label(epoch: int) -> int:
    return 2 * epoch + 1


def spilled_label(epoch: int) -> int:
    return 2 * epoch + 2


def chosen(groups: Groups, size: int) -> Mask:
    mask = np.zeros(size, dtype=np.bool_)
    mask[list(groups)] = True
    return mask


def relabeled(refs: Sequence[SegmentRef], groups: Mask, label: int, *, active_only: bool) -> tuple[SegmentRef, ...]:
    """The same segments with these groups' rows in generation `label`; a shared segment is listed once per generation.

    >>> ref = SegmentRef(name="s", side=0, rows=9, bytes=9, crc=0, t_min=0, t_max=9, first_epoch=0, last_epoch=0,
    ...                  live=((0, 4),))
    >>> [(r.live, r.generation) for r in relabeled([ref], chosen([1, 2], 4), 8, active_only=True)]
    [(((0, 1), (3, 4)), 0), (((1, 3),), 8)]
    """
    result = []
    for ref in refs:
        live = mask_of(ref.live, len(groups))
        taken = live & groups
        if not taken.any() or (active_only and ref.generation):
            result.append(ref)
            continue
        if (live & ~taken).any():
            result.append(replace(ref, live=ranges(live & ~taken)))
        result.append(replace(ref, live=ranges(taken), generation=label))
    return tuple(result)


def on_disk(refs: Sequence[SegmentRef], size: int) -> Mask:
    """Groups with an inactive generation."""
    mask = np.zeros(size, dtype=np.bool_)
    for ref in refs:
        if ref.generation:
            mask |= mask_of(ref.live, size)
    return mask


def owing(refs: Sequence[SegmentRef], size: int) -> Mask:
    """Groups with rows in more than one generation: combinations across them have not been produced."""
    seen: dict[int, Mask] = {}
    if not any(ref.generation for ref in refs):
        return np.zeros(size, dtype=np.bool_)
    for ref in refs:
        live = mask_of(ref.live, size)
        seen[ref.generation] = seen[ref.generation] | live if ref.generation in seen else live
    count = np.zeros(size, dtype=np.int64)
    for mask in seen.values():
        count += mask
    return np.asarray(count > 1, dtype=np.bool_)


def expired(refs: Sequence[SegmentRef], horizons: Sequence[int], size: int) -> tuple[SegmentRef, ...]:
    """The segments without those nobody can meet any more; rows that still owe results are kept, however old."""
    owed: Mask | None = None
    kept = []
    for ref in refs:
        if ref.t_max >= horizons[ref.side]:
            kept.append(ref)
            continue
        if owed is None:
            owed = owing(refs, size)
        left = mask_of(ref.live, size) & owed
        if left.any():
            kept.append(replace(ref, live=ranges(left)))
    return tuple(kept)


def overdue(refs: Sequence[SegmentRef], horizons: Sequence[int], size: int) -> Mask:
    """Groups that hold rows beyond the horizon only because they owe results."""
    mask = np.zeros(size, dtype=np.bool_)
    for ref in refs:
        if ref.t_max < horizons[ref.side]:
            mask |= mask_of(ref.live, size)
    return mask & owing(refs, size) if mask.any() else mask
