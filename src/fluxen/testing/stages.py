"""Stages for the bench from Arrow schemas, as `fluxen.spark.stages` makes them from DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.control.coordinator import Stage
from fluxen.durations import microseconds
from fluxen.operators.aggregate import Running, Tumbling
from fluxen.operators.base import Input, Operator
from fluxen.operators.columns import boundaries
from fluxen.operators.distinct import Distinct
from fluxen.operators.functions import Aggregate, Measure, combine, result_type
from fluxen.operators.join import Join, OutputColumn, pair_bounds
from fluxen.operators.last import LastRows
from fluxen.operators.stateful import GroupOperator, Stateful
from fluxen.operators.tree import TreeJoin
from fluxen.testing.bench import BenchStage, hashes, times
from fluxen.typing import MIN_TIME, UNBOUNDED


def join(
    inputs: Mapping[str, pa.Schema],
    on: str | Sequence[str] | Mapping[str, Sequence[str]],
    time: str | None = None,
    *,
    within: str | None = None,
    between: Any = None,
    lateness: str = "0 seconds",
    idle: str | None = None,
    plan: str = "mjoin",
    tree: str = "",
    bits: int = 64,
    ttl: str | None = None,
) -> BenchStage:
    """As `fluxen.join`; every input's time column has the name `time`."""
    names = list(inputs)
    keys = {name: _listed(on[name] if isinstance(on, Mapping) else on) for name in names}
    output = [OutputColumn(name=key, side=0, column=key, key_time=key == time) for key in keys[names[0]]]
    for side, (name, schema) in enumerate(inputs.items()):
        for field in schema:
            if field.name not in keys[name]:
                timed = field.name == time
                output.append(
                    OutputColumn(
                        name=f"{name}_{field.name}",
                        side=side,
                        column=None if timed else field.name,
                        time_type=field.type if timed else None,
                    )
                )
    bounds = pair_bounds(names, within, between, ttl)
    if plan == "tree":
        operator: Join = TreeJoin(names=tuple(names), low=bounds, output=tuple(output), described={}, initial=tree)
    else:
        operator = Join(names=tuple(names), low=bounds, output=tuple(output), described={})

    def encode(number: int, table: pa.Table) -> Input:
        key = keys[names[number]]
        if time is not None:
            table = table.filter(pc.is_valid(table.column(time)))
        present = np.ones(table.num_rows, dtype=np.bool_)
        for column in key:
            present &= pc.is_valid(table.column(column)).to_numpy()
        keyless = times(table, time, MIN_TIME)[~present]
        table = table.filter(pa.array(present))
        h, h2 = hashes(table, key, bits=bits)
        stored = [c for c in table.column_names if c != time and (number == 0 or c not in key)]
        hidden = int(keyless.max()) if time is not None and len(keyless) else None
        return Input(h, h2, times(table, time, MIN_TIME), table.select(stored), hidden=hidden)

    types = {f"{name}_{field.name}": field.type for name, schema in inputs.items() for field in schema}
    types.update({key: inputs[names[0]].field(key).type for key in keys[names[0]]})
    late = (microseconds(lateness, "lateness"),) * len(names)
    silence = (None if idle is None else microseconds(idle, "idle", positive=True),) * len(names)
    return BenchStage(
        stage=Stage(
            operator=operator,
            lateness=late,
            time=time,
            idle=silence,
            on_arrival=ttl is not None and time is None,
        ),
        encode=encode,
        inputs=tuple(inputs.values()),
        schema=pa.schema([(out.name, types[out.name]) for out in output]),
    )


