"""Operators of users: whole ones, and code over partition groups, the four calls Flux asks of it (section 5.1).

A whole one is an `Operator` of the user's own (`fluxen.operators.base`), with all that the engine's own ones can do.

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

from fluxen.arrays import MIN_TIME, Groups, Ints, Json
from fluxen.errors import QueryError
from fluxen.operators.base import Operator, Results, SiteInput, SiteOutput
from fluxen.operators.kernels import boundaries, total_order
from fluxen.operators.versions import latest, newest
from fluxen.operators.wrapped import Wrapped
from fluxen.state.sorted_run import SortedRun


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
class Stateful(Operator):
    """Runs a `GroupOperator`; a group's state is one row of bytes per version, the newest counts."""

    operator: GroupOperator
    columns: tuple[tuple[str, pa.DataType | None], ...]
    """columns the user's code sees; the event-time column comes with its type"""
    ties: tuple[str, ...]
    results: pa.Schema
    described: Json
    shadows = True
    divisible = False

    def identity(self) -> Json:
        return {"operator": "stateful", **self.described}

    def keeps(self, clock: str) -> list[str]:
        if self.described.get("by") is None:
            return ["none"]
        code = self.described["code"]
        return [f"what {code} keeps, which never expires by itself: its own code must drop it"]

    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        return newest(tables)

    def process(self, given: SiteInput) -> Results:
        rows = given.inputs[0]
        if len(rows.h) == 0:
            return SiteOutput()
        rows = rows.take(total_order(rows.h, rows.h2, rows.t, rows.table, list(self.ties)))
        groups, rows_out = given.routing.groups(rows.h), given.per_group()
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(boundaries(groups[order].astype(np.int64)))
        ends = np.append(starts[1:], len(order))
        stamps = pa.array(rows.t, mask=rows.t == MIN_TIME)
        table = pa.table(
            {name: rows.table.column(name) if kind is None else stamps.view(kind) for name, kind in self.columns}
        )
        ids = groups[order][starts].astype(np.int64)
        keys = _keys(ids, given.routing.partitions, given.routing.explicit, given.routing.explicit_groups)
        before = self._before(given.runs[0], keys, ids)
        states = []
        for group, start, end in zip(ids.tolist(), starts, ends):
            self.operator.install(group, before.get(group))
            result = self.operator.process(group, table.take(pa.array(order[start:end])))
            states.append(_pack(self.operator.extract(group)))
            if result is not None and result.num_rows:
                rows_out[group] += result.num_rows
                yield conforming(result, self.results, self.operator)
        # a group that had no state and has none now leaves no trace
        kept = np.array([s is not None or int(g) in before for s, g in zip(states, ids)], dtype=np.bool_)
        by_key = np.argsort(keys)
        by_key = by_key[kept[by_key]]
        if len(by_key) == 0:
            return SiteOutput(rows_out=rows_out)
        stored = pa.table(
            {
                "_h": pa.array(keys[by_key]),
                "_t": pa.array(np.full(len(by_key), int(rows.t.max()), dtype=np.int64)),
                "state": pa.array(states, pa.large_binary()).take(pa.array(by_key)),
            }
        )
        return SiteOutput(state=(stored,), rows_out=rows_out)

    def _before(self, runs: Sequence[SortedRun], keys: Ints, ids: Ints) -> dict[int, pa.Table | None]:
        order = np.argsort(keys)
        found: dict[int, pa.Table | None] = {}
        for run, row, at in latest(runs, keys[order], None, ids[order].astype(np.int32)):
            packed = run.segment.table.column("state").take(pa.array(row))
            for group, state in zip(ids[order][at].tolist(), packed):
                found[group] = _unpack(state.as_buffer())
        return found


@dataclass(frozen=True, kw_only=True)
class Own(Wrapped):
    """A user's own `Operator` in a query, whose words become part of its identity."""

    results: pa.Schema
    described: Json

    def identity(self) -> Json:
        return {"operator": type(self.operator).__name__, **self.described, **self.operator.identity()}

    def process(self, given: SiteInput) -> Results:
        results = self.operator.process(given)
        while True:
            try:
                result = next(results)
            except StopIteration as end:
                if not isinstance(end.value, SiteOutput):
                    raise QueryError(
                        f"process() of operator {type(self.operator).__name__} must return a SiteOutput when it has "
                        f"yielded its results, got {type(end.value).__name__}"
                    ) from None
                return end.value
            yield conforming(result, self.results, self.operator)

    def owed(
        self, sides: Sequence[Sequence[tuple[int, pa.Table]]], piece_bytes: int | None = None
    ) -> Iterator[pa.Table]:
        for result in self.operator.owed(sides, piece_bytes):
            yield conforming(result, self.results, self.operator)


def result_schema(operator: Any) -> Any:
    """The schema of the results; raises if this is no operator that users can have written."""
    name = type(operator).__name__
    if not isinstance(operator, Operator | GroupOperator):
        raise QueryError(
            f"operator {name} lacks one of schema, process, extract, install, info; "
            "see fluxen.operators.user_code.GroupOperator, or derive from fluxen.operators.base.Operator"
        )
    if operator.schema is None:
        raise QueryError(f"operator {name} says no schema of its results; give it one, such as schema = 'k long'")
    return operator.schema


def runner(
    operator: Operator | GroupOperator,
    *,
    columns: tuple[tuple[str, pa.DataType | None], ...],
    ties: tuple[str, ...],
    results: pa.Schema,
    described: Json,
) -> Operator:
    """What runs a user's operator at the sites; `columns` and `ties` are for code over partition groups."""
    if isinstance(operator, Operator):
        if operator.inputs != 1:
            raise QueryError(
                f"operator {type(operator).__name__} has {operator.inputs} inputs; stateful() gives it one"
            )
        return Own(operator=operator, results=results, described=described)
    return Stateful(operator=operator, columns=columns, ties=ties, results=results, described=described)


def conforming(result: pa.Table, schema: pa.Schema, operator: Operator | GroupOperator) -> pa.Table:
    """What user code returned, in the columns it promised: Spark would take them by position."""
    name = type(operator).__name__
    if sorted(result.column_names) != sorted(schema.names):
        raise QueryError(
            f"operator {name} returned columns {', '.join(result.column_names)}, "
            f"its schema says {', '.join(schema.names)}; return a table with those columns"
        )
    try:
        return result.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise QueryError(f"operator {name} returned values its schema does not allow: {error}") from error


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
