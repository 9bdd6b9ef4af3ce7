"""Down a plan, cutting it at every stateful node over streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from fluxen.operators.aggregate.windowed import Emit
from fluxen.spark.catalyst import Maker, event_timed, identifier, identifiers, is_attribute, items, jvm, plan_of
from fluxen.spark.compile.aggregates import aggregated
from fluxen.spark.compile.conditions import conjuncts
from fluxen.spark.compile.joins import inner_join, other_join
from fluxen.spark.compile.normal import normalised
from fluxen.spark.compile.pieces import Piece, struct_end, told
from fluxen.spark.compile.refusals import (
    check_between,
    check_source,
    check_static,
    check_union,
    refused,
    unknown,
)
from fluxen.spark.compile.rows import deduplicated, first_rows, is_top, united
from fluxen.spark.plan.base import Shape, StagePlan
from fluxen.spark.plan.sources import united_apart

__all__ = ["Compiled", "compiled"]

_JOINS = {
    "INNER": "inner",
    "CROSS": "inner",
    "LEFT OUTER": "left",
    "RIGHT OUTER": "right",
    "FULL OUTER": "full",
    "LEFT SEMI": "semi",
    "LEFT ANTI": "anti",
}
_STATEFUL = {
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "Window",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
    "TransformWithStateInPandas",
    "FlatMapGroupsInPandas",
    "FlatMapGroupsInArrow",
    "FlatMapCoGroupsInPandas",
    "MapGroups",
    "CoGroup",
    "WindowGroupLimit",
}


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A DataFrame as stages."""

    last: StagePlan
    shape: Shape
    """from the last stage's results to the DataFrame's columns"""
    note: str
    """what Spark does with those results, for `explain`"""


def compiled(df: DataFrame, emit: Emit = "append") -> Compiled | None:
    """The stages of a streaming DataFrame; groups that end come out when they do, or with every change of the last.

    None if it keeps no state.
    """
    maker = Maker(df.sparkSession)
    plan, walk = normalised(maker, plan_of(df)), _Walk(maker, emit)
    piece = walk.piece(plan, {identifier(one) for one in items(plan.output())}, last=True)
    if piece.stage is None:
        return None
    output = items(plan.output())
    return Compiled(last=piece.stage, shape=piece.finished(output), note=told(piece.plan))


