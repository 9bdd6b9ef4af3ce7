"""Spark's plans and expressions through Py4J: reading them, and making new ones out of their parts.

The classes are Catalyst's own and not a public interface. What is used here is the same in Spark 3.5 and 4; a plan that
looks different is refused by whoever reads it, never guessed at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "DELAY",
    "Maker",
    "column_of",
    "dataframe_of",
    "event_timed",
    "every_expression",
    "field_name",
    "identifier",
    "identifiers",
    "is_attribute",
    "items",
    "jvm",
    "optional",
    "plan_of",
    "same_type",
]

DELAY = "spark.watermarkDelayMs"
"""Where Spark notes, in a column's metadata, the delay that withWatermark() gave it."""


def jvm(spark: SparkSession) -> Any:
    return spark._jvm


def plan_of(df: DataFrame) -> Any:
    """A DataFrame's analysed plan."""
    return df._jdf.queryExecution().analyzed()


def dataframe_of(spark: SparkSession, plan: Any) -> DataFrame:
    sql = jvm(spark).org.apache.spark.sql
    home = sql.Dataset if spark.version.startswith("3.") else sql.classic.Dataset
    return DataFrame(home.ofRows(spark._jsparkSession, plan), spark)


def column_of(spark: SparkSession, expression: Any) -> Column:
    sql = jvm(spark).org.apache.spark.sql
    older = spark.version.startswith("3.")
    return Column(sql.Column(expression) if older else sql.classic.ExpressionUtils.column(expression))


def items(sequence: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [sequence.apply(at) for at in range(sequence.size())]


def optional(option: Any) -> Any:
    """What a Scala option holds; None for nothing."""
    return option.get() if option.isDefined() else None


def is_attribute(expression: Any) -> bool:
    return bool(expression.nodeName() == "AttributeReference")


def identifier(named: Any) -> int:
    """What tells a column from every other one of this JVM. Nothing that is stored may hold it."""
    return int(named.exprId().id())


def identifiers(expression: Any) -> set[int]:
    """The columns that an expression, or a node, reads."""
    return {identifier(attribute) for attribute in items(expression.references().toSeq())}


def field_name(expression: Any) -> str:
    """Of a GetStructField, the field."""
    return str(expression.extractFieldName())


def event_timed(attribute: Any) -> bool:
    """Whether Spark takes a column for an event time under a watermark."""
    return bool(attribute.metadata().contains(DELAY))


def same_type(one: Any, other: Any) -> bool:
    """Whether two types differ in nothing but what may be null."""
    return bool(one.sameType(other))


def every_expression(expression: Any) -> Iterator[Any]:
    """An expression and all that it is made of."""
    yield expression
    for child in items(expression.children()):
        yield from every_expression(child)


class Maker:
    """Makes plans and expressions."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._expressions = jvm(spark).org.apache.spark.sql.catalyst.expressions
        self._logical = jvm(spark).org.apache.spark.sql.catalyst.plans.logical
        self._none = jvm(spark).scala.Option.empty()
        self.labels: dict[int, str] = {}
        """what the query calls the table that a column comes from"""

    def sequence(self, made: Iterable[Any]) -> Any:
        return jvm(self.spark).PythonUtils.toSeq(list(made))

    def alias(self, expression: Any, name: str, *, of: Any = None, unmarked: bool = False) -> Any:
        """An expression under a name: as a new column, or as the column `of`. `unmarked` is without metadata."""
        new = self._expressions.NamedExpression.newExprId() if of is None else of.exprId()
        # Spark 3.5 takes empty metadata for none at all and inherits them
        other = jvm(self.spark).org.apache.spark.sql.types.Metadata.fromJson('{"fluxen": "a result"}')
        metadata = jvm(self.spark).scala.Option.apply(other) if unmarked else self._none
        empty = self.sequence([])
        return self._expressions.Alias(expression, name, new, empty, metadata, empty)

    def both(self, conditions: Sequence[Any]) -> Any:
        """The conjunction of one or more conditions."""
        whole, *rest = conditions
        for condition in rest:
            whole = self._expressions.And(whole, condition)
        return whole

    def compare(self, kind: str, one: Any, other: Any) -> Any:
        """A comparison, by the name of its class."""
        return getattr(self._expressions, kind)(one, other)

    def join_on(self, join: Any, condition: Any) -> Any:
        """The join with another condition."""
        some = jvm(self.spark).scala.Option.apply(condition)
        return self._logical.Join(join.left(), join.right(), join.joinType(), some, join.hint())

    def one_zero(self, expression: Any) -> Any:
        """An expression with 0.0 for -0.0, as Spark has what it groups by or what is distinct."""
        rule = getattr(jvm(self.spark).org.apache.spark.sql.catalyst.optimizer, "NormalizeFloatingNumbers$")
        return getattr(rule, "MODULE$").normalize(expression)

    def only(self, condition: Any, expression: Any) -> Any:
        """An expression where a condition holds, and null elsewhere."""
        return self._expressions.If(condition, expression, self._expressions.Literal(None, expression.dataType()))

    def present(self, expression: Any) -> Any:
        return self._expressions.IsNotNull(expression)

    def literal(self, value: int | str) -> Any:
        kinds, spark = jvm(self.spark).org.apache.spark.sql.types.DataTypes, jvm(self.spark).org.apache.spark
        if isinstance(value, str):
            return self._expressions.Literal(spark.unsafe.types.UTF8String.fromString(value), kinds.StringType)
        return self._expressions.Literal(value, kinds.IntegerType)

    def struct(self, expressions: Sequence[Any]) -> Any:
        parts = [part for at, one in enumerate(expressions) for part in (self.literal(f"v{at}"), one)]
        return self._expressions.CreateNamedStruct(self.sequence(parts))

    def field(self, struct: Any, name: str) -> Any:
        """A field of a struct."""
        at = struct.dataType().fieldIndex(name)
        return self._expressions.GetStructField(struct, at, jvm(self.spark).scala.Option.apply(name))

    def project(self, entries: Iterable[Any], plan: Any) -> Any:
        return self._logical.Project(self.sequence(entries), plan)

    def filter(self, condition: Any, plan: Any) -> Any:
        return self._logical.Filter(condition, plan)

    def leaf(self, attributes: Iterable[Any], *, streaming: bool) -> Any:
        """A leaf with these columns that stands for something else."""
        output, empty = self.sequence(attributes), self.sequence([])
        if self.spark.version.startswith("3."):
            return self._logical.LocalRelation(output, empty, streaming)
        return self._logical.LocalRelation(output, empty, streaming, self._none)

    def first_row(self, expand: Any) -> Any:
        """An Expand that makes only the first of the rows that it makes of one."""
        return self._logical.Expand(self.sequence([expand.projections().apply(0)]), expand.output(), expand.child())

    def computed(self, expression: Any, moment: int) -> Any:
        """What an expression is where the timestamps that it reads are this one, in microseconds."""
        return self._at(expression, moment).eval(None)

    def _at(self, expression: Any, moment: int) -> Any:
        if is_attribute(expression):
            return self._expressions.Literal(moment, expression.dataType())
        children = items(expression.children())
        return self.with_children(expression, [self._at(one, moment) for one in children]) if children else expression

    def with_children(self, node: Any, children: Sequence[Any]) -> Any:
        return node.withNewChildren(self.sequence(children))
