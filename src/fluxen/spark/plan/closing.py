"""When groups close, made in the JVM: `_w`, the end of a window or whatever moment a column holds.

The operator that goes by it is `fluxen.operators.aggregate.windowed`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.arrays import MAX_TIME, MIN_TIME
from fluxen.errors import QueryError
from fluxen.operators.aggregate.windowed import W, Windows
from fluxen.site.wire import Hops
from fluxen.spark.plan.layout import field, hashable, key_hashes, micros, quoted
from fluxen.state.segment import T

__all__ = ["closing_field", "closing_hashes", "closing_time", "hops_of", "with_ends", "with_session_ends"]

_STAMPS = (st.TimestampType, st.TimestampNTZType)


def with_ends(rows: DataFrame, windows: Windows) -> DataFrame:
    """Rows with the end of their last window; once for every window where the sites cannot tell the others from it."""
    size, slide = windows.size, windows.slide
    last = f"({T} div {slide}L - if({T} % {slide}L < 0, 1L, 0L)) * {slide}L + {size}L"
    every = last if size % slide == 0 else f"explode(sequence({last}, {T} + 1L, -{slide}L))"
    return rows.where(F.col(T) > MIN_TIME).withColumn(W, F.expr(every))


def hops_of(windows: Windows | None) -> Hops | None:
    """The windows of a row that do not travel, where `with_ends` has left them out."""
    if windows is None or windows.size == windows.slide or windows.size % windows.slide:
        return None
    return Hops(count=windows.size // windows.slide, slide=windows.slide, end=W)


def with_session_ends(rows: DataFrame, gap: int) -> DataFrame:
    """Rows with the end of the session that each would be by itself."""
    return rows.where(F.col(T) > MIN_TIME).withColumn(W, F.expr(f"{T} + {gap}L"))


def closing_field(df: DataFrame, closes: str) -> str:
    """The column, or the field of it, that holds the closing time."""
    kind = field(df, closes, "closing column").dataType
    if isinstance(kind, _STAMPS):
        return closes
    if isinstance(kind, st.StructType) and "end" in kind.names and isinstance(kind["end"].dataType, _STAMPS):
        return f"{closes}.end"
    raise QueryError(
        f"closing column {closes!r} is {kind.simpleString()}; groups close at a timestamp, or at the end of a window"
    )


def closing_time(df: DataFrame, closes: str) -> Column:
    """`_w`; groups of a null close when the input ends."""
    kind = field(df, closes, "closing column").dataType
    moment = micros(quoted(closes), kind) if isinstance(kind, _STAMPS) else _part(closes, kind, "end")
    return F.coalesce(moment, F.lit(MAX_TIME).cast("long")).alias(W)


def closing_hashes(df: DataFrame, keys: Sequence[str], closes: str) -> list[Column]:
    """Key hashes that, with the closing time, tell groups apart, and that are the same for all windows of a key.

    So a key's windows are at one site, and a heavy key is heavy whatever its window.
    """
    others = [key for key in keys if key != closes]
    if not others:
        return key_hashes(df, keys, nulls=True)
    kind = field(df, closes, "closing column").dataType
    if not isinstance(kind, st.StructType):
        return key_hashes(df, others, nulls=True)
    closing_field(df, closes)
    more = [F.isnull(F.col(quoted(closes)))]
    for part in kind.fields:
        if part.name == "start" and isinstance(part.dataType, _STAMPS):
            # windows of one length, which are the rule, differ in nothing but their end
            start = _part(closes, kind, "start")
            more.append(F.coalesce(_part(closes, kind, "end") - start, start))
        elif part.name != "end":
            inner = F.col(quoted(closes)).getField(part.name)
            more += [F.isnull(inner), *hashable(inner, part.dataType)]
    return key_hashes(df, others, nulls=True, more=more)


def _part(name: str, kind: st.DataType, part: str) -> Column:
    assert isinstance(kind, st.StructType)
    return micros(f"{quoted(name)}.{quoted(part)}", kind[part].dataType)
