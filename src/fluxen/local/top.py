"""The first rows of each key for a `LocalEngine`, as `fluxen.spark.plan.top` makes them from DataFrames."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from fluxen.arrays import MAX_TIME, MIN_TIME, UNBOUNDED
from fluxen.control.stage import Stage
from fluxen.durations import microseconds
from fluxen.local.aggregates import closing_field, closing_hashes, moments
from fluxen.local.encode import times
from fluxen.local.engine import LocalStage
from fluxen.operators.base import Input
from fluxen.operators.top import CLOSES, Ordering, Top

__all__ = ["top"]


def top(
    schema: pa.Schema,
    by: str | Sequence[str],
    n: int,
    order: Sequence[tuple[str, str]],
    time: str | None = None,
    *,
    closes: str | None = None,
    lateness: str = "0 seconds",
    bits: int = 64,
    ttl: str | None = None,
) -> LocalStage:
    """As `fluxen.top`; `closes` is one of the columns in `by`, a timestamp or a struct with an `end`."""
    keys = (by,) if isinstance(by, str) else tuple(by)
    orderings = tuple(Ordering.of(column, direction) for column, direction in order)
    ordered = {one.column for one in orderings}
    operator = Top(
        columns=tuple(schema.names),
        keys=keys,
        order=orderings,
        ties=tuple(f.name for f in schema if f.name not in (*ordered, *keys) and not pa.types.is_nested(f.type)),
        n=n,
        described={},
        closes=closing_field(schema, closes),
        clock=time,
        ttl=UNBOUNDED if ttl is None else microseconds(ttl, "ttl", positive=True),
    )

    def encode(number: int, table: pa.Table) -> Input:
        h, h2 = closing_hashes(table, keys, closes, bits)
        t = times(table, time, MIN_TIME)
        if closes is not None:
            table = table.append_column(CLOSES, moments(table.column(closes)).fill_null(MAX_TIME))
        return Input(h, h2, t, table)

    return LocalStage(
        stage=Stage(
            operator=operator,
            lateness=(microseconds(lateness, "lateness"),),
            on_arrival=ttl is not None and time is None,
        ),
        encode=encode,
        inputs=(schema,),
        times=(time,),
        schema=schema.append(pa.field("rank", pa.int32())),
    )
