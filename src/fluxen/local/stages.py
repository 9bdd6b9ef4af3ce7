"""Stages for a `LocalEngine` from Arrow schemas, as `fluxen.spark.plan` makes them from DataFrames.

Aggregates are in `fluxen.local.aggregates`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.arrays import MIN_TIME, UNBOUNDED
from fluxen.control.stage import Stage
from fluxen.durations import microseconds
from fluxen.local.encode import hashes, times
from fluxen.local.engine import LocalStage
from fluxen.operators.base import Input, Operator
from fluxen.operators.distinct import Distinct
from fluxen.operators.join.matching import Matching
from fluxen.operators.join.mway import Join, OutputColumn, pair_bounds
from fluxen.operators.join.outer import OuterJoin, OuterShape, closing_bounds, preserved
from fluxen.operators.join.probe import Bounds
from fluxen.operators.join.tree import TreeJoin
from fluxen.operators.union import Union
from fluxen.operators.user_code import GroupOperator, runner


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
    how: str = "inner",
    matching: Matching | None = None,
) -> LocalStage:
    """As `fluxen.join`; every input's time column has the name `time`.

    `matching` is what partners have in common beyond key and time, for every kind of join but the inner one.
    """
    names = list(inputs)
    keys = {name: _listed(on[name] if isinstance(on, Mapping) else on) for name in names}
    output = _join_output(inputs, keys, time, how)
    bounds = pair_bounds(names, within, between, ttl)
    alone = (False,) * len(names)
    operator: Operator
    described = {"inputs": names}
    if how != "inner":
        operator, alone = _outer(inputs, keys, time, how, bounds, output, matching), preserved(how)
    elif plan == "tree":
        operator = TreeJoin(names=tuple(names), low=bounds, output=tuple(output), described=described, initial=tree)
    else:
        operator = Join(names=tuple(names), low=bounds, output=tuple(output), described=described)

    def encode(number: int, table: pa.Table) -> Input:
        key, hidden = keys[names[number]], None
        if not alone[number]:
            table, hidden = _keyed(table, key, time)
        h, h2 = hashes(table, key, bits=bits)
        stored = [c for c in table.column_names if (c != time and (number == 0 or c not in key)) or _kept(c, number)]
        return Input(h, h2, times(table, time, MIN_TIME), table.select(stored), hidden=hidden)

    def _kept(column: str, number: int) -> bool:
        """Of an outer join, key columns are needed of both sides, also where one is the event time."""
        return how != "inner" and column in keys[names[number]]

    types = {f"{name}_{field.name}": field.type for name, schema in inputs.items() for field in schema}
    types.update({key: inputs[names[0]].field(key).type for key in keys[names[0]]})
    late = (microseconds(lateness, "lateness"),) * len(names)
    silence = (None if idle is None else microseconds(idle, "idle", positive=True),) * len(names)
    return LocalStage(
        stage=Stage(operator=operator, lateness=late, idle=silence, on_arrival=ttl is not None and time is None),
        encode=encode,
        inputs=tuple(inputs.values()),
        times=(time,) * len(names),
        schema=pa.schema([(out.name, types[out.name]) for out in output]),
    )


def _keyed(table: pa.Table, key: list[str], time: str | None) -> tuple[pa.Table, int | None]:
    """Rows with a key and a time, and the latest time of those that have a time and no key."""
    if time is not None:
        table = table.filter(pc.is_valid(table.column(time)))
    present = np.ones(table.num_rows, dtype=np.bool_)
    for column in key:
        present &= pc.is_valid(table.column(column)).to_numpy()
    keyless = times(table, time, MIN_TIME)[~present]
    return table.filter(pa.array(present)), int(keyless.max()) if time is not None and len(keyless) else None


def _outer(
    inputs: Mapping[str, pa.Schema],
    keys: Mapping[str, list[str]],
    time: str | None,
    how: Any,
    bounds: Bounds,
    output: list[OutputColumn],
    matching: Matching | None,
) -> OuterJoin:
    first, second = inputs
    clocks = [None if time is None else (time, schema.field(time).type) for schema in inputs.values()]
    return OuterJoin(
        how=how,
        names=(first, second),
        low=closing_bounds(
            how, (first, second), bounds, equal_times=any(a == b == time for a, b in zip(keys[first], keys[second]))
        ),
        output=tuple(output),
        shape=OuterShape(keys=(tuple(keys[first]), tuple(keys[second])), clocks=(clocks[0], clocks[1])),
        matching=matching,
        described={"inputs": [first, second]},
    )


def _join_output(
    inputs: Mapping[str, pa.Schema], keys: Mapping[str, list[str]], time: str | None, how: str
) -> list[OutputColumn]:
    names = list(inputs)
    either = how in ("right", "full")
    output = [
        OutputColumn(
            name=key,
            side=0,
            column=key,
            key_time=key == time and (other == time or not either),
            instead=other if either else None,
        )
        for key, other in zip(keys[names[0]], keys[names[1]])
    ]
    for side, (name, schema) in enumerate(inputs.items()):
        if side == 1 and how in ("semi", "anti"):
            break
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
    return output


def distinct(
    schema: pa.Schema,
    by: str | Sequence[str],
    time: str | None = None,
    *,
    within: str | None = None,
    lateness: str = "0 seconds",
    bits: int = 64,
    ttl: str | None = None,
) -> LocalStage:
    """As `fluxen.distinct`."""
    columns, ties = _whole(schema, time)
    given = within if ttl is None else ttl
    span = UNBOUNDED if given is None else microseconds(given, "within", positive=True)
    operator = Distinct(columns=columns, ties=ties, within=span, described={})
    made = _row_stage(operator, schema, _listed(by), time, schema, lateness, bits)
    return replace(made, stage=replace(made.stage, on_arrival=ttl is not None and time is None))


def deduplicated(
    schema: pa.Schema,
    by: str | Sequence[str],
    time: str | None,
    expiry: str,
    *,
    delay: str | None = None,
    lateness: str = "0 seconds",
    bits: int = 64,
) -> LocalStage:
    """As `fluxen.spark.plan.rows.deduplicated_stage`: Spark's dropDuplicates and dropDuplicatesWithinWatermark."""
    columns, ties = _whole(schema, time)
    past = microseconds(lateness if delay is None else delay, "delay")
    operator = Distinct(
        columns=columns,
        ties=ties,
        within={"never": UNBOUNDED, "time": 0, "watermark": past}[expiry],
        described={},
        rule="watermark" if expiry == "watermark" else "apart",
        untimed=time is not None,
    )
    return _row_stage(operator, schema, _listed(by), time, schema, lateness, bits, timed_only=False)


