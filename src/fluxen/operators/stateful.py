"""User code over partition groups: the four calls Flux asks of an operator whose state can move (section 5.1).

A `GroupOperator` keeps state per partition group. For each micro-batch the site gives it the state of the groups that
have new rows (`install`), the rows (`process`), and takes the state back (`extract`); `info` reports sizes. State
travels and rests as Arrow tables, never as pickles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from fluxen.errors import QueryError
from fluxen.operators.aggregate import latest
from fluxen.operators.base import Progress, SiteBatch
from fluxen.operators.columns import boundaries, total_order
from fluxen.typing import MIN_TIME, Groups, Ints, Json


@runtime_checkable
class GroupOperator(Protocol):
    """User code. One object serves all groups of a site during a batch; it must not remember anything else."""

    @property
    def schema(self) -> Any:
        """Schema of the results, as anything PySpark takes: a DDL string or a StructType."""

    def process(self, group: int, rows: pa.Table) -> pa.Table | None:
        """New rows of one group, ordered by key, event time and values; returns results."""

    def extract(self, group: int) -> pa.Table | None:
        """The group's state."""

    def install(self, group: int, state: pa.Table | None) -> None:
        """Take over a group's state; None for a group never seen."""

    def info(self, group: int) -> Mapping[str, int]:
        """Sizes people want to see: at least `rows`."""


@dataclass(frozen=True, kw_only=True)
class Stateful:
    """Runs a `GroupOperator`; a group's state is one row of bytes per version, the newest counts."""

    operator: GroupOperator
    columns: tuple[tuple[str, pa.DataType | None], ...]
    """columns the user's code sees; the event-time column comes with its type"""
    ties: tuple[str, ...]
    results: pa.Schema
    described: Json
    shadows: bool = True
    inputs: int = 1
    sides: int = 1

    def identity(self) -> Json:
        return {"operator": "stateful", **self.described}

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        return (MIN_TIME,)

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        return {}  # nobody knows what user code makes of the times it sees

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        whole = pa.concat_tables(tables).combine_chunks()
        h = whole.column("_h").to_numpy()
        age = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
        order = np.lexsort((-age, h))
        return whole.take(pa.array(order[boundaries(h[order])]))

    def process(self, batch: SiteBatch) -> Iterator[pa.Table]:
        rows = batch.inputs[0]
        if len(rows.h) == 0:
            return
        rows = rows.take(total_order(rows.h, rows.h2, rows.t, rows.table, list(self.ties)))
        groups = batch.routing.groups(rows.h)
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(boundaries(groups[order].astype(np.int64)))
        ends = np.append(starts[1:], len(order))
        stamps = pa.array(rows.t, mask=rows.t == MIN_TIME)
        table = pa.table(
            {name: rows.table.column(name) if kind is None else stamps.view(kind) for name, kind in self.columns}
        )
        ids = groups[order][starts].astype(np.int64)
        keys = _keys(ids, batch.routing.partitions, batch.routing.explicit, batch.routing.explicit_groups)
        before = self._before(batch, keys, ids)
        states = []
        for group, start, end in zip(ids.tolist(), starts, ends):
            self.operator.install(group, before.get(group))
            result = self.operator.process(group, table.take(pa.array(order[start:end])))
            states.append(_pack(self.operator.extract(group)))
            if result is not None and result.num_rows:
                batch.rows_out[group] += result.num_rows
                yield self._conforming(result)
        # a group that had no state and has none now leaves no trace
        kept = np.array([s is not None or int(g) in before for s, g in zip(states, ids)], dtype=np.bool_)
        by_key = np.argsort(keys)
        by_key = by_key[kept[by_key]]
        if len(by_key) == 0:
            return
        batch.state = [
            pa.table(
                {
                    "_h": pa.array(keys[by_key]),
                    "_t": pa.array(np.full(len(by_key), int(rows.t.max()), dtype=np.int64)),
                    "state": pa.array(states, pa.large_binary()).take(pa.array(by_key)),
                }
            )
        ]

    def _conforming(self, result: pa.Table) -> pa.Table:
        """What user code returned, in the columns it promised: Spark would take them by position."""
        names = self.results.names
        if sorted(result.column_names) != sorted(names):
            raise QueryError(
                f"operator {type(self.operator).__name__} returned columns {', '.join(result.column_names)}, "
                f"its schema says {', '.join(names)}; return a table with those columns"
            )
        try:
            return result.select(names).cast(self.results)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise QueryError(
                f"operator {type(self.operator).__name__} returned values its schema does not allow: {error}"
            ) from error

    def _before(self, batch: SiteBatch, keys: Ints, ids: Ints) -> dict[int, pa.Table | None]:
        order = np.argsort(keys)
        found: dict[int, pa.Table | None] = {}
        for run, row, at in latest(batch.runs[0], keys[order], None, ids[order].astype(np.int32)):
            packed = run.segment.table.column("state").take(pa.array(row))
            for group, state in zip(ids[order][at].tolist(), packed):
                found[group] = _unpack(state.as_buffer())
        return found


def _keys(groups: Ints, partitions: int, explicit: Ints, explicit_groups: Groups) -> Ints:
    """A hash that stands for each group: the middle of its interval, or the heavy key's own hash."""
    width = 2**64 // partitions
    keys = np.array([-(2**63) + width * int(g) + width // 2 if g < partitions else 0 for g in groups], dtype=np.int64)
    for h, group in zip(explicit, explicit_groups):
        keys[groups == group] = h
    return keys


def _pack(state: pa.Table | None) -> bytes | None:
    if state is None:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, state.schema) as writer:
        writer.write_table(state)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _unpack(packed: pa.Buffer | None) -> pa.Table | None:
    return None if packed is None else pa.ipc.open_stream(packed).read_all()
