"""What two rows must have in common beyond key and time to be partners, as a value that can be stored and sent.

Expressions over columns of the two inputs with SQL's three-valued logic: a pair matches where the whole is true, not
where it is false or null. Floats compare as Spark compares them: NaN equals NaN and is larger than every number.
`fluxen.operators.join.outer` evaluates them on the pairs that key and time let meet.

>>> near = Compare(left=Of(side=0, column="price"), op="<=", right=Of(side=1, column="limit"))
>>> whole = AnyOf(parts=(near, IsNull(column=Of(side=1, column="limit"))))
>>> from_json(whole.to_json()) == whole
True
>>> rows = {Of(side=0, column="price"): pa.array([1, 2, 3]), Of(side=1, column="limit"): pa.array([2, None, 2])}
>>> matches(whole, rows.__getitem__).tolist()
[True, True, False]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluxen.arrays import Json, Mask

__all__ = ["AllOf", "AnyOf", "Compare", "Holds", "IsNull", "Matching", "Not", "Of", "from_json", "matches"]

Sign = Literal["=", "<>", "<", "<=", ">", ">=", "<=>"]
"""`<=>` is null-safe: two nulls are equal, and nothing is unknown."""
SIGNS: tuple[str, ...] = get_args(Sign)
Values: TypeAlias = Any
"""A pyarrow array, of booleans where it is the value of an expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Of:
    """A column of one of the two inputs."""

    side: int
    column: str

    def to_json(self) -> list[Any]:
        return [self.side, self.column]


Columns: TypeAlias = Callable[[Of], Values]
"""A column's values, one for each pair."""


class Matching(ABC):
    """An expression that is true, false or null for a pair of rows."""

    __slots__ = ()

    @abstractmethod
    def value(self, columns: Columns) -> Values:
        """True, false or null for each pair."""

    @abstractmethod
    def operands(self) -> Iterator[Of]:
        """The columns it needs, some of them perhaps several times."""

    @abstractmethod
    def to_json(self) -> Json:
        """As `from_json` reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(Matching):
    """Two columns, of either side each, of one type."""

    left: Of
    op: Sign
    right: Of

    def value(self, columns: Columns) -> Values:
        return _compared(self.op, columns(self.left), columns(self.right))

    def operands(self) -> Iterator[Of]:
        yield from (self.left, self.right)

    def to_json(self) -> Json:
        return {"compare": self.op, "left": self.left.to_json(), "right": self.right.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds(Matching):
    """What a boolean column says."""

    column: Of

    def value(self, columns: Columns) -> Values:
        return columns(self.column)

    def operands(self) -> Iterator[Of]:
        yield self.column

    def to_json(self) -> Json:
        return {"holds": self.column.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull(Matching):
    column: Of

    def value(self, columns: Columns) -> Values:
        return pc.is_null(columns(self.column))

    def operands(self) -> Iterator[Of]:
        yield self.column

    def to_json(self) -> Json:
        return {"is null": self.column.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Not(Matching):
    part: Matching

    def value(self, columns: Columns) -> Values:
        return pc.invert(self.part.value(columns))

    def operands(self) -> Iterator[Of]:
        yield from self.part.operands()

    def to_json(self) -> Json:
        return {"not": self.part.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf(Matching):
    """And; at least one part."""

    parts: tuple[Matching, ...]

    def value(self, columns: Columns) -> Values:
        return reduce(pc.and_kleene, (part.value(columns) for part in self.parts))

    def operands(self) -> Iterator[Of]:
        for part in self.parts:
            yield from part.operands()

    def to_json(self) -> Json:
        return {"and": [part.to_json() for part in self.parts]}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf(Matching):
    """Or; at least one part."""

    parts: tuple[Matching, ...]

    def value(self, columns: Columns) -> Values:
        return reduce(pc.or_kleene, (part.value(columns) for part in self.parts))

    def operands(self) -> Iterator[Of]:
        for part in self.parts:
            yield from part.operands()

    def to_json(self) -> Json:
        return {"or": [part.to_json() for part in self.parts]}


def from_json(data: Json) -> Matching:
    """The expression that `Matching.to_json` wrote down."""
    (kind,) = {"compare", "holds", "is null", "not", "and", "or"} & set(data)
    if kind == "compare":
        return Compare(left=_of(data["left"]), op=data["compare"], right=_of(data["right"]))
    if kind == "holds":
        return Holds(column=_of(data["holds"]))
    if kind == "is null":
        return IsNull(column=_of(data["is null"]))
    if kind == "not":
        return Not(part=from_json(data["not"]))
    parts = tuple(from_json(part) for part in data[kind])
    return AllOf(parts=parts) if kind == "and" else AnyOf(parts=parts)


def matches(matching: Matching, columns: Columns) -> Mask:
    """For which pairs the expression is true."""
    value = pc.fill_null(matching.value(columns), False)
    return np.asarray(value, dtype=np.bool_)


def _of(data: list[Any]) -> Of:
    side, column = data
    return Of(side=side, column=column)


def _compared(op: Sign, left: Values, right: Values) -> Values:
    if op == "<>":
        return pc.invert(_compared("=", left, right))
    if op in (">", ">="):
        return _compared("<" if op == ">" else "<=", right, left)
    if op == "<=>":
        unknown = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(unknown, pc.fill_null(_compared("=", left, right), False))
    if pa.types.is_boolean(left.type):  # Arrow knows no order of booleans
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    plain = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal}[op](left, right)
    if not (pa.types.is_floating(left.type) or pa.types.is_floating(right.type)):
        return plain
    low, high = pc.is_nan(left), pc.is_nan(right)
    if op == "=":
        return pc.or_(plain, pc.and_(low, high))
    return pc.or_(plain, high if op == "<=" else pc.and_not(high, low))