class _Walk:
    def __init__(self, maker: Maker, emit: Emit) -> None:
        self.maker, self.emit = maker, emit

    def piece(self, node: Any, needed: set[int], *, last: bool = False) -> Piece:
        """What a node gives, of which the columns in `needed` are read; `last` if no stateful node is above."""
        if not _is_cut(node) or (last and not _has_state(node)):
            check_source(node)
            return Piece(maker=self.maker, plan=node, node=node)
        name, children = str(node.nodeName()), items(node.children())
        if name == "Join" and all(child.isStreaming() for child in children):
            return self._join(node, needed)
        if name == "Distinct" and not _has_state(children[0]) and any(map(_window, items(node.output()))):
            # a window's end is no event time of a source's rows, so its rows are groups, which end with the window
            node = jvm(self.maker.spark).org.apache.spark.sql.catalyst.optimizer.ReplaceDistinctWithAggregate.apply(
                node
            )
            name = str(node.nodeName())
        if name == "Aggregate":
            return self._aggregate(node, last)
        if name in ("Distinct", "Deduplicate", "DeduplicateWithinWatermark"):
            keys = items(node.keys()) if name != "Distinct" else items(node.output())
            return deduplicated(node, self._input(children[0], needed | {identifier(key) for key in keys}), needed)
        if is_top(node):
            (below,) = items(children[0].children())
            read = needed | identifiers(node) | identifiers(children[0])
            return first_rows(node, self._input(below, read), read)
        if name == "Union":
            return self._union(node, needed, last)
        if name in _STATEFUL:
            raise unknown(node)
        check_between(node)
        if name == "Project":
            node = self._pruned(node, needed)
        at = next(at for at, child in enumerate(children) if child.isStreaming())
        check_static(node)
        return self.piece(children[at], needed | identifiers(node), last=last).under(node, at)

    def _pruned(self, project: Any, needed: set[int]) -> Any:
        """Only what is read; event times may be read by whoever looks for one."""
        entries = items(project.projectList())
        kept = [one for one in entries if identifier(one) in needed or event_timed(one.toAttribute())]
        (child,) = items(project.children())
        return project if len(kept) == len(entries) else self.maker.project(kept or entries[:1], child)

    def _input(self, node: Any, needed: set[int]) -> Piece:
        """What feeds a stage."""
        times = {identifier(one) for one in items(node.output()) if event_timed(one)}
        piece = self.piece(node, needed | times)
        if piece.stage is not None and piece.stage.stage.operator.emits == "update":
            raise refused(
                "a stateful operator over running aggregates",
                node,
                "their values change with every batch; group by a window of an event time, so that each comes out once",
            )
        return piece

    def _aggregate(self, node: Any, last: bool) -> Piece:
        (child,) = items(node.children())
        return aggregated(node, self._input(child, identifiers(node)), self.emit if last else "append")

    def _union(self, node: Any, needed: set[int], last: bool) -> Piece:
        """Rows of streams and of stages; where nothing stateful is above, results may change later."""
        inputs = _branches(node)
        read = [
            (above, below)
            for above, *below in zip(items(node.output()), *(items(one.output()) for one in inputs))
            if identifier(above) in needed or event_timed(above)
        ]
        pieces = []
        for at, one in enumerate(inputs):
            wanted = {identifier(below[at]) for _, below in read}
            pieces.append(self.piece(one, wanted, last=True) if last else self._input(one, wanted))
        return united(node, pieces, read)

    def _join(self, node: Any, needed: set[int]) -> Piece:
        how = _JOINS.get(str(node.joinType().sql()))
        if how is None:
            raise refused(f"a {node.joinType().sql().lower()} join of two streams", node, "write it as an inner join")
        if how == "inner":
            inputs, conditions = _flattened(node)
        else:
            inputs, conditions = items(node.children()), _on(node)
        read = needed.union(*(identifiers(one) for one in conditions))
        pieces = [self._input(one, read) for one in inputs]
        if how == "inner":
            return inner_join(node, pieces, conditions, needed)
        return other_join(node, how, pieces, conditions, needed)


def _window(attribute: Any) -> bool:
    return event_timed(attribute) and struct_end(attribute)


def _has_state(node: Any) -> bool:
    """Whether there is a stateful node over streams."""
    if not node.isStreaming():
        return False
    children = items(node.children())
    if node.nodeName() in _STATEFUL or (node.nodeName() == "Join" and all(child.isStreaming() for child in children)):
        return True
    return any(_has_state(child) for child in children)


def _is_cut(node: Any) -> bool:
    """Whether there is something for a stage: state, or streams put together that have a watermark each.

    Spark's union of these has one event time, and who is behind would be late.
    """
    if _has_state(node) or united_apart(node):
        return True
    return any(_is_cut(child) for child in items(node.children()))


def _branches(union: Any) -> list[Any]:
    """The inputs of unions one below the other."""
    check_union(union)
    found = []
    for child in items(union.children()):
        found += _branches(child) if child.nodeName() == "Union" and not child.byName() else [child]
    return found


def _on(join: Any) -> list[Any]:
    return conjuncts(join.condition().get()) if join.condition().isDefined() else []


def _flattened(node: Any) -> tuple[list[Any], list[Any]]:
    """The inputs of inner joins one below the other, and all their conditions."""
    below = node
    conditions = []
    while below.nodeName() == "Filter" or (
        below.nodeName() == "Project" and all(is_attribute(one) for one in items(below.projectList()))
    ):
        conditions += conjuncts(below.condition()) if below.nodeName() == "Filter" else []
        (below,) = items(below.children())
    children = items(below.children())
    streams = below.nodeName() == "Join" and all(child.isStreaming() for child in children)
    if not streams or _JOINS.get(str(below.joinType().sql())) != "inner":
        return [node], []
    conditions += _on(below)
    inputs = []
    for child in children:
        found, more = _flattened(child)
        inputs += found
        conditions += more
    return inputs, conditions
