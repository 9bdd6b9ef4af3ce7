"""Aggregates for a `LocalEngine` from Arrow schemas, as `fluxen.spark.plan.aggregate` makes them from DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.arrays import MAX_TIME, MIN_TIME, UNBOUNDED, Ints
from fluxen.control.stage import Stage
from fluxen.durations import microseconds
from fluxen.local.encode import hashes, times
from fluxen.local.engine import LocalStage
from fluxen.operators.aggregate.combining import alone, combine
from fluxen.operators.aggregate.functions import Aggregate
from fluxen.operators.aggregate.last import LastRows, check_last
from fluxen.operators.aggregate.measures import Measure, measure
from fluxen.operators.aggregate.running import Running
from fluxen.operators.aggregate.sessions import NAME, Sessions
from fluxen.operators.aggregate.windowed import Emit, W, Windowed, Windows
from fluxen.operators.base import Input, Operator
from fluxen.operators.kernels import boundaries, ragged

__all__ = ["aggregate", "closing_field", "closing_hashes", "moments"]


@dataclass(frozen=True, kw_only=True)
class _Words:
    """What to aggregate and how; the forms are those of `fluxen.aggregate`."""

    schema: pa.Schema
    keys: tuple[str, ...]
    time: str | None
    measures: tuple[Measure, ...]
    last: int | None
    windows: Windows | None
    session: int | None
    closes: str | None
    emit: Emit
    ttl: int
    bits: int
    tasks: int

    @property
    def ending(self) -> bool:
        return self.windows is not None or self.session is not None or self.closes is not None


def aggregate(
    schema: pa.Schema,
    by: str | Sequence[str],
    time: str | None = None,
    *,
    last: int | None = None,
    window: str | None = None,
    slide: str | None = None,
    session: str | None = None,
    closes: str | None = None,
    emit: Emit = "append",
    lateness: str = "0 seconds",
    bits: int = 64,
    tasks: int = 0,
    ttl: str | None = None,
    **aggregates: Aggregate,
) -> LocalStage:
    """As `fluxen.aggregate`; all but the last rows combine the rows of each of `tasks` first, as Spark does.

    Without `tasks` every row is a partial aggregate of its own, as where keys hardly repeat. `closes` is one of the
    keys, a timestamp or a struct with an `end`, that tells when groups end.
    """
    measures = tuple(
        measure(name, given, lambda column: schema.field(column).type) for name, given in aggregates.items()
    )
    words = _Words(
        schema=schema,
        keys=(by,) if isinstance(by, str) else tuple(by),
        time=time,
        measures=measures,
        last=last,
        windows=_windows(schema, time, window, slide),
        session=None if session is None else microseconds(session, "session", positive=True),
        closes=closes,
        emit=emit,
        ttl=UNBOUNDED if ttl is None else microseconds(ttl, "ttl", positive=True),
        bits=bits,
        tasks=tasks,
    )
    operator, fields = _operator(words)
    return LocalStage(
        stage=Stage(
            operator=operator,
            lateness=(microseconds(lateness, "lateness"),),
            on_arrival=ttl is not None and time is None,
        ),
        encode=lambda number, table: _encoded(words, table),
        inputs=(schema,),
        times=(time,),
        schema=pa.schema([*fields, *((m.name, m.type) for m in measures)]),
    )


def _windows(schema: pa.Schema, time: str | None, window: str | None, slide: str | None) -> Windows | None:
    if window is None:
        return None
    size = microseconds(window, "window", positive=True)
    every = size if slide is None else microseconds(slide, "slide", positive=True)
    return Windows(size=size, slide=every, time_type=schema.field(time).type)


def _operator(words: _Words) -> tuple[Operator, list[pa.Field]]:
    """The operator, and the columns of its results before the measures."""
    schema, keys, time = words.schema, words.keys, words.time
    fields = [schema.field(key) for key in keys]
    if words.last is not None:
        check_last(words.measures)
        timed = time if time not in keys else None
        made = LastRows(
            keys=keys,
            measures=words.measures,
            n=words.last,
            time=timed,
            time_type=schema.field(time).type if time else None,
            described={},
            clock=time,
            ttl=words.ttl,
        )
        return made, [*fields, *([schema.field(timed)] if timed else [])]
    if not words.ending:
        return Running(keys=keys, measures=words.measures, described={}, clock=time, ttl=words.ttl), fields
    if words.session is not None:
        kind = schema.field(time).type
        sessions = Sessions(
            keys=keys, measures=words.measures, described={}, gap=words.session, time_type=kind, clock=time
        )
        return sessions, [*fields, pa.field(NAME, pa.struct([("start", kind), ("end", kind)]))]
    windowed = Windowed(
        keys=keys,
        measures=words.measures,
        described={},
        windows=words.windows,
        closes=closing_field(schema, words.closes),
        emit=words.emit,
        clock=time,
    )
    if words.windows is not None:
        kind = words.windows.time_type
        fields.append(pa.field("window", pa.struct([("start", kind), ("end", kind)])))
    return windowed, fields


# ---- rows as Spark would send them


def _encoded(words: _Words, table: pa.Table) -> Input:
    t = times(table, words.time, MIN_TIME)
    end: Ints | None = None
    if words.windows is not None:
        table, t, end = _in_windows(table.filter(pa.array(t > MIN_TIME)), t[t > MIN_TIME], words.windows)
    if words.session is not None:
        table, t = table.filter(pa.array(t > MIN_TIME)), t[t > MIN_TIME]
        end = t + words.session
    h, h2 = closing_hashes(table, words.keys, words.closes, words.bits)
    if words.last is not None:
        read = [*words.keys, *(column for m in words.measures for column in m.columns)]
        return Input(h, h2, t, table.select(list(dict.fromkeys(read))))
    columns = {key: table.column(key) for key in words.keys}
    if words.closes is not None:
        end = moments(table.column(words.closes)).fill_null(MAX_TIME).to_numpy()
    if end is not None:
        columns[W] = pa.array(end)
    for measured in words.measures:
        columns.update(zip(measured.parts, alone(measured, table, t)))
    rows = Input(h, h2, t, pa.table(columns), np.ones(len(h), dtype=np.int64))
    return _combined(rows, words.tasks, words.measures) if words.tasks else rows


def _in_windows(table: pa.Table, t: Ints, windows: Windows) -> tuple[pa.Table, Ints, Ints]:
    """Each row once for every window it is in, with the window's end."""
    newest = t // windows.slide * windows.slide + windows.size
    counts = (newest - t - 1) // windows.slide + 1
    rows = np.repeat(np.arange(len(t)), counts)
    back = ragged(np.zeros(len(t), dtype=np.int64), counts)
    return table.take(pa.array(rows)), t[rows], newest[rows] - back * windows.slide


