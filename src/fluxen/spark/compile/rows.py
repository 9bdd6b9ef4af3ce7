"""Stages that give rows back as they came: duplicates dropped, the first rows of each key, several inputs as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from fluxen.spark.catalyst import DELAY, event_timed, identifier, is_attribute, items
from fluxen.spark.compile.closing import check_times, clock_of, some_time
from fluxen.spark.compile.conditions import conjuncts
from fluxen.spark.compile.pieces import Names, Piece, struct_end
from fluxen.spark.compile.refusals import refused
from fluxen.spark.plan.base import StagePlan
from fluxen.spark.plan.rows import Expiry, deduplicated_stage
from fluxen.spark.plan.top import TopWords, top_stage
from fluxen.spark.plan.union import union_stage

__all__ = ["deduplicated", "first_rows", "is_top", "united"]

_AT_MOST = {"LessThanOrEqual": 0, "LessThan": -1, "EqualTo": 0}
_AT_LEAST = {"GreaterThanOrEqual": 0, "GreaterThan": -1, "EqualTo": 0}
_DIRECTIONS = {
    ("ASC", "NULLS FIRST"): "asc",
    ("ASC", "NULLS LAST"): "asc_nulls_last",
    ("DESC", "NULLS FIRST"): "desc_nulls_first",
    ("DESC", "NULLS LAST"): "desc",
}


class _Columns:
    """A piece's columns on their way through a stage that gives them back."""

    def __init__(self, node: Any, piece: Piece, needed: set[int], *, as_group: bool = False) -> None:
        self.node, self.piece = node, piece
        self.names = Names()
        self.columns: list[tuple[Any, str]] = []
        self.returned: list[tuple[str, Any]] = []
        self._as_group = as_group
        """whether Spark makes a group of equal rows, and has 0.0 for -0.0 in them"""
        for attribute in piece.output:
            if identifier(attribute) in needed:
                self.returned.append((self.name(attribute), attribute))

    def name(self, attribute: Any) -> str:
        """What a column that the stage gives back is called in it."""
        one = self.piece.maker.one_zero(attribute) if self._as_group else attribute
        return self.read(one, str(attribute.name()))

    def read(self, expression: Any, wanted: str | None = None) -> str:
        for known, name in self.columns:
            if known.semanticEquals(expression):
                return name
        name = self.names.new(wanted or (expression.name() if is_attribute(expression) else expression.sql()))
        self.columns.append((expression, name))
        return name

    def over(
        self, stage: StagePlan, more: list[tuple[str, Any]], ends: Mapping[int, Any] = MappingProxyType({})
    ) -> Piece:
        check_times(self.node, stage)
        results = (*self.returned, *more)
        leaf = self.piece.maker.leaf([attribute for _, attribute in results], streaming=True)
        return Piece(maker=self.piece.maker, plan=leaf, node=self.node, stage=stage, results=results, ends=ends)


def deduplicated(node: Any, piece: Piece, needed: set[int]) -> Piece:
    """Distinct, dropDuplicates() and dropDuplicatesWithinWatermark()."""
    kind = str(node.nodeName())
    keys = items(node.output() if kind == "Distinct" else node.keys())
    columns = _Columns(node, piece, needed | {identifier(key) for key in keys}, as_group=kind == "Distinct")
    by = [columns.name(key) for key in keys]
    expiry: Expiry = "never"
    time, delay, closing = some_time(piece), None, None
    if kind == "DeduplicateWithinWatermark":
        expiry = "watermark"
        time = time or next((piece.maker.field(one, "end") for one in piece.event_times), None)
        marked = next(iter(piece.event_times), None)
        delay = None if marked is None else f"{int(marked.metadata().getLong(DELAY))} milliseconds"
        if time is None:
            raise refused("dropDuplicatesWithinWatermark()", node, "its rows have no event time; use withWatermark()")
    else:
        closing = next((key for key in keys if piece.timed(key)), None)
        if closing is not None:
            expiry, time = "time", closing
            if struct_end(closing) and (found := piece.end(closing)) is not None:
                columns.piece, time = found
    column = None if time is None else columns.read(time)
    ends = {}
    if expiry == "time" and struct_end(closing) and column is not None:
        ends[identifier(closing)] = piece.maker.alias(time, column).toAttribute()
    if expiry == "time" and column is not None and column not in by:
        by.append(column)
    given = columns.piece.given(columns.columns)
    stage = deduplicated_stage(given, by, column, expiry, delay=delay)
    return columns.over(stage, [(str(column), end) for end in ends.values()], ends)


# ---- row_number() <= n


def is_top(node: Any) -> bool:
    """Whether a filter stands on the ranks that a window function gives, which it cannot be parted from."""
    return bool(node.nodeName() == "Filter") and bool(items(node.children())[0].nodeName() == "Window")


