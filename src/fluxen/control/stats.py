"""Commit records in, columnar statistics out.

A site writes one `SiteRecord` per micro-batch; `collect` merges them with the routing table into the `Stats` a policy
sees. The columns themselves are described in `fluxen.policies.base`.

>>> record = SiteRecord(site=1, busy=0.4, idle=0.1, rows_in=7, pg=[2], pg_rows_in=[7], pg_bytes=[640])
>>> stats = collect([record], sites=2, pg=[0, 1, 2], placement=[0, 0, 1], seconds=0.5)
>>> stats.site_bytes.tolist(), stats.rows_in.tolist()
([0.0, 640.0], [0.0, 0.0, 7.0])
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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


_COLUMNS = ("rows_in", "rows_out", "bytes", "spilled_bytes", "backlog")


def collect(
    records: Iterable[SiteRecord],
    *,
    sites: int,
    pg: ArrayLike,
    placement: ArrayLike,
    seconds: float,
    capacity: ArrayLike | None = None,
) -> Stats:
    """Merge the commit records of one micro-batch. Groups nobody reported count zero; sites too."""
    ids = np.asarray(pg, dtype=np.int64)
    table = {name: np.zeros(len(ids)) for name in _COLUMNS}
    last = np.zeros(len(ids))
    rank = np.full(len(ids), -1, dtype=np.int64)
    totals = np.zeros((4, sites))
    extra = np.zeros((2, sites))
    for record in records:
        if not 0 <= record.site < sites:
            raise ConfigError(
                f"commit record of site {record.site}: the stage has sites 0..{sites - 1}; drop the record"
            )
        totals[:, record.site] += record.rows_in, record.rows_out, record.busy, record.idle
        rows = _rows(ids, np.asarray(record.pg, dtype=np.int64), record.site)
        for name in _COLUMNS:
            column = _column(record, name, len(rows))
            np.add.at(table[name], rows, column)  # a group that is moving may be reported by two sites
            if name == "bytes":
                extra[0, record.site] += column.sum() if record.bytes is None else record.bytes
            elif name == "spilled_bytes":
                extra[1, record.site] += column.sum() if record.spilled_bytes is None else record.spilled_bytes
        np.maximum.at(last, rows, _column(record, "last_update", len(rows)))
        if np.size(record.pg_rank):
            rank[rows] = np.asarray(record.pg_rank, dtype=np.int64)
    return Stats.build(
        sites=sites,
        placement=placement,
        seconds=seconds,
        pg=ids,
        site_rows_in=totals[0],
        site_rows_out=totals[1],
        busy=totals[2],
        idle=totals[3],
        site_bytes=extra[0],
        site_spilled=extra[1],
        capacity=capacity,
        rows_in=table["rows_in"],
        rows_out=table["rows_out"],
        bytes=table["bytes"],
        spilled=table["spilled_bytes"],
        backlog=table["backlog"],
        last_update=last,
        rank=rank,
    )


def _column(record: SiteRecord, name: str, size: int) -> Floats:
    values = np.asarray(getattr(record, f"pg_{name}"), dtype=np.float64)
    if len(values) == 0:
        return np.zeros(size)
    if len(values) != size:
        raise ConfigError(
            f"commit record of site {record.site}: column pg_{name} has {len(values)} entries for {size} groups; "
            "write one entry per group"
        )
    return values


def _rows(ids: Ints, pgs: Ints, site: int) -> Ints:
    rows = np.searchsorted(ids, pgs)
    known = rows < len(ids)
    known[known] = ids[rows[known]] == pgs[known]
    if not known.all():
        raise ConfigError(
            f"commit record of site {site}: partition group {int(pgs[~known][0])} is not in the routing table; "
            "pass the table of the epoch the record belongs to"
        )
    return rows
