"""A plan in order: names and views resolved, common table expressions in place, predicates as far down as they may go.

Predicates do not go below `withWatermark()`: the watermark is that of the rows it was put on, or it would stand still
where few rows pass. While Spark's rules run, everything below is hidden in a leaf.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from fluxen.errors import QueryError
from fluxen.spark.catalyst import Maker, identifier, items, jvm

__all__ = ["normalised"]

_TRANSPARENT = ("SubqueryAlias", "View", "ResolvedHint")
_ROUNDS = 50


def normalised(maker: Maker, plan: Any) -> Any:
    spark, hidden = maker.spark, list[Any]()
    _label(plan, maker.labels)
    plan = _hide(maker, _plain(maker, _inlined(spark, plan)), hidden)
    rules = jvm(spark).org.apache.spark.sql.catalyst.optimizer
    for _ in range(_ROUNDS):
        after = rules.CombineFilters.apply(rules.PushDownPredicates.apply(plan))
        if after.fastEquals(plan):
            return _restore(maker, after, iter(hidden))
        plan = after
    raise QueryError("Spark's rules for predicates do not come to an end on this plan; simplify its conditions")


def _label(plan: Any, labels: dict[int, str]) -> None:
    """Note what tables are called where they are used; the outermost name counts."""
    if plan.nodeName() == "SubqueryAlias" and not str(plan.alias()).startswith("__"):
        for attribute in items(plan.output()):
            labels.setdefault(identifier(attribute), str(plan.alias()))
    for child in items(plan.children()):
        _label(child, labels)


def _inlined(spark: SparkSession, plan: Any) -> Any:
    """The plan with every use of a WITH clause replaced by what it stands for."""
    if not _uses(plan, "WithCTE"):
        return plan
    rule = jvm(spark).org.apache.spark.sql.catalyst.optimizer.InlineCTE
    for more in range(3):  # the number of switches differs between versions; the first is "always"
        try:
            return rule(True, *[False] * more).apply(plan)
        except Exception as error:
            if "does not exist" not in str(error):
                raise
    raise QueryError(f"WITH clauses cannot be read in plans of Spark {spark.version}; write subqueries or views")


def _uses(plan: Any, name: str) -> bool:
    return bool(plan.nodeName() == name) or any(_uses(child, name) for child in items(plan.children()))


def _plain(maker: Maker, plan: Any) -> Any:
    """Without nodes that only name or hint, and with BETWEEN as two comparisons."""
    children = [_plain(maker, child) for child in items(plan.children())]
    if plan.nodeName() in _TRANSPARENT:
        return children[0]
    plan = maker.with_children(plan, children) if children else plan
    if plan.nodeName() == "Filter":
        return maker.filter(_compared(maker, plan.condition()), children[0])
    if plan.nodeName() == "Join" and plan.condition().isDefined():
        return maker.join_on(plan, _compared(maker, plan.condition().get()))
    return plan


def _compared(maker: Maker, condition: Any) -> Any:
    if condition.nodeName() == "Between":
        return maker.both(
            [
                maker.compare("GreaterThanOrEqual", condition.input(), condition.lower()),
                maker.compare("LessThanOrEqual", condition.input(), condition.upper()),
            ]
        )
    if condition.nodeName() in ("And", "Or", "Not"):
        return maker.with_children(condition, [_compared(maker, part) for part in items(condition.children())])
    return condition


def _hide(maker: Maker, plan: Any, hidden: list[Any]) -> Any:
    """A leaf in the place of everything below a watermark, which goes to `hidden`, from left to right."""
    if plan.nodeName() == "EventTimeWatermark":
        hidden.append(plan)
        return maker.leaf(items(plan.output()), streaming=True)
    children = items(plan.children())
    return maker.with_children(plan, [_hide(maker, child, hidden) for child in children]) if children else plan


def _restore(maker: Maker, plan: Any, hidden: Iterator[Any]) -> Any:
    """What was hidden, in its place: a union may have the columns of one stream on both sides, so these do not tell."""
    children = items(plan.children())
    if children:
        return maker.with_children(plan, [_restore(maker, child, hidden) for child in children])
    return next(hidden) if plan.nodeName() == "LocalRelation" and plan.isStreaming() else plan
