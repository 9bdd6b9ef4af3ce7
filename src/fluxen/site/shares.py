"""A site's shares of a batch: the groups it owns, and groups it only finishes because they moved by parallel track.

While such a move is under way, new rows of the group go to the receiver, which owns it, and to the sender, which keeps
a copy under a group id of its own (`fluxen.state.trees.Track`). Each share is processed by itself, with its own rows,
state and view of the routing, so a group that moves again before its first move has ended, even back to where it came
from, is just one more share. What a share's results are is the operator's business: a join leaves combinations of new
rows to the receiver, an aggregate per window whole windows, distinct whole keys. Moves begin and end in
`fluxen.control.moves.parallel_track`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fluxen.arrays import Groups, Ints, Mask
from fluxen.operators.base import Input
from fluxen.site.context import SiteContext
from fluxen.state.epoch import StageState
from fluxen.state.routing import Routing
from fluxen.state.sorted_run import SortedRun, open_runs, visible
from fluxen.state.trees import Track

Stays: TypeAlias = Callable[[Track, Input], Mask]
"""Which of the rows that a track covers are its sender's alone."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one site does in one batch for one set of groups."""

    before: StageState
    inputs: list[Input]
    tree: str = ""
    foreign_trees: tuple[tuple[str, Mask], ...] = ()
    old_until_epoch: Ints | None = None
    """per group, the last epoch whose rows are old; None for groups the site owns"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackRouting(Routing):
    """Key hashes to copies of groups; everything else belongs to a group without an owner."""

    tracks: tuple[Track, ...] = ()

    @property
    def copies(self) -> bool:
        return True

    def groups(self, h: Ints) -> Groups:
        found = np.full(len(h), self.size - 1, dtype=np.int32)
        for track in self.tracks:
            found[track.covers(h, self.partitions)] = track.group
        return found


def receives(before: StageState, site: int, h: Ints) -> Mask:
    """Which rows go to `site`: those of its own groups, and those it helps to finish."""
    mine: Mask = before.routing.sites_of(before.routing.groups(h)) == site
    for track in before.tracks:
        if before.routing.table[track.group] == site:
            mine = mine | track.covers(h, before.routing.partitions)
    return mine


def division(context: SiteContext) -> Stays | None:
    """How sender and receiver share the rows of a moving group; None if both process all of them.

    Both sites ask the same committed state, so that each row is one site's.
    """
    operator, before = context.operator, context.before
    if not before.tracks or operator.division == "results":
        return None
    held: dict[int, list[SortedRun]] = {}

    def stays(track: Track, rows: Input) -> Mask:
        sender = int(before.routing.table[track.group])
        view = _view(before, sender, (track,))
        if track.group not in held:
            refs = visible(before.segments, view, sender) if track.remains else []
            held[track.group] = open_runs(context.store, refs, view, sender)
        return operator.stays(rows, track, held[track.group], view.groups(rows.h), before.watermarks[0])

    return stays


def shares(before: StageState, site: int, inputs: list[Input], stays: Stays | None = None) -> list[Share]:
    """The site's own groups first, then copies, as many at once as have one tree and no key in common."""
    found = [_own(before, site, inputs, stays)]
    layers: dict[tuple[str, int], list[Track]] = {}
    for track in before.tracks:
        if before.routing.table[track.group] == site:
            layer = 0
            while any(other.partition == track.partition for other in layers.get((track.tree, layer), [])):
                layer += 1
            layers.setdefault((track.tree, layer), []).append(track)
    found.extend(_finishing(before, site, inputs, tuple(tracks), stays) for tracks in layers.values())
    return found


def _own(before: StageState, site: int, inputs: list[Input], stays: Stays | None) -> Share:
    if before.tracks:
        table = before.routing.table.copy()
        table[[track.group for track in before.tracks]] = -1
        inputs = [rows.take(_owned(before, site, rows, stays)) for rows in inputs]
        before = replace(before, routing=replace(before.routing, table=table))
    tree, foreign = ("", ()) if before.trees is None else before.trees.at(site, before.routing)
    return Share(before, inputs, tree, foreign)


def _owned(before: StageState, site: int, rows: Input, stays: Stays | None) -> Mask:
    mine: Mask = before.routing.sites_of(before.routing.groups(rows.h)) == site
    if stays is not None:
        for track in before.tracks:
            mine = mine & ~(track.covers(rows.h, before.routing.partitions) & stays(track, rows))
    return mine


def _finishing(
    before: StageState, site: int, inputs: list[Input], tracks: tuple[Track, ...], stays: Stays | None
) -> Share:
    view = _view(before, site, tracks)
    old_until = np.full(view.size, -1, dtype=np.int64)
    for track in tracks:
        old_until[track.group] = track.old_until_epoch
    mine = [rows.take(_covered(before, rows, tracks, stays)) for rows in inputs]
    return Share(replace(before, routing=view), mine, tracks[0].tree, (), old_until)


def _view(before: StageState, site: int, tracks: tuple[Track, ...]) -> TrackRouting:
    """The routing in which `site` has these copies and nothing else."""
    routing = before.routing
    table = np.full(routing.size + 1, -1, dtype=np.int32)
    table[[track.group for track in tracks]] = site
    return TrackRouting(
        partitions=routing.partitions,
        sites=routing.sites,
        table=table,
        explicit=np.zeros(0, dtype=np.int64),
        explicit_groups=np.zeros(0, dtype=np.int32),
        families=routing.families,
        tracks=tracks,
    )


def _covered(before: StageState, rows: Input, tracks: tuple[Track, ...], stays: Stays | None) -> Mask:
    mine = np.zeros(len(rows.h), dtype=np.bool_)
    for track in tracks:
        covered = track.covers(rows.h, before.routing.partitions)
        if stays is not None:
            covered &= stays(track, rows)
            for earlier in before.tracks:  # of a move before: its sender comes first
                if earlier.old_until_epoch < track.old_until_epoch:
                    covered &= ~(earlier.covers(rows.h, before.routing.partitions) & stays(earlier, rows))
        mine |= covered
    return mine
