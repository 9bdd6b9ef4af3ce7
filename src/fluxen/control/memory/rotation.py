"""Groups that take turns in memory: Flux's local round robin over partitions on disk (section 6).

Decided between two batches, per site. Groups beyond a site's memory leave it, those first that have been in memory
longest. Groups on disk come back in the order in which they left: while there is room, all of them; beyond that, by
swapping, up to `SWAPPED` of the memory in one batch. Their rows wait meanwhile (`fluxen.site.backlog`). Leaving
costs nothing, as segments are files already; coming back costs reading.

Guarantee: while a group is on disk, at least one group comes back in every batch, the one that has been out longest
first, so every group is back after at most as many batches as there are groups on disk.

>>> size = np.array([4.0, 4.0, 4.0])
>>> turns = Residence.everything(3)
>>> for epoch in range(3):
...     turns = rotated(turns, np.zeros(3, dtype=np.int32), size, np.array([8.0]), epoch)
...     print(turns.on_disk.tolist())
[True, False, False]
[False, True, False]
[False, False, True]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from fluxen.arrays import Floats, Groups, Ints, Mask
from fluxen.control.stats import per_group
from fluxen.policies.base import Stats
from fluxen.state.epoch import StageState
from fluxen.state.record import SiteRecord
from fluxen.state.residence import Residence

Memory: TypeAlias = int | Sequence[int]
"""Bytes of state a site may hold in memory: one size for all sites, or one for each."""
SWAPPED = 0.25
"""Share of a site's memory that one batch exchanges, a single group excepted."""


def rotated(
    before: Residence, table: Groups, size: Floats, capacity: Floats, epoch: int, pinned: Sequence[int] = ()
) -> Residence:
    """Where the groups are for the batch after `epoch`: `table` is each group's site, `size` the bytes of its state.

    Those that are `pinned` stay in memory; the others share what they leave.
    """
    pinned = list(pinned)
    before = before.sized(len(table))
    on_disk = before.on_disk & (size > 0)
    back = np.zeros(len(table), dtype=np.bool_)
    back[pinned], on_disk[pinned] = on_disk[pinned], False
    capacity = capacity - np.bincount(table[pinned], weights=size[pinned], minlength=len(capacity))
    size = size.copy()
    size[pinned] = 0.0  # which cannot leave
    turn = before.turn.copy()
    used = np.bincount(table, weights=np.where(on_disk, 0.0, size), minlength=len(capacity))
    pressed = used > capacity
    pressed[table[on_disk]] = True
    for site in np.flatnonzero(pressed).tolist():
        out, come = _turns(np.flatnonzero(table == site), on_disk, turn, size, float(capacity[site]))
        on_disk[out], on_disk[come] = True, False
        back[come] = True
        turn[[*out, *come]] = epoch
    return Residence(on_disk=on_disk, turn=turn, back=back)


def take_turns(state: StageState, records: Sequence[SiteRecord], memory: Memory, epoch: int) -> StageState:
    """The stage as the batch after `epoch` finds it, given what its sites said about their groups."""
    routing = state.routing
    size = per_group(records, "bytes", routing.size)
    before = state.residence or Residence.everything(routing.size)
    # rows that go to two sites cannot wait
    moving = sorted({group for track in state.tracks for group in (track.group, *track.owners(routing))})
    capacity = capacity_of(memory, routing.sites)
    return replace(state, residence=rotated(before, routing.table, size, capacity, epoch, moving))


def capacity_of(memory: Memory, sites: int) -> Floats:
    """Bytes per site; of several sizes, the last one counts for all further sites."""
    given = [memory] if isinstance(memory, int) else list(memory)
    return np.array([float(given[min(site, len(given) - 1)]) for site in range(sites)])


def _turns(mine: Ints, on_disk: Mask, turn: Ints, size: Floats, capacity: float) -> tuple[list[int], list[int]]:
    """One site: the groups that leave memory, and those that come back."""
    ordered = mine[np.lexsort((mine, turn[mine]))]
    inside = deque(int(group) for group in ordered if not on_disk[group] and size[group] > 0)
    outside = [int(group) for group in ordered if on_disk[group]]
    room = capacity - float(size[list(inside)].sum())
    out: list[int] = []
    come: list[int] = []

    def leave() -> None:
        nonlocal room
        out.append(inside.popleft())
        room += float(size[out[-1]])

    while room < 0 and len(inside) > 1:  # a group larger than the memory stays, alone
        leave()
    swapped = 0.0
    for group in outside:
        if size[group] > room:
            swapped += float(size[group])
            if come and swapped > SWAPPED * capacity:
                break
            while size[group] > room and inside:
                leave()
            if size[group] > room and come:
                break
        come.append(group)
        room -= float(size[group])
    return out, come


def with_disk(stats: Stats, residence: Residence) -> Stats:
    """The statistics as a policy should see them: state of groups on disk is not in memory."""
    on_disk = residence.sized(stats.groups).on_disk
    held, spilled = np.where(on_disk, 0.0, stats.bytes), np.where(on_disk, stats.bytes, 0.0)

    def per_site(values: Floats) -> Floats:
        return np.bincount(stats.placement, weights=values, minlength=stats.sites).astype(np.float64)

    return replace(stats, bytes=held, spilled=spilled, site_bytes=per_site(held), site_spilled=per_site(spilled))