def closing_hashes(table: pa.Table, keys: Sequence[str], closes: str | None, bits: int) -> tuple[Ints, Ints]:
    """Of the keys, but for the one that closes groups, if there are others: what it adds is the closing time."""
    others = [key for key in keys if key != closes]
    if closes is None or not others:
        return hashes(table, keys, bits=bits)
    column = table.column(closes)
    if pa.types.is_struct(column.type):
        start, end = (pc.struct_field(column, part).cast(pa.int64()) for part in ("start", "end"))
        table = table.append_column("_length", pc.coalesce(pc.subtract(end, start), start))
        table = table.append_column("_null", pc.is_null(column))
        others += ["_length", "_null"]
    return hashes(table, others, bits=bits)


def closing_field(schema: pa.Schema, closes: str | None) -> str | None:
    """The column, or the field of it, that holds the closing time."""
    return f"{closes}.end" if closes is not None and pa.types.is_struct(schema.field(closes).type) else closes


def moments(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """When groups close, in microseconds."""
    return (pc.struct_field(column, "end") if pa.types.is_struct(column.type) else column).cast(pa.int64())


def _combined(rows: Input, tasks: int, measures: tuple[Measure, ...]) -> Input:
    """One row per key (and closing time) and task, with the number of rows it stands for."""
    task = np.arange(len(rows.h)) * tasks // max(len(rows.h), 1)
    end = rows.table.column(W).to_numpy() if W in rows.table.column_names else np.zeros(len(rows.h), np.int64)
    assert rows.h2 is not None
    order = np.lexsort((end, rows.h2, rows.h, task))
    rows, end, task = rows.take(order), end[order], task[order]
    assert rows.h2 is not None
    assert rows.weight is not None
    starts = np.flatnonzero(boundaries(task, rows.h, rows.h2, end))
    if len(starts) == len(rows.h):
        return rows
    table = rows.table.take(pa.array(starts))
    for name, column in combine(rows.table.combine_chunks(), starts, measures).items():
        table = table.set_column(table.column_names.index(name), name, column)
    t, weight = np.maximum.reduceat(rows.t, starts), np.add.reduceat(rows.weight, starts)
    return Input(rows.h[starts], rows.h2[starts], t, table, weight)
