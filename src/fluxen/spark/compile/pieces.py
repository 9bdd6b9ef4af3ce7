"""What lies between two cuts: a plan over sources, or over the results of one stage, that Spark runs row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import _parse_datatype_json_string

from fluxen.spark.catalyst import (
    Maker,
    dataframe_of,
    event_timed,
    identifier,
    is_attribute,
    items,
    plan_of,
)
from fluxen.spark.compile.refusals import BETWEEN, check_repeatable
from fluxen.spark.plan.base import RESERVED, Given, Shape, StagePlan
from fluxen.spark.plan.layout import quoted

__all__ = ["STAMPS", "Names", "Piece", "definition", "expanded", "struct_end", "told"]

STAMPS = ("timestamp", "timestamp_ntz")


class Names:
    """Names that no two columns share, whatever their case; none of them is fluxen's own."""

    def __init__(self) -> None:
        self._taken = set(RESERVED)

    def new(self, wanted: str) -> str:
        """The wanted name, or that name with a number.

        >>> names = Names()
        >>> [names.new(name) for name in ("id", "ID", "_t")]
        ['id', 'ID_2', '_t_2']
        """
        name, number = wanted, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name.lower())
        return name


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """A plan whose only streaming rows come from sources, or from one stage."""

    maker: Maker
    plan: Any
    """over a stage, its results are a leaf with the columns that `results` says"""
    node: Any
    """the part of the query that this is, uncut"""
    stage: StagePlan | None = None
    results: tuple[tuple[str, Any], ...] = ()
    """(a result column of the stage, a column of the plan that it is)"""
    ends: Mapping[int, Any] = field(default_factory=dict)
    """of windows among these that the stage knows the progress of by a column of its own: that column"""

    @cached_property
    def output(self) -> list[Any]:
        return items(self.plan.output())

    @cached_property
    def ids(self) -> set[int]:
        return {identifier(attribute) for attribute in self.output}

    @property
    def event_times(self) -> list[Any]:
        """Columns that are event times: timestamps, and windows."""
        return [attribute for attribute in self.output if self.timed(attribute)]

    def timed(self, attribute: Any) -> bool:
        """Whether Spark takes a column for an event time and the stage, if there is one, knows how far it has come."""
        if not event_timed(attribute) or self.stage is None:
            return event_timed(attribute)
        name = self._clock(attribute)
        return name is not None and self.stage.stage.timed(name)

    def endless(self, attribute: Any) -> bool:
        """Whether the stage knows of an event time that rows to come may be as old as they like."""
        name = None if self.stage is None else self._clock(attribute)
        return name is not None and self.stage is not None and self.stage.stage.unbounded(name)

    def _clock(self, attribute: Any) -> str | None:
        """The column by which the stage would know how far an event time of its results has come."""
        number = self._below(identifier(attribute))
        end = self.ends.get(number or 0)
        wanted = number if end is None else identifier(end)
        name = next((name for name, one in self.results if identifier(one) == wanted), None)
        return f"{name}.end" if name is not None and end is None and struct_end(attribute) else name

    def end(self, window: Any) -> tuple[Piece, Any] | None:
        """When windows end, as the stage knows it, and the piece that has that; None where it cannot be had."""
        known = self.ends.get(self._below(identifier(window)) or 0)
        carrying = self.carrying(window if known is None else known)
        return None if carrying is None else (carrying, self.maker.field(window, "end") if known is None else known)

    def _below(self, number: int) -> int | None:
        """The column of the leaf that a column of the plan is, perhaps one that projections have dropped."""
        plan = self.plan
        while children := items(plan.children()):
            entries = items(plan.projectList()) if plan.nodeName() == "Project" else []
            made = next((one for one in entries if identifier(one) == number and not is_attribute(one)), None)
            if made is not None and not is_attribute(made.child()):
                return None
            number = number if made is None else identifier(made.child())
            plan = next((child for child in children if child.isStreaming()), children[0])
        return number

    def under(self, node: Any, at: int = 0) -> Piece:
        """The piece below a node of the query, as its child number `at`."""
        children = items(node.children())
        children[at] = self.plan
        return replace(self, plan=self.maker.with_children(node, children), node=node)

    def filtered(self, conditions: Sequence[Any]) -> Piece:
        if not conditions:
            return self
        return replace(self, plan=self.maker.filter(self.maker.both(conditions), self.plan))

    def carrying(self, attribute: Any) -> Piece | None:
        """The piece with a column of a plan below that projections have dropped; None where it cannot be had."""
        plan = _carrying(self.maker, self.plan, attribute)
        return None if plan is None else replace(self, plan=plan)

    def given(self, columns: Sequence[tuple[Any, str]]) -> Given:
        """These expressions under these names, as an input of a stage."""
        if self.stage is not None:
            for one, _ in columns:
                check_repeatable(one)
        # a stage's results have the watermark of the stage; what Spark noted in their columns is of no use
        entries = [self.maker.alias(one, name, unmarked=self.stage is not None) for one, name in columns]
        top = self.maker.project(entries, self.plan)
        if self.stage is None:
            return Given(df=dataframe_of(self.maker.spark, top), note=told(top))
        shape = self.shape(top)
        return Given(df=shape(self._empty(self.stage)), plan=self.stage, shape=shape, note=told(top))

    def finished(self, output: Sequence[Any]) -> Shape:
        """From the stage's results to these columns, under their own names."""
        return self.shape(self.maker.project(output, self.plan))

    def _empty(self, stage: StagePlan) -> DataFrame:
        return self.maker.spark.createDataFrame([], stage.schema)

    def shape(self, top: Any) -> Shape:
        """A batch of the stage's results put in the place of the leaf, and all nodes above it as they are."""
        assert self.stage is not None
        spine, maker = _spine(top), self.maker
        attributes = [(self.stage.schema.names.index(name), attribute) for name, attribute in self.results]
        typed = _typed(self._empty(self.stage), attributes)

        def of(results: DataFrame) -> DataFrame:
            plan = plan_of(typed(results))
            columns = items(plan.output())
            plan = maker.project([maker.alias(columns[at], one.name(), of=one) for at, one in attributes], plan)
            for node, at in spine:
                children = items(node.children()) if at is not None else [None]
                children[at or 0] = plan
                plan = maker.with_children(node, children)
            return dataframe_of(results.sparkSession, plan)

        return of


