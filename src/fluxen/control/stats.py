"""Site records in, columnar statistics out: what a policy sees of a batch.

Every site writes one record per micro-batch (`fluxen.state.record`); `collect` sums them up with the stage's routing.
The columns are described in `fluxen.policies.base`.

>>> from fluxen.state.record import GroupStats
>>> from fluxen.state.routing import Routing
>>> state = StageState(routing=Routing.even(partitions=3, sites=2))
>>> record = SiteRecord(epoch=0, stage=0, site=1, groups=GroupStats(group=[2], worked=[7], bytes=[640]))
>>> stats = collect(state, [record])
>>> stats.site_bytes.tolist(), stats.rows_in.tolist()
([0.0, 640.0], [0.0, 0.0, 7.0])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from fluxen.arrays import Floats, Ints
from fluxen.policies.base import HotKeys, Stats
from fluxen.state import generations
from fluxen.state.epoch import StageState
from fluxen.state.record import SiteRecord

__all__ = ["collect", "per_group"]

NEGLIGIBLE = 0.05
"""Share of a batch's time below which even the slowest site's work is noise and counts as none."""

READING = ("load", "cleanup", "pack")
"""What sites do with state that is not where it was, of their activities."""


def collect(
    state: StageState,
    records: Sequence[SiteRecord],
    *,
    seconds: float = 0.0,
    waited: float = 0.0,
    capacity: Floats | None = None,
) -> Stats:
    """The statistics of a batch that took `seconds` in all, and began `waited` after the one before had ended.

    Groups nobody reported count zero; sites too.

    A group that two sites report, because it moved between them, is summed.
    """
    size, sites = state.routing.size, state.routing.sites
    reporting = np.array([record.site for record in records], dtype=np.int64)
    worked = np.array([record.busy_seconds for record in records], dtype=np.float64)
    if worked.max(initial=0.0) < NEGLIGIBLE * seconds:
        worked[:] = 0.0
    slowest = float(worked.max(initial=0.0))

    def per_site(values: Sequence[float] | Floats) -> Floats:
        return np.bincount(reporting, weights=values, minlength=sites).astype(np.float64)

    spilled, updated = _on_disk(state)
    return _with_copies(
        state,
        Stats.build(
            sites=sites,
            placement=state.routing.table,
            seconds=slowest,
            whole=seconds,
            waited=waited,
            keys=_keys(state, records),
            site_rows_in=per_site([sum(record.groups.worked) for record in records]),
            # what the disk owed is no sign of productivity
            site_rows_out=per_site([record.rows_out - record.rows_owed for record in records]),
            site_bytes=per_site([sum(record.groups.bytes) for record in records]),
            busy=per_site(worked),
            idle=per_site(slowest - worked),
            read=per_site([sum(record.seconds.get(name, 0.0) for name in READING) for record in records]),
            capacity=capacity,
            rows_in=per_group(records, "worked", size),
            rows_out=per_group(records, "rows_out", size),
            bytes=per_group(records, "bytes", size),
            spilled=spilled,
            backlog=per_group(records, "backlog", size),
            last_update=updated,
            rank=_ranks(records, size),
        ),
    )


def _keys(state: StageState, records: Sequence[SiteRecord]) -> HotKeys:
    routing = state.routing
    isolated = tuple(routing.own_groups().items())
    dealt = frozenset([*routing.dealt().tolist(), *routing.retired])
    hashes = np.array([h for record in records for h in record.heavy.key], dtype=np.int64)
    if len(hashes) == 0:
        return HotKeys(isolated=isolated, dealt=dealt)
    rows = np.array([n for record in records for n in record.heavy.arrived], dtype=np.float64)
    keys, at = np.unique(hashes, return_inverse=True)
    pg = routing.groups(keys).astype(np.int64)
    summed = np.bincount(at, weights=rows).astype(np.float64)
    return HotKeys(key=keys, pg=pg, rows=summed, isolated=isolated, dealt=dealt)


def per_group(records: Sequence[SiteRecord], name: str, size: int) -> Floats:
    """A column of what sites report of their groups, summed."""
    groups = _column(records, "group").astype(np.int64)
    return np.bincount(groups, weights=_column(records, name), minlength=size).astype(np.float64)


def _ranks(records: Sequence[SiteRecord], size: int) -> Ints:
    rank = np.full(size, -1, dtype=np.int64)
    np.maximum.at(rank, _column(records, "group").astype(np.int64), _column(records, "rank", -1).astype(np.int64))
    return rank


def _column(records: Sequence[SiteRecord], name: str, missing: int = 0) -> Floats:
    """One column of all records, one after the other; `missing` where a site has left it out."""
    parts = (getattr(record.groups, name) or [missing] * len(record.groups.group) for record in records)
    return np.array(list(chain.from_iterable(parts)), dtype=np.float64)


def _on_disk(state: StageState) -> tuple[Floats, Floats]:
    """Per group: bytes of generations on disk, and when it was last updated."""
    size = state.routing.size
    if state.history is None:
        return np.zeros(size), np.zeros(size)
    history = state.history.sized(size)
    on_disk = generations.on_disk(state.segments, size)
    return np.where(on_disk, np.maximum(history.spilled, 1.0), 0.0), history.updated


def _with_copies(state: StageState, stats: Stats) -> Stats:
    """Copies that the senders of moves keep count as moving: nobody moves them. Ids of ended ones hold nothing."""
    routing = state.routing
    if routing.size == routing.partitions + len(routing.explicit):
        return stats
    copies = np.ones(routing.size, dtype=np.bool_)
    copies[: routing.partitions] = False
    copies[routing.explicit_groups] = False
    ended = copies.copy()
    ended[[track.group for track in state.tracks]] = False
    return replace(
        stats,
        moving=stats.moving | copies,
        vacant=ended,
        bytes=np.where(ended, 0.0, stats.bytes),
        rows_in=np.where(ended, 0.0, stats.rows_in),
    )