def first_rows(node: Any, piece: Piece, needed: set[int]) -> Piece:
    """A filter `row_number() OVER (PARTITION BY ... ORDER BY ...) <= n`; what else it asks for, Spark looks at."""
    (window,) = items(node.children())
    rank = _rank(window)
    n = _most(node, identifier(rank))
    columns = _Columns(node, piece, needed)
    by = [columns.read(one) for one in items(window.partitionSpec())]
    order = [_ordered(columns, one) for one in items(window.orderSpec())]
    closing = next((one for one in items(window.partitionSpec()) if is_attribute(one) and event_timed(one)), None)
    time, lateness = some_time(piece), None
    if closing is not None:
        columns.piece, time, lateness = clock_of(node, piece, closing)
    words = TopWords(
        by=by,
        n=n,
        order=order,
        time=None if time is None else columns.read(time),
        closes=None if closing is None else columns.read(closing),
        lateness=lateness,
        rank=columns.names.new(str(rank.name())),
        compiled=True,
    )
    stage = top_stage(columns.piece.given(columns.columns), words)
    return columns.over(stage, [(words.rank, rank.toAttribute())]).filtered(conjuncts(node.condition()))


def _rank(window: Any) -> Any:
    """The one column that the node adds, if that is a row number over something partitioned and ordered."""
    found = items(window.windowExpressions())
    function = found[0].child().windowFunction() if len(found) == 1 else None
    if function is None or function.getClass().getSimpleName() != "RowNumber":
        name = "several window functions" if function is None else f"{function.prettyName()}() OVER"
        raise refused(name, window, "of window functions there is row_number(), with a filter such as rn <= 10 on it")
    if not items(window.partitionSpec()) or not items(window.orderSpec()):
        raise refused("row_number() OVER", window, "say PARTITION BY and ORDER BY")
    return found[0]


def _most(node: Any, rank: int) -> int:
    """The n of `rn <= n`, `rn < n`, `rn = n` or these the other way round."""
    found = []
    for condition in conjuncts(node.condition()):
        name = str(condition.nodeName())
        for side, other, signs in ((0, 1, _AT_MOST), (1, 0, _AT_LEAST)):
            parts = items(condition.children())
            if name not in signs or len(parts) != 2 or not is_attribute(parts[side]) or not parts[other].foldable():
                continue
            value = parts[other].eval(None)
            if identifier(parts[side]) == rank and isinstance(value, int):
                found.append(value + signs[name])
    if not found or min(found) < 1:
        raise refused("row_number()", node, "say how many rows of each key are wanted, as in rn <= 10")
    return min(found)


def _ordered(columns: _Columns, order: Any) -> tuple[str, str]:
    direction = _DIRECTIONS[str(order.direction().sql()), str(order.nullOrdering().sql())]
    return columns.read(order.child()), direction


# ---- UNION


def united(node: Any, pieces: Sequence[Piece], columns: Sequence[tuple[Any, Sequence[Any]]]) -> Piece:
    """UNION ALL, given for each column that is read what it is called above, and what it is in each piece."""
    names, taken = Names(), []
    for above, below in columns:
        taken.append((names.new(above.name()), above, below))
    clock, ends = _common_time(pieces, taken, names)
    given = []
    for at, piece in enumerate(pieces):
        read = [(below[at], name) for name, _, below in taken]
        if clock is not None and clock.window:
            piece, end = clock.found[at]
            read.append((end, clock.name))
        given.append(piece.given(read))
    stage = union_stage(given, None if clock is None else clock.name)
    check_times(node, stage)
    results = tuple((name, above) for name, above, _ in taken)
    results += tuple((clock.name, end) for end in ends.values() if clock is not None)
    maker = pieces[0].maker
    leaf = maker.leaf([attribute for _, attribute in results], streaming=True)
    return Piece(maker=maker, plan=leaf, node=node, stage=stage, results=results, ends=ends)


class _Common(NamedTuple):
    """An event time that all inputs of a union have."""

    name: str
    window: bool = False
    found: Sequence[tuple[Piece, Any]] = ()
    """per input, where it is a window: when that ends, and the piece that has it"""


def _common_time(
    pieces: Sequence[Piece], columns: Sequence[tuple[str, Any, Sequence[Any]]], names: Names
) -> tuple[_Common | None, dict[int, Any]]:
    """The first column that is an event time of every input, and when it ends where it is a window."""
    for name, above, below in sorted(columns, key=lambda column: struct_end(column[1])):
        if not all(piece.timed(one) for piece, one in zip(pieces, below)):
            continue
        if struct_end(above) and any(piece.stage is None for piece in pieces):
            continue  # a source's watermark is that of the times its windows were made of
        if not struct_end(above):
            return _Common(name), {}
        found = [piece.end(one) for piece, one in zip(pieces, below)]
        if all(one is not None for one in found):
            common = _Common(names.new(f"{name}_end"), True, [one for one in found if one is not None])
            piece, end = common.found[0]
            return common, {identifier(above): piece.maker.alias(end, common.name).toAttribute()}
    return None, {}
