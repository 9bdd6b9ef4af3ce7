"""Aggregates as stages: Spark computes what is grouped by and aggregated, and whatever is made of the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluxen.operators.aggregate.functions import KINDS, Aggregate, Kind
from fluxen.operators.aggregate.sessions import NAME
from fluxen.operators.aggregate.windowed import Emit
from fluxen.spark.catalyst import Maker, event_timed, is_attribute, items, optional
from fluxen.spark.compile.closing import check_times, clock_of, some_time
from fluxen.spark.compile.hops import hopping
from fluxen.spark.compile.moments import session_of
from fluxen.spark.compile.pieces import Names, Piece
from fluxen.spark.compile.refusals import check_repeatable, refused
from fluxen.spark.plan.aggregate import AggregateWords, aggregate_stage

__all__ = ["aggregated"]

_KINDS: dict[str, Kind] = {
    "Count": "count",
    "Sum": "sum",
    "Average": "avg",
    "Min": "min",
    "Max": "max",
    "StddevSamp": "stddev",
    "StddevPop": "stddev_pop",
    "VarianceSamp": "variance",
    "VariancePop": "var_pop",
    "First": "first",
    "Last": "last",
    "MinBy": "min_by",
    "MaxBy": "max_by",
    "CollectList": "collect_list",
    "CollectSet": "collect_set",
}
_REPLACED = ("BoolAnd", "BoolOr", "CountIf", "AnyValue", "RegrCount")
"""functions that Spark makes of others"""
_CONSTANT = "all rows"
_SESSION = "spark.sessionWindow"
"""Where Spark notes, in a column's metadata, that session_window() made it."""


def aggregated(node: Any, piece: Piece, emit: Emit) -> Piece:
    """The stage that a node of Spark's becomes, with what is computed from its results on top."""
    return _Stage(node, piece).piece(emit)