def aggregate(
    schema: pa.Schema,
    by: str | Sequence[str],
    time: str | None = None,
    *,
    last: int | None = None,
    window: str | None = None,
    lateness: str = "0 seconds",
    bits: int = 64,
    tasks: int = 0,
    ttl: str | None = None,
    **aggregates: Aggregate,
) -> BenchStage:
    """As `fluxen.aggregate`; running and tumbling forms combine the rows of each of `tasks` first, as Spark does.

    Without `tasks` every row is a partial aggregate of its own, as where keys hardly repeat.
    """
    keys = tuple(_listed(by))
    measures = tuple(
        Measure(name=name, kind=a.kind, column=a.column, type=result_type(a.kind, _type(schema, a.column)))
        for name, a in aggregates.items()
    )
    operator: Operator
    fields = [schema.field(key) for key in keys]
    size = 0
    life = UNBOUNDED if ttl is None else microseconds(ttl, "ttl", positive=True)
    if last is not None:
        timed = time if time not in keys else None
        kind = schema.field(time).type if time else None
        operator = LastRows(
            keys=keys,
            measures=measures,
            n=last,
            time=timed,
            time_type=kind,
            described={},
            clock=time,
            ttl=life,
        )
        fields += [schema.field(timed)] if timed else []
    elif window is not None:
        assert time is not None
        size = microseconds(window, "window", positive=True)
        kind = schema.field(time).type
        operator = Tumbling(keys=keys, measures=measures, size=size, time_type=kind, described={}, clock=time)
        fields.append(pa.field("window", pa.struct([("start", kind), ("end", kind)])))
    else:
        operator = Running(keys=keys, measures=measures, described={}, clock=time, ttl=life)

    def encode(number: int, table: pa.Table) -> Input:
        t = times(table, time, MIN_TIME)
        if size:
            table, t = table.filter(pa.array(t > MIN_TIME)), t[t > MIN_TIME]
        h, h2 = hashes(table, keys, bits=bits)
        if isinstance(operator, LastRows):
            return Input(h, h2, t, table.select(list(dict.fromkeys([*keys, *operator.values]))))
        columns = {key: table.column(key) for key in keys}
        if size:
            columns["_w"] = pa.array((t // size + 1) * size)
        for measure in measures:
            columns.update(zip(measure.parts, _partial(measure, table, t)))
        alone = Input(h, h2, t, pa.table(columns), np.ones(len(h), dtype=np.int64))
        return _combined(alone, tasks, measures) if tasks else alone

    return BenchStage(
        stage=Stage(
            operator=operator,
            lateness=(microseconds(lateness, "lateness"),),
            time=time,
            on_arrival=ttl is not None and time is None,
        ),
        encode=encode,
        inputs=(schema,),
        schema=pa.schema([*fields, *((m.name, m.type) for m in measures)]),
    )


def _combined(rows: Input, tasks: int, measures: tuple[Measure, ...]) -> Input:
    """One row per key (and window) and task, with the number of rows it stands for."""
    task = np.arange(len(rows.h)) * tasks // max(len(rows.h), 1)
    end = rows.table.column("_w").to_numpy() if "_w" in rows.table.column_names else np.zeros(len(rows.h), np.int64)
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


def _partial(measure: Measure, table: pa.Table, t: np.ndarray) -> list[Any]:
    """The partial columns of rows on their own; the JVM's half is `fluxen.spark.partials`."""
    if measure.column is None:
        return [pa.array(np.ones(table.num_rows, dtype=np.int64))]
    value = table.column(measure.column)
    present = pc.is_valid(value).cast(pa.int64())
    if measure.kind == "count":
        return [present]
    if measure.kind == "avg":
        return [value.cast(pa.float64()), present]
    if measure.kind == "stddev":
        number = value.cast(pa.float64())
        return [present, number, pc.multiply(present.cast(pa.float64()), 0.0)]
    if measure.kind in ("first", "last"):
        return [pa.array(t), value]
    return [value.cast(measure.type) if measure.kind == "sum" else value]


def distinct(
    schema: pa.Schema,
    by: str | Sequence[str],
    time: str | None = None,
    *,
    within: str | None = None,
    lateness: str = "0 seconds",
    bits: int = 64,
    ttl: str | None = None,
) -> BenchStage:
    """As `fluxen.distinct`."""
    columns, ties = _whole(schema, time)
    given = within if ttl is None else ttl
    span = UNBOUNDED if given is None else microseconds(given, "within", positive=True)
    operator = Distinct(columns=columns, ties=ties, within=span, described={})
    made = _row_stage(operator, schema, _listed(by), time, schema, lateness, bits)
    return replace(made, stage=replace(made.stage, on_arrival=ttl is not None and time is None))


def stateful(
    schema: pa.Schema, by: str | Sequence[str], operator: GroupOperator, results: pa.Schema, time: str | None = None
) -> BenchStage:
    """As `fluxen.stateful`; `results` is the Arrow schema of what the operator returns."""
    columns, ties = _whole(schema, time)
    runner = Stateful(operator=operator, columns=columns, ties=ties, results=results, described={})
    return _row_stage(runner, schema, _listed(by), time, results, "0 seconds", 64)


def _row_stage(
    operator: Operator,
    schema: pa.Schema,
    keys: list[str],
    time: str | None,
    results: pa.Schema,
    lateness: str,
    bits: int,
) -> BenchStage:
    def encode(number: int, table: pa.Table) -> Input:
        if time is not None:
            table = table.filter(pc.is_valid(table.column(time)))
        h, h2 = hashes(table, keys, bits=bits)
        payload = table.select([name for name in table.column_names if name != time])
        return Input(h, h2, times(table, time, MIN_TIME), payload)

    stage = Stage(operator=operator, lateness=(microseconds(lateness, "lateness"),), time=time)
    return BenchStage(stage=stage, encode=encode, inputs=(schema,), schema=results)


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _type(schema: pa.Schema, column: str | None) -> pa.DataType | None:
    return None if column is None else schema.field(column).type


def _whole(schema: pa.Schema, time: str | None) -> tuple[tuple[tuple[str, Any], ...], tuple[str, ...]]:
    columns = tuple((field.name, field.type if field.name == time else None) for field in schema)
    ties = tuple(f.name for f in schema if f.name != time and not pa.types.is_nested(f.type))
    return columns, ties