def _typed(empty: DataFrame, attributes: Sequence[tuple[int, Any]]) -> Callable[[DataFrame], DataFrame]:
    """Results with the types that the plan expects, where a stage's are not the same to the letter."""
    found = items(plan_of(empty).output())
    other = {at: one.dataType().json() for at, one in attributes if not found[at].dataType().sameType(one.dataType())}
    if not other:
        return lambda results: results
    kinds = {at: _parse_datatype_json_string(text) for at, text in other.items()}

    def of(results: DataFrame) -> DataFrame:
        columns = [F.col(quoted(name)) for name in results.columns]
        return results.select(*(one.cast(kinds[at]) if at in kinds else one for at, one in enumerate(columns)))

    return of


def _spine(top: Any) -> list[tuple[Any, int | None]]:
    """The nodes from above the leaf of results to the top, each with which child is below; None for the only one."""
    below: list[tuple[Any, int | None]] = []
    node = top
    while children := items(node.children()):
        if len(children) == 1:
            below.append((node, None))
            node = children[0]
            continue
        (at,) = [number for number, child in enumerate(children) if child.isStreaming()]
        below.append((node, at))
        node = children[at]
    return below[::-1]


def _carrying(maker: Maker, plan: Any, attribute: Any) -> Any:
    if identifier(attribute) in {identifier(one) for one in items(plan.output())}:
        return plan
    children = items(plan.children())
    if len(children) != 1 or plan.nodeName() not in ("Project", "Filter", "EventTimeWatermark"):
        return None
    child = _carrying(maker, children[0], attribute)
    if child is None:
        return None
    if plan.nodeName() == "Project":
        return maker.project([*items(plan.projectList()), attribute], child)
    return maker.with_children(plan, [child])


def definition(plan: Any, number: int) -> Any:
    """What a column is computed from, below this node; None where it comes as it is, or from several places."""
    while plan.nodeName() != "Union":
        if plan.nodeName() in ("Project", "Aggregate"):
            entries = plan.projectList() if plan.nodeName() == "Project" else plan.aggregateExpressions()
            found = next((one for one in items(entries) if identifier(one) == number), None)
            if found is not None and not is_attribute(found):
                if not is_attribute(found.child()):
                    return found.child()
                number = identifier(found.child())
        elif plan.nodeName() == "Expand" and (made := expanded(plan, number)):
            if not is_attribute(made[0]):
                return made[0]
            if not all(made[0].semanticEquals(other) for other in made):
                return None
            number = identifier(made[0])
        children = items(plan.children())
        plan = next((child for child in children if number in {identifier(a) for a in items(child.output())}), None)
        if plan is None:
            return None
    return None


def expanded(plan: Any, number: int) -> list[Any]:
    """What an Expand gives for a column, per row that it makes of one; nothing where that is not its column."""
    at = next((at for at, one in enumerate(items(plan.output())) if identifier(one) == number), None)
    return [] if at is None else [row.apply(at) for row in items(plan.projections())]


def struct_end(attribute: Any) -> bool:
    """Whether a column is a window: a struct that ends at a time."""
    kind = attribute.dataType()
    if kind.typeName() != "struct":
        return False
    return any(one.name() == "end" and one.dataType().typeName() in STAMPS for one in kind.fields())


def told(plan: Any) -> str:
    """What Spark does with rows before they come to a stage, in a few words."""
    words: list[str] = []
    while True:
        name = str(plan.nodeName())
        if name == "Filter":
            words.append(f"where {plan.condition().sql()}")
        elif name == "Generate":
            words.append("generate")
        elif name == "Join":
            words.append("join with a static table")
        elif name in ("Aggregate", "Expand"):
            words.append("windows")
        elif name in BETWEEN and name not in ("Project",):
            words.append(name)
        children = items(plan.children())
        if not children:
            break
        plan = next((child for child in children if child.isStreaming()), children[0])
    return ", ".join(dict.fromkeys(reversed(words)))
