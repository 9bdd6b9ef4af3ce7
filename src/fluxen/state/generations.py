"""Generations of partition groups: which rows have met, and which combinations are still owed. Metadata only.

A spill does not touch a row: the group's part of every active segment becomes an inactive generation by a new entry in
the epoch, and rows that arrive later are the next active generation (Liu-07 section 3). Rows of one generation have met
each other; rows of different generations have not, so two of them owe results if their times let them meet. A cleanup
makes them one again: on disk, or, when the group is brought back, active. The site's half, which packs what was spilled
and computes what is owed, is `fluxen.site.generations`.

Where the join has a window, debt ends with it. A generation that the watermark has passed is kept only while it owes;
then it is cleaned up once (`overdue`) and gone (`settled`).

Labels of generations grow with the epochs and no two generations of a group share one: a cleanup in epoch e leaves
2e + 1, a spill decided after epoch e makes 2e + 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fluxen.arrays import MIN_TIME, Floats, Ints, Mask
from fluxen.state.routing import mask_of, ranges
from fluxen.state.segment import SegmentRef

Groups = Iterable[int]


@dataclass(frozen=True, slots=True)
class Spans:
    """Sides and time ranges of segments, as columns."""

    side: Ints
    t_min: Ints
    t_max: Ints


Meets: TypeAlias = Callable[[SegmentRef, Spans], Mask]
"""Which of these segments may hold a row that joins with a row of the given one, judged by times."""


def whatever(one: SegmentRef, others: Spans) -> Mask:
    """For operators without time bounds: any two rows can meet."""
    return np.ones(len(others.side), dtype=np.bool_)


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
        if not taken.any() or (active_only and ref.kind != "state"):
            result.append(ref)
            continue
        if (live & ~taken).any():
            result.append(replace(ref, live=ranges(live & ~taken)))
        result.append(replace(ref, live=ranges(taken), kind="generation", generation=label))
    return tuple(result)


def active(refs: Sequence[SegmentRef], size: int) -> Mask:
    """Groups with active state."""
    mask = np.zeros(size, dtype=np.bool_)
    for ref in refs:
        if ref.kind == "state":
            mask |= mask_of(ref.live, size)
    return mask


def on_disk(refs: Sequence[SegmentRef], size: int) -> Mask:
    """Groups with an inactive generation."""
    mask = np.zeros(size, dtype=np.bool_)
    for ref in refs:
        if ref.kind == "generation":
            mask |= mask_of(ref.live, size)
    return mask


def owing(refs: Sequence[SegmentRef], size: int, meets: Meets = whatever) -> Mask:
    """Groups whose generations can still meet: combinations across them have not been produced."""
    owed = np.zeros(size, dtype=np.bool_)
    spilled = [ref for ref in refs if ref.kind == "generation"]  # of two generations, one is on disk
    if spilled:
        debts = Debts(refs, meets, size)
        for ref in spilled:
            owed |= debts.of(ref)
    return owed


class Debts:
    """Who owes what to whom, among segments that are compared with each other many times."""

    def __init__(self, refs: Sequence[SegmentRef], meets: Meets, size: int) -> None:
        self._meets, self._size = meets, size
        self._generation = np.array([ref.generation for ref in refs], dtype=np.int64)
        self._spans = Spans(
            *(np.array([getattr(ref, name) for ref in refs], dtype=np.int64) for name in ("side", "t_min", "t_max"))
        )
        self._live = np.array([mask_of(ref.live, size) for ref in refs]).reshape(len(refs), size)

    def of(self, ref: SegmentRef) -> Mask:
        """Groups in which rows of `ref` may still owe results: to rows of another generation that they can meet."""
        partners = (self._generation != ref.generation) & self._meets(ref, self._spans)
        return np.asarray(mask_of(ref.live, self._size) & self._live[partners].any(axis=0), dtype=np.bool_)


def settled(refs: Sequence[SegmentRef], label: int, horizons: Sequence[int]) -> list[SegmentRef]:
    """The segments without rows of the generation that a cleanup left, as far as they were dead before it.

    Whatever was there met them in the cleanup, and what has come since is too young to meet them. Rows that came with
    the cleanup's own batch are not of that generation: they saw nothing of it, and may owe however old they are.
    """
    return [ref for ref in refs if ref.generation != label or ref.t_max >= horizons[ref.side]]


def expired(
    refs: Sequence[SegmentRef], horizons: Sequence[int], size: int, meets: Meets = whatever
) -> tuple[SegmentRef, ...]:
    """The segments without those nobody can meet any more; rows that may still owe results are kept, however old."""
    dead = [ref.t_max < horizons[ref.side] for ref in refs]
    if not any(dead) or not any(ref.kind == "generation" for ref in refs):
        return tuple(ref for ref, gone in zip(refs, dead) if not gone)
    debts = Debts(refs, meets, size)
    kept = []
    for ref, gone in zip(refs, dead):
        left = debts.of(ref) if gone else None
        if left is None or left.any():
            kept.append(ref if left is None else replace(ref, live=ranges(left)))
    return tuple(kept)


def overdue(refs: Sequence[SegmentRef], horizons: Sequence[int], size: int) -> Mask:
    """Groups to clean up, because rows beyond the horizon are there only for what they owe.

    That is so once a generation on disk lies beyond it as a whole. A cleanup leaves one generation of all the rows
    there are, so it is due again a window later, not whenever the next segment dies. Where one side never dies (a bound
    to one side only), it is due when half of a group's rows are dead: each row pays for about one cleanup.
    """
    dying = [horizon > MIN_TIME for horizon in horizons]
    dead: dict[int, Mask] = {}
    alive: dict[int, Mask] = {}
    rows, useless = np.zeros(size), np.zeros(size)
    for ref in refs:
        gone, live = ref.t_max < horizons[ref.side], mask_of(ref.live, size)
        each = ref.rows / max(int(live.sum()), 1)
        rows[live] += each
        useless[live] += each if gone else 0.0
        if ref.kind == "generation" and dying[ref.side]:
            known = (dead if gone else alive).setdefault(ref.generation, np.zeros(size, dtype=np.bool_))
            known |= live
    mask = np.asarray((useless > 0) & (2 * useless >= rows) & (not all(dying)), dtype=np.bool_)
    for generation, groups in dead.items():
        mask |= groups & ~alive[generation] if generation in alive else groups
    return mask


def left_on_disk(before: Sequence[SegmentRef], after: Sequence[SegmentRef], size: int) -> Floats:
    """Per group, the share of the rows on disk in `before` that is still there in `after`, as far as counts tell.

    A segment's rows are taken to be spread evenly over its groups: exact where nothing or everything is left.
    """
    kept: dict[tuple[str, int], Mask] = {}
    for ref in after:
        if ref.kind == "generation":  # a file is listed once for each of the generations that were made one
            known = kept.setdefault((ref.id, ref.generation), np.zeros(size, dtype=np.bool_))
            known |= mask_of(ref.live, size)
    had, has = np.zeros(size), np.zeros(size)
    for ref in before:
        if ref.kind == "generation":
            live = mask_of(ref.live, size)
            rows = ref.rows / max(int(live.sum()), 1)
            had[live] += rows
            still = kept.get((ref.id, ref.generation))
            if still is not None:
                has[live & still] += rows
    return np.divide(has, had, out=np.zeros(size), where=had > 0)
