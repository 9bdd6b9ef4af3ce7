"""A site's shares of a batch: the groups it owns, and groups it only finishes because they moved by parallel track.

While such a move is under way, new rows of the group go to the receiver, which owns it, and to the sender, which keeps
a copy under a group id of its own (`fluxen.state.trees.Track`). Each share is processed by itself, with its own rows,
state and view of the routing, so a group that moves again before its first move has ended, even back to where it came
from, is just one more share. What a share's results are is the operator's business: a join leaves combinations of new
rows to the receiver, an aggregate per window leaves it whole windows. Moves begin and end in `fluxen.control.balance`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fluxen.operators.base import Input
from fluxen.state.epoch import StageState
from fluxen.state.routing import Routing
from fluxen.state.trees import Track
from fluxen.typing import Groups, Ints, Mask

WINDOW_END = "_w"


@dataclass(frozen=True, slots=True)
class Share:
    """What one site does in one batch for one set of groups."""

    before: StageState
    inputs: list[Input]
    tree: str = ""
    unlike: tuple[tuple[str, Mask], ...] = ()
    since: Ints | None = None
    """per group, the last epoch whose rows are old; None for groups the site owns"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackRouting(Routing):
    """Key hashes to copies of groups; whatever none of them covers belongs to a group that nobody owns."""

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


def shares(before: StageState, site: int, inputs: list[Input]) -> list[Share]:
    """The site's own groups first, then copies, as many at once as have one tree and no key in common."""
    found = [_own(before, site, inputs)]
    layers: dict[tuple[str, int], list[Track]] = {}
    for track in before.tracks:
        if before.routing.table[track.group] == site:
            layer = 0
            while any(other.partition == track.partition for other in layers.get((track.tree, layer), [])):
                layer += 1
            layers.setdefault((track.tree, layer), []).append(track)
    found.extend(_finishing(before, site, inputs, tuple(tracks)) for tracks in layers.values())
    return found


def _own(before: StageState, site: int, inputs: list[Input]) -> Share:
    if before.tracks:
        table = before.routing.table.copy()
        table[[track.group for track in before.tracks]] = -1
        before = replace(before, routing=replace(before.routing, table=table))
        inputs = [rows.take(_owned(before, site, rows)) for rows in inputs]
    tree, unlike = ("", ()) if before.trees is None else before.trees.at(site, before.routing)
    return Share(before, inputs, tree, unlike)


def _owned(before: StageState, site: int, rows: Input) -> Mask:
    mine: Mask = before.routing.sites_of(before.routing.groups(rows.h)) == site
    for track in before.tracks:
        if track.until is not None:  # the windows open when the move began stay with the sender
            mine = mine & ~(track.covers(rows.h, before.routing.partitions) & _windows(rows, track))
    return mine


def _finishing(before: StageState, site: int, inputs: list[Input], tracks: tuple[Track, ...]) -> Share:
    routing = before.routing
    table = np.full(routing.size + 1, -1, dtype=np.int32)
    since = np.full(routing.size + 1, -1, dtype=np.int64)
    for track in tracks:
        table[track.group] = site
        since[track.group] = track.since
    view = TrackRouting(
        partitions=routing.partitions,
        sites=routing.sites,
        table=table,
        explicit=np.zeros(0, dtype=np.int64),
        explicit_groups=np.zeros(0, dtype=np.int32),
        tracks=tracks,
    )
    mine = [rows.take(_covered(before, rows, tracks)) for rows in inputs]
    return Share(replace(before, routing=view), mine, tracks[0].tree, (), since)


def _covered(before: StageState, rows: Input, tracks: tuple[Track, ...]) -> Mask:
    mine = np.zeros(len(rows.h), dtype=np.bool_)
    for track in tracks:
        covered = track.covers(rows.h, before.routing.partitions)
        if track.until is not None:
            covered &= _windows(rows, track)
            for earlier in before.tracks:  # of a move before: its sender has the windows that were open then
                if earlier.until is not None and earlier.since < track.since:
                    covered &= ~(earlier.covers(rows.h, before.routing.partitions) & _windows(rows, earlier))
        mine |= covered
    return mine


def _windows(rows: Input, track: Track) -> Mask:
    """Rows of windows that the track's sender still owns."""
    assert track.until is not None
    end: Ints = rows.table.column(WINDOW_END).to_numpy() if len(rows.h) else rows.h
    return np.asarray(end <= track.until)
