"""Aggregate functions as users write them: `fx.sum("price", where="paid")`, or in a query file `sum(price) where paid`.

What a function is made of, and how partial values combine, is in `fluxen.operators.aggregate.measures` and `combining`;
Spark's half, the SQL of each part, is in `fluxen.spark.plan.partials`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from fluxen.errors import QueryError

Kind = Literal[
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "stddev",
    "stddev_pop",
    "variance",
    "var_pop",
    "first",
    "last",
    "min_by",
    "max_by",
    "collect_list",
    "collect_set",
    "bool_and",
    "bool_or",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
_CALL = re.compile(r"\s*(\w+)\s*\(\s*(?:(distinct)\s+)?(.*?)\s*\)\s*(?:where\s+(\S.*?)\s*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate as the user wrote it; `column` is None for count()."""

    kind: Kind
    column: str | None = None
    by: str | None = None
    """what min_by and max_by go by"""
    distinct: bool = False
    """each value once"""
    where: str | None = None
    """a boolean column: rows where it is not true do not count"""

    def __str__(self) -> str:
        read = ", ".join(name for name in (self.column, self.by) if name is not None)
        only = "" if self.where is None else f" where {self.where}"
        return f"{self.kind}({'distinct ' if self.distinct else ''}{read}){only}"


def parsed(name: str, text: str) -> Aggregate:
    """`min(price)` as the user's fx.min("price").

    >>> parsed("buyers", "count(distinct user) where paid")
    Aggregate(kind='count', column='user', by=None, distinct=True, where='paid')
    """
    match = _CALL.fullmatch(text)
    kind = next((kind for kind in KINDS if match and kind == match.group(1)), None)
    if match is None or kind is None:
        raise QueryError(f"{name} = {text!r} is not an aggregate; write one of {', '.join(KINDS)}, as in 'min(price)'")
    column: str | None = match.group(3) or None
    if column is None and (kind != "count" or match.group(2)):
        raise QueryError(f"{name} = {text!r} needs a column, as in '{kind}(price)'")
    by = None
    if column is not None and kind in ("min_by", "max_by"):
        column, comma, by = (part.strip() for part in column.partition(","))
        if not comma or not by:
            raise QueryError(f"{name} = {text!r} needs two columns, as in '{kind}(name, price)'")
    return Aggregate(kind, column, by, match.group(2) is not None, match.group(4))


# ---- the words; `where` of each names a boolean column: rows where it is not true do not count


def count(column: str | None = None, distinct: bool = False, where: str | None = None) -> Aggregate:
    """Number of rows, or of rows where `column` is not null, or of its distinct values.

    >>> str(count("user", distinct=True, where="paid"))
    'count(distinct user) where paid'
    """
    return Aggregate("count", column, distinct=distinct, where=where)


def sum(column: str, distinct: bool = False, where: str | None = None) -> Aggregate:
    """Sum of the values that are not null, or of those that are distinct.

    >>> str(sum("price", where="paid"))
    'sum(price) where paid'
    """
    return Aggregate("sum", column, distinct=distinct, where=where)


def avg(column: str, distinct: bool = False, where: str | None = None) -> Aggregate:
    """Mean of the values that are not null, or of those that are distinct: a decimal of decimals, else a double.

    >>> str(avg("price", distinct=True))
    'avg(distinct price)'
    """
    return Aggregate("avg", column, distinct=distinct, where=where)


def min(column: str, where: str | None = None) -> Aggregate:
    """Smallest value that is not null.

    >>> str(min("price"))
    'min(price)'
    """
    return Aggregate("min", column, where=where)


def max(column: str, where: str | None = None) -> Aggregate:
    """Largest value that is not null.

    >>> str(max("price", where="paid"))
    'max(price) where paid'
    """
    return Aggregate("max", column, where=where)


def stddev(column: str, where: str | None = None) -> Aggregate:
    """Sample standard deviation of the values that are not null, as a double; null for fewer than two.

    >>> str(stddev("price"))
    'stddev(price)'
    """
    return Aggregate("stddev", column, where=where)


def stddev_pop(column: str, where: str | None = None) -> Aggregate:
    """Standard deviation of the values that are not null, taken as all there are, as a double.

    >>> str(stddev_pop("price"))
    'stddev_pop(price)'
    """
    return Aggregate("stddev_pop", column, where=where)


def variance(column: str, where: str | None = None) -> Aggregate:
    """Sample variance of the values that are not null, as a double; null for fewer than two.

    >>> str(variance("price"))
    'variance(price)'
    """
    return Aggregate("variance", column, where=where)


def var_pop(column: str, where: str | None = None) -> Aggregate:
    """Variance of the values that are not null, taken as all there are, as a double.

    >>> str(var_pop("price"))
    'var_pop(price)'
    """
    return Aggregate("var_pop", column, where=where)


def first(column: str, where: str | None = None) -> Aggregate:
    """Value of the earliest row by event time (the smallest value among rows of one time), even if it is null.

    >>> str(first("status"))
    'first(status)'
    """
    return Aggregate("first", column, where=where)


def last(column: str, where: str | None = None) -> Aggregate:
    """Value of the latest row by event time (the largest value among rows of one time), even if it is null.

    >>> str(last("status"))
    'last(status)'
    """
    return Aggregate("last", column, where=where)


def min_by(value: str, by: str, where: str | None = None) -> Aggregate:
    """`value` of the row with the smallest `by` that is not null (the smallest value among rows of one `by`).

    >>> str(min_by("shop", "price"))
    'min_by(shop, price)'
    """
    return Aggregate("min_by", value, by, where=where)


def max_by(value: str, by: str, where: str | None = None) -> Aggregate:
    """`value` of the row with the largest `by` that is not null (the largest value among rows of one `by`).

    >>> str(max_by("shop", "price", where="paid"))
    'max_by(shop, price) where paid'
    """
    return Aggregate("max_by", value, by, where=where)


def collect_list(column: str, where: str | None = None) -> Aggregate:
    """The values that are not null, in order of event time, those of one time in their own order.

    >>> str(collect_list("item"))
    'collect_list(item)'
    """
    return Aggregate("collect_list", column, where=where)


def collect_set(column: str, where: str | None = None) -> Aggregate:
    """The distinct values that are not null, in their own order.

    >>> str(collect_set("item"))
    'collect_set(item)'
    """
    return Aggregate("collect_set", column, where=where)


def bool_and(column: str, where: str | None = None) -> Aggregate:
    """Whether all values that are not null are true.

    >>> str(bool_and("paid"))
    'bool_and(paid)'
    """
    return Aggregate("bool_and", column, where=where)


def bool_or(column: str, where: str | None = None) -> Aggregate:
    """Whether one of the values that are not null is true.

    >>> str(bool_or("paid"))
    'bool_or(paid)'
    """
    return Aggregate("bool_or", column, where=where)