def union(count: int, schema: pa.Schema, time: str | None = None, *, lateness: str = "0 seconds") -> LocalStage:
    """As `fluxen.union`, of so many inputs."""
    columns, keys = _whole(schema, time)
    made = _row_stage(
        Union(columns=columns, count=count, described={}), schema, list(keys), time, schema, lateness, 64, False
    )
    late = made.stage.lateness * count
    return replace(made, stage=replace(made.stage, lateness=late), inputs=(schema,) * count, times=(time,) * count)


def stateful(
    schema: pa.Schema,
    by: str | Sequence[str],
    operator: Operator | GroupOperator,
    results: pa.Schema,
    time: str | None = None,
    *,
    lateness: str = "0 seconds",
    bits: int = 64,
) -> LocalStage:
    """As `fluxen.stateful`; `results` is the Arrow schema of what the operator returns."""
    columns, ties = _whole(schema, time)
    running = runner(operator, columns=columns, ties=ties, results=results, described={})
    return _row_stage(running, schema, _listed(by), time, results, lateness, bits)


def _row_stage(
    operator: Operator,
    schema: pa.Schema,
    keys: list[str],
    time: str | None,
    results: pa.Schema,
    lateness: str,
    bits: int,
    timed_only: bool = True,
) -> LocalStage:
    def encode(number: int, table: pa.Table) -> Input:
        if time is not None and timed_only:
            table = table.filter(pc.is_valid(table.column(time)))
        h, h2 = hashes(table, keys, bits=bits)
        payload = table.select([name for name in table.column_names if name != time])
        return Input(h, h2, times(table, time, MIN_TIME), payload)

    stage = Stage(operator=operator, lateness=(microseconds(lateness, "lateness"),))
    return LocalStage(stage=stage, encode=encode, inputs=(schema,), times=(time,), schema=results)


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _whole(schema: pa.Schema, time: str | None) -> tuple[tuple[tuple[str, Any], ...], tuple[str, ...]]:
    columns = tuple((field.name, field.type if field.name == time else None) for field in schema)
    ties = tuple(f.name for f in schema if f.name != time and not pa.types.is_nested(f.type))
    return columns, ties