class _Stage:
    """An aggregate stage in the making."""

    def __init__(self, node: Any, piece: Piece) -> None:
        self.node, self.below = node, piece
        self.maker: Maker = piece.maker
        self.names, self.results = Names(), Names()
        self.columns: list[tuple[Any, str]] = []
        self.keys: list[tuple[Any, Any, str]] = []
        """(what is grouped by, the column that it is above, its name)"""
        self.aggregates: list[tuple[Any, Any, str, Aggregate]] = []
        """(Spark's aggregate, the column that it is above, its name, ours)"""
        self.session: tuple[Any, int] | None = None
        """the event time that sessions are made of, and how long one goes on without a row"""
        self.sessions: list[tuple[str, Any]] = []
        """(result column, the column that it is above)"""

    def piece(self, emit: Emit) -> Piece:
        for expression in items(self.node.groupingExpressions()):
            if is_attribute(expression) and expression.metadata().contains(_SESSION):
                self.session = session_of(self.maker, self.node, expression)
                self.sessions = [(self.results.new(NAME), expression)]
            else:
                self._group_by(expression)
        if not self.keys:
            constant = self.maker.literal(0)
            self.keys.append((constant, None, self._column(constant, _CONSTANT)))
        entries = [self._above(entry) for entry in items(self.node.aggregateExpressions())]
        if not self.aggregates:  # SELECT DISTINCT in the form of GROUP BY: something has to be counted
            self.aggregates.append((None, None, self.results.new("rows"), Aggregate("count")))
        words = self._words(emit)
        named = {name: ours for _, _, name, ours in self.aggregates}
        built = aggregate_stage(self.below.given(self.columns), words, named)
        check_times(self.node, built)
        found = [(name, attribute) for _, attribute, name in self.keys if attribute is not None] + self.sessions
        found += [(name, attribute) for _, attribute, name, _ in self.aggregates if attribute is not None]
        leaf = self.maker.leaf([attribute for _, attribute in found], streaming=True)
        top = self.maker.project(entries, leaf)
        return Piece(maker=self.maker, plan=top, node=self.node, stage=built, results=tuple(found))

    def _words(self, emit: Emit) -> AggregateWords:
        """What groups are, and when they end."""
        by = [name for _, _, name in self.keys]
        if self.session is not None:
            start, gap = self.session
            if not self.below.timed(start):
                instead = "nothing says when a session has ended; put withWatermark() on that column, before the window"
                raise refused(f"session_window() of {start.sql()}", self.node, instead)
            return AggregateWords(by=by, time=self._read(start), session=f"{gap} microseconds", compiled=True)
        closing = next((key for key in self.keys if key[1] is not None and event_timed(key[1])), None)
        if closing is None:
            time = some_time(self.below)
            return AggregateWords(by=by, time=None if time is None else self._read(time), compiled=True)
        clock = clock_of(self.node, self.below, closing[0])
        self.below = clock.piece
        time = self._read(clock.time)
        hops = None
        # without another key, windows have hashes of their own
        if len(by) > 1 and is_attribute(closing[0]) and self.below.stage is None:
            others = [one for one, _ in self.columns if not one.semanticEquals(closing[0])]
            hops = hopping(self.below, closing[0], others)
        if hops is not None:
            self.below = hops.piece
        return AggregateWords(
            by=by,
            time=time,
            closes=closing[2],
            hops=None if hops is None else (hops.count, hops.slide),
            emit=emit,
            lateness=clock.lateness,
            compiled=True,
        )

    # ---- columns

    def _column(self, expression: Any, wanted: str) -> str:
        name = self.names.new(wanted)
        self.columns.append((expression, name))
        return name

    def _read(self, expression: Any) -> str:
        """The column that an expression is computed in; one for the same expression."""
        for known, name in self.columns:
            if known.semanticEquals(expression):
                return name
        return self._column(expression, expression.name() if is_attribute(expression) else expression.sql())

    def _group_by(self, expression: Any) -> None:
        plain = is_attribute(expression)
        name = self.results.new(expression.name() if plain else expression.sql())
        self.names.new(name)
        self.columns.append((expression, name))
        column = expression if plain else self.maker.alias(expression, name).toAttribute()
        self.keys.append((expression, column, name))

    # ---- what is computed from the results

    def _above(self, entry: Any) -> Any:
        """An entry of the node in terms of keys and aggregates."""
        made = self._rewritten(entry)
        check_repeatable(made)
        return made

    def _rewritten(self, expression: Any) -> Any:
        if any(column.semanticEquals(expression) for _, column in self.sessions):
            return expression
        for grouped, column, _ in self.keys:
            if column is not None and grouped.semanticEquals(expression):
                return column
        if expression.nodeName() == "AggregateExpression":
            return self._aggregate(expression)
        children = items(expression.children())
        if not children:
            return expression
        return self.maker.with_children(expression, [self._rewritten(child) for child in children])

    def _aggregate(self, expression: Any) -> Any:
        for known, column, _, _ in self.aggregates:
            if known.semanticEquals(expression):
                return column
        ours = self._ours(expression)
        name = self.results.new(expression.sql())
        column = self.maker.alias(expression, name).toAttribute()
        self.aggregates.append((expression, column, name, ours))
        return column

    def _ours(self, expression: Any) -> Aggregate:
        function, distinct = expression.aggregateFunction(), bool(expression.isDistinct())
        while (called := str(function.getClass().getSimpleName())) in _REPLACED:
            function = function.replacement()
        if str(function.prettyName()).startswith("try_"):
            raise refused(
                f"{function.prettyName()}()",
                expression,
                "a value that is too large ends a query here; use the function without try_, of a type with more room",
            )
        kind = _KINDS.get(called)
        if called == "PivotFirst":
            raise refused("PIVOT", self.node, "write each column as an aggregate with FILTER (WHERE ...)")
        if kind is None:
            name = "an aggregate function in Python" if called == "PythonUDAF" else f"{function.prettyName()}()"
            raise refused(name, expression, f"there are {', '.join(KINDS)}")
        if kind in ("collect_list", "collect_set") and _keeps_nulls(function):
            instead = "nulls are left out here; collect another value in their place, as in coalesce(value, 0)"
            raise refused(f"{function.prettyName()}() RESPECT NULLS", expression, instead)
        where = optional(expression.filter())
        arguments = items(function.children())
        if where is not None:  # what is left out need not be computable
            plain = [is_attribute(one) or bool(one.foldable()) for one in arguments]
            arguments = [one if as_is else self.maker.only(where, one) for as_is, one in zip(plain, arguments)]
        if kind == "count":
            return self._count(arguments, distinct, where)
        if kind in ("first", "last") and not self.below.event_times:
            raise refused(f"{kind}()", expression, "it goes by event time; put withWatermark() on the stream")
        if kind in ("first", "last") and bool(function.ignoreNulls()):
            known = self.maker.present(arguments[0])
            where = known if where is None else self.maker.both([where, known])
        columns = [self._read(argument) for argument in arguments[: 2 if kind in ("min_by", "max_by") else 1]]
        by = columns[1] if kind in ("min_by", "max_by") else None
        return Aggregate(kind, columns[0], by, distinct, None if where is None else self._read(where))

    def _count(self, arguments: Sequence[Any], distinct: bool, where: Any) -> Aggregate:
        """count(*) and count(1); count(a), distinct or not; count(a, b), where none of them may be null."""
        counted = [one for one in arguments if not (one.foldable() and one.eval(None) is not None)]
        column = None
        if len(counted) > 1 and distinct:
            raise refused(
                "count(DISTINCT) of several columns", self.node, "count the distinct values of one made of them"
            )
        if len(counted) > 1:
            known = self.maker.both([self.maker.present(one) for one in counted])
            where = known if where is None else self.maker.both([where, known])
        elif counted:
            column = self._read(counted[0])
        elif distinct:
            column = self._read(arguments[0])
        return Aggregate("count", column, None, distinct, None if where is None else self._read(where))


def _keeps_nulls(function: Any) -> bool:
    """Whether a list or set is to hold nulls: the one switch such a function has, where it has one."""
    return any(function.productElement(at) is False for at in range(function.productArity()))
