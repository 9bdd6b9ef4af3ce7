"""Commit records in, columnar statistics out.

A site writes one `SiteRecord` per micro-batch; `collect` merges them with the routing table into the `Stats` a policy
sees. The columns themselves are described in `fluxen.policies.base`.

>>> record = SiteRecord(site=1, busy=0.4, idle=0.1, rows_in=7, pg=[2], pg_rows_in=[7], pg_bytes=[640])
>>> stats = collect([record], sites=2, pg=[0, 1, 2], placement=[0, 0, 1], seconds=0.5)
>>> stats.site_bytes.tolist(), stats.rows_in.tolist()
([0.0, 640.0], [0.0, 0.0, 7.0])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fluxen.errors import ConfigError
from fluxen.policies.base import Floats, Ints, Stats

__all__ = ["SiteRecord", "collect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRecord:
    """What one site reports after one micro-batch. The pg_ columns are parallel to `pg`; an empty one counts as zeros.

    A site's own totals may exceed the sum over its groups (an operator's shared structures, say); where `bytes` or
    `spilled_bytes` is None the sum is taken.
    """

    site: int
    rows_in: float = 0
    rows_out: float = 0
    bytes: float | None = None
    spilled_bytes: float | None = None
    busy: float = 0.0
    idle: float = 0.0
    pg: ArrayLike = ()
    pg_rows_in: ArrayLike = ()
    pg_rows_out: ArrayLike = ()
    pg_bytes: ArrayLike = ()
    pg_spilled_bytes: ArrayLike = ()
    pg_last_update: ArrayLike = ()
    pg_backlog: ArrayLike = ()
    pg_rank: ArrayLike = ()


def collect(
    records: Iterable[SiteRecord],
    *,
    sites: int,
    pg: ArrayLike,
    placement: ArrayLike,
    seconds: float,
    capacity: ArrayLike | None = None,
) -> Stats:
    """Merge the commit records of one micro-batch. Groups nobody reported count zero; sites too.

    A group that two sites report, because it moved between them, is summed.
    """
    ids = np.asarray(pg, dtype=np.int64)
    reports = list(records)
    for record in reports:
        if not 0 <= record.site < sites:
            raise ConfigError(
                f"commit record of site {record.site}: the stage has sites 0..{sites - 1}; drop the record"
            )
    groups = [np.asarray(record.pg, dtype=np.int64) for record in reports]
    lengths = [len(part) for part in groups]
    site = np.repeat(np.array([record.site for record in reports], dtype=np.int64), lengths)
    rows = _rows(ids, np.concatenate([np.zeros(0, dtype=np.int64), *groups]), site)

    def column(name: str, missing: float = 0.0) -> Floats:
        return _column(reports, f"pg_{name}", lengths, missing)

    def per_group(values: Floats) -> Floats:
        return np.bincount(rows, weights=values, minlength=len(ids)).astype(np.float64)

    def per_site(name: str, values: Floats | None = None) -> Floats:
        """A site's own total where it gave one, otherwise the sum over its groups."""
        total = np.zeros(sites)
        if values is not None:
            silent = np.array([getattr(record, name) is None for record in reports], dtype=np.bool_)
            total += np.bincount(site, weights=values * np.repeat(silent, lengths), minlength=sites)
        for record in reports:
            total[record.site] += getattr(record, name) or 0.0
        return total

    held, spilled = column("bytes"), column("spilled_bytes")
    last = np.zeros(len(ids))
    np.maximum.at(last, rows, column("last_update"))
    rank = np.full(len(ids), -1, dtype=np.int64)
    np.maximum.at(rank, rows, column("rank", -1.0).astype(np.int64))
    return Stats.build(
        sites=sites,
        placement=placement,
        seconds=seconds,
        pg=ids,
        site_rows_in=per_site("rows_in"),
        site_rows_out=per_site("rows_out"),
        busy=per_site("busy"),
        idle=per_site("idle"),
        site_bytes=per_site("bytes", held),
        site_spilled=per_site("spilled_bytes", spilled),
        capacity=capacity,
        rows_in=per_group(column("rows_in")),
        rows_out=per_group(column("rows_out")),
        bytes=per_group(held),
        spilled=per_group(spilled),
        backlog=per_group(column("backlog")),
        last_update=last,
        rank=rank,
    )


def _column(reports: Sequence[SiteRecord], name: str, lengths: Sequence[int], missing: float) -> Floats:
    """One column of all records, one after the other: a few large operations instead of many small ones."""
    parts: list[Any] = []
    for record, size in zip(reports, lengths):
        values: Any = getattr(record, name)
        if len(values) == size:
            parts.append(values)
        elif len(values) == 0:
            parts.append(np.full(size, missing))
        else:
            raise ConfigError(
                f"commit record of site {record.site}: column {name} has {len(values)} entries for {size} groups; "
                "write one entry per group"
            )
    return np.concatenate([np.zeros(0), *parts]).astype(np.float64)


def _rows(ids: Ints, pgs: Ints, site: Ints) -> Ints:
    rows = np.searchsorted(ids, pgs)
    known = rows < len(ids)
    known[known] = ids[rows[known]] == pgs[known]
    if not known.all():
        bad = int(np.flatnonzero(~known)[0])
        raise ConfigError(
            f"commit record of site {site[bad]}: partition group {pgs[bad]} is not in the routing table; "
            "pass the table of the epoch the record belongs to"
        )
    return rows
