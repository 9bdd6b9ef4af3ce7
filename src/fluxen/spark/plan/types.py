"""Plain Spark types as Arrow types and back; nested ones pass through sites untouched and need no translation."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_type

from fluxen.errors import QueryError

_PLAIN: dict[type[st.DataType], pa.DataType] = {
    st.BooleanType: pa.bool_(),
    st.ByteType: pa.int8(),
    st.ShortType: pa.int16(),
    st.IntegerType: pa.int32(),
    st.LongType: pa.int64(),
    st.FloatType: pa.float32(),
    st.DoubleType: pa.float64(),
    st.StringType: pa.string(),
    st.BinaryType: pa.binary(),
    st.DateType: pa.date32(),
    st.TimestampType: pa.timestamp("us", "UTC"),
    st.TimestampNTZType: pa.timestamp("us"),
}


def arrow_schema(columns: Sequence[st.StructField]) -> pa.Schema:
    """What Spark hands to Python of these columns, or an error that names one it cannot."""
    zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}  # a must in newer ones
    found = []
    for column in columns:
        try:
            found.append((column.name, to_arrow_type(column.dataType, **zone)))
        except Exception as error:
            raise QueryError(
                f"column {column.name!r} is {column.dataType.simpleString()}, which this PySpark cannot hand to "
                "Python; cast it or leave it out"
            ) from error
    return pa.schema(found)


def arrow_type(kind: st.DataType, what: str) -> pa.DataType:
    """The Arrow type of a plain Spark type, or an error that names `what`."""
    if isinstance(kind, st.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    for plain, arrow in _PLAIN.items():
        if type(kind) is plain and not collated(kind):
            return arrow
    raise QueryError(f"{what} is {kind.simpleString()}, which aggregates do not take; cast it to a plain type")


def collated(kind: st.DataType) -> bool:
    """Whether strings of this type are equal, or in order, by a collation, which sites know nothing of."""
    return isinstance(kind, st.StringType) and kind.simpleString() != "string"


def spark_type(kind: pa.DataType) -> st.DataType:
    """The Spark type of a plain Arrow type."""
    if pa.types.is_decimal(kind):
        return st.DecimalType(kind.precision, kind.scale)
    return next(plain() for plain, arrow in _PLAIN.items() if arrow == kind)
