"""What cannot be run: the construct, where it stands in the query, what to write instead."""

from __future__ import annotations

from typing import Any

from fluxen.errors import QueryError
from fluxen.spark.catalyst import every_expression, items, optional

__all__ = [
    "check_between",
    "check_repeatable",
    "check_source",
    "check_static",
    "check_union",
    "place",
    "refused",
    "unknown",
]

_INSTEAD = {
    "Sort": "a stream has no end to sort up to; sort in the sink, batch by batch",
    "GlobalLimit": "a stream has no first rows to stop after; limit what reads the results",
    "LocalLimit": "a stream has no first rows to stop after; limit what reads the results",
    "Offset": "a stream has no first rows to leave out; do it in what reads the results",
    "Tail": "a stream has no last rows; do it in what reads the results",
    "FlatMapGroupsWithState": "state that only its function understands cannot move; write it as fx.stateful()",
    "FlatMapGroupsInPandasWithState": "state that only its function understands cannot move; write it as fx.stateful()",
    "TransformWithState": "state that only its function understands cannot move; write it as fx.stateful()",
    "TransformWithStateInPySpark": "state that only its function understands cannot move; write it as fx.stateful()",
    "TransformWithStateInPandas": "state that only its function understands cannot move; write it as fx.stateful()",
    "FlatMapGroupsInPandas": "its groups are those of one batch; aggregate, or write it as fx.stateful()",
    "FlatMapGroupsInArrow": "its groups are those of one batch; aggregate, or write it as fx.stateful()",
    "FlatMapCoGroupsInPandas": "its groups are those of one batch; join, or write it as fx.stateful()",
    "MapGroups": "its groups are those of one batch; aggregate, or write it as fx.stateful()",
    "Intersect": "write it as a left semi join with event-time bounds",
    "Except": "write it as a left anti join with event-time bounds",
    "Sample": "sample the source, or keep rows by a hash of their key",
    "Window": "of window functions there is row_number(), with a filter such as rn <= 10 on it",
}
_NOW = {"current_timestamp", "now", "current_date", "curdate", "localtimestamp", "current_time"}
_SUBQUERIES = {"ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"}
_KEPT = {"INNER": (0, 1), "CROSS": (0, 1), "RIGHT OUTER": (1,)}
_KEPT |= dict.fromkeys(("LEFT OUTER", "LEFT SEMI", "LEFT ANTI"), (0,))
"""Per kind of join, the sides that may be the stream where the other one is a static table."""
BETWEEN = {"Project", "Filter", "Generate", "Expand", "Join", "Repartition", "RepartitionByExpression", "ResolvedHint"}
"""Nodes that may stand above a stateful one: what they do with a row depends on nothing but the row."""
BETWEEN |= {"MapInPandas", "MapInArrow", "PythonMapInArrow"}


def place(node: Any) -> str:
    """Where a node or an expression stands, as well as Spark knows."""
    origin = node.origin()
    line, column = optional(origin.line()), optional(origin.startPosition())
    return "" if line is None else f" (line {line}, position {0 if column is None else column + 1})"


def refused(what: str, node: Any, instead: str) -> QueryError:
    return QueryError(f"{what}{place(node)} cannot run on fluxen: {instead}")


def check_source(plan: Any) -> None:
    """Raise for what Spark itself would refuse in a stream, when the query is built and not when it starts."""
    name = str(plan.nodeName())
    if plan.isStreaming() and name in _INSTEAD:
        raise refused(_shown(plan), plan, _INSTEAD[name])
    if name == "EventTimeWatermark" and (below := _marked(items(plan.children()))) is not None:
        raise refused("withWatermark() above another one", plan, f"{below} has one already; leave one of them out")
    check_static(plan)
    check_union(plan)
    for child in items(plan.children()):
        check_source(child)


def _marked(plans: list[Any]) -> str | None:
    """The column that withWatermark() was put on in one of these plans."""
    for plan in plans:
        if plan.nodeName() == "EventTimeWatermark":
            return str(plan.eventTime().sql())
        if (found := _marked(items(plan.children()))) is not None:
            return found
    return None


def unknown(node: Any) -> QueryError:
    """What to raise for a stateful operator that no stage is made of."""
    instead = "it is not among the stateful operators that fluxen knows"
    return refused(_shown(node), node, _INSTEAD.get(str(node.nodeName()), instead))


def check_union(node: Any) -> None:
    """Raise for a union of a stream with a static table, which has no place among the batches."""
    if node.nodeName() == "Union" and len({bool(child.isStreaming()) for child in items(node.children())}) > 1:
        raise refused("UNION of a stream with a static table", node, "read the table as a stream, too")


def check_static(node: Any) -> None:
    """Raise for a join of a stream with a static table that needs rows of the table without a partner."""
    if node.nodeName() != "Join":
        return
    streams = [at for at, child in enumerate(items(node.children())) if child.isStreaming()]
    how = str(node.joinType().sql())
    if len(streams) == 1 and streams[0] not in _KEPT.get(how, ()):
        raise refused(
            f"a {how.lower()} join with a static table", node, "the stream must be the side whose rows are all kept"
        )


def check_between(node: Any) -> None:
    """Raise unless a node above a stateful one gives the same when a batch is delivered again."""
    name = str(node.nodeName())
    if name in _INSTEAD:
        raise refused(_shown(node), node, _INSTEAD[name])
    if name == "EventTimeWatermark":
        raise refused(
            "withWatermark() above a stateful operator", node, "its results have event times already; leave it out"
        )
    if name not in BETWEEN:
        raise refused(f"{name} above a stateful operator", node, "do it in the sink, or in a query of its own")
    for expression in items(node.expressions()):
        check_repeatable(expression)
    for child in items(node.children()):
        if not child.isStreaming():
            _check_table(child)


def _check_table(plan: Any) -> None:
    """Raise unless a static table that results are put together with is the same when a batch is delivered again."""
    for expression in items(plan.expressions()):
        check_repeatable(expression)
    for child in items(plan.children()):
        _check_table(child)


def check_repeatable(expression: Any) -> None:
    """Raise for what gives another value when a batch is delivered again."""
    for one in every_expression(expression):
        if one.nodeName() in _SUBQUERIES:
            _check_table(one.plan())
        name = str(one.prettyName())
        random = not one.deterministic() and all(part.deterministic() for part in items(one.children()))
        if name in _NOW or random:
            raise refused(
                f"{name}() above a stateful operator",
                one,
                "it gives something else when a batch is delivered again; compute it below, or in the sink",
            )


def _shown(node: Any) -> str:
    name = str(node.nodeName())
    return {"GlobalLimit": "LIMIT", "LocalLimit": "LIMIT", "Sort": "ORDER BY"}.get(name, name)
