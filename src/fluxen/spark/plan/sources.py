"""Event times of a source's rows, whatever becomes of the rows on their way to the first stage.

A filter that lets few rows through must not hold the watermark back, so the latest event time is taken below it: Spark
observes it (`DataFrame.observe`) while the batch runs. That costs a little per row and is done only where there is such
a filter. The plan is walked and rebuilt through Py4J: projections, aliases and views are passed, renamed columns are
followed, and so is one expression that computes the time. A filter on the time itself says which times are to be
believed: nothing below it counts. Where a plan has another shape (a union, a join with a static table) the rows that
reach the sites count, as without filters. `withWatermark()` says where to look, whatever is done with the rows above:
the times of the rows it was put on count, all of them and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as st
from pyspark.sql.streaming import StreamingQuery

from fluxen.durations import microseconds
from fluxen.errors import QueryError
from fluxen.spark.catalyst import (
    DELAY,
    Maker,
    column_of,
    dataframe_of,
    event_timed,
    identifier,
    identifiers,
    is_attribute,
    items,
    jvm,
    plan_of,
)
from fluxen.spark.plan.layout import field

_KEEPING = ("Project", "SubqueryAlias", "View")
_PASSED = (*_KEEPING, "Filter")
_ROW_BY_ROW = (*_PASSED, "Generate")


# ---- withWatermark()


def lateness_of(df: DataFrame, time: str | None, given: str | timedelta | None, what: str, whose: str) -> int:
    """An input's lateness: what the user gave, or the delay of its withWatermark(); both must agree."""
    stated = None if given is None else microseconds(given, what)
    if stated and time is None:
        raise QueryError(f"{what} needs the event time: pass time='column'")
    marked = {found.name: found.metadata[DELAY] for found in df.schema.fields if DELAY in found.metadata}
    if marked and _has_united_apart(plan_of(df)):
        raise QueryError(
            f"{whose} is a union of streams with a withWatermark() each, and who is behind would be late; use "
            "fx.union(), or withWatermark() on the union"
        )
    if time not in marked:
        column = next(iter(marked), None) or _watermarked(plan_of(df))
        if column is not None:
            raise QueryError(
                f"{whose} has withWatermark() on column {column!r}, but its time is {time!r}; pass time={column!r}, or "
                "leave withWatermark() out and pass lateness"
            )
        return stated or 0
    delay = int(marked[time]) * 1000
    if stated is not None and stated != delay:
        raise QueryError(
            f"{whose} has withWatermark({time!r}, '{delay // 1000} milliseconds'), but {what} is {given!r}; leave one "
            "of the two out"
        )
    return delay


def united_apart(plan: Any) -> bool:
    """Whether a plan is a union of streams of which each may be as far behind as its own withWatermark() allows.

    Parts of one stream, such as two filters of it, are as far as each other.
    """
    if plan.nodeName() != "Union" or not plan.isStreaming():
        return False
    marks = [_marks(child) for child in items(plan.children())]
    first, *rest = [mark for found in marks for mark in found] or [None]
    if first is None:
        return False
    # what is an event time of the first part may be any other column of the next one
    columns = [[event_timed(one) for one in items(child.output())] for child in items(plan.children())]
    mixed = any(of_first and not all(parts) for of_first, *parts in zip(*columns))
    return mixed or not all(marks) or not all(first.sameResult(other) for other in rest)


def _has_united_apart(plan: Any) -> bool:
    """Whether there is such a union, and no other watermark above it."""
    if plan.nodeName() == "EventTimeWatermark":
        return False
    return united_apart(plan) or any(_has_united_apart(child) for child in items(plan.children()))


def _marks(plan: Any) -> list[Any]:
    """The watermarks that count in a plan: the highest ones."""
    if plan.nodeName() == "EventTimeWatermark":
        return [plan]
    return [mark for child in items(plan.children()) for mark in _marks(child)]


def _watermarked(plan: Any) -> str | None:
    """The column of some withWatermark() in a plan."""
    if plan.nodeName() == "EventTimeWatermark":
        return str(plan.eventTime().name())
    return next((name for child in items(plan.children()) if (name := _watermarked(child)) is not None), None)


# ---- between two stages


def row_by_row(df: DataFrame) -> str | None:
    """What of a plan over an empty table is not done row by row; None if all of it is."""
    plan = plan_of(df)
    while (children := items(plan.children())) and plan.nodeName() in _ROW_BY_ROW:
        (plan,) = children
    return str(plan.nodeName()) if children else None


def origin(df: DataFrame, column: str) -> str | None:
    """The column of the table below that a column is, whatever its name has become; None if it is computed.

    A field of a column is named with a dot, as in "window.start".
    """
    plan = plan_of(df)
    number, fields = identifier(next(a for a in items(plan.output()) if a.name() == column)), list[str]()
    while children := items(plan.children()):
        made = _computed(plan).get(number) if plan.nodeName() == "Project" else None
        while made is not None and made.nodeName() == "GetStructField":
            fields.insert(0, str(made.extractFieldName()))
            made = made.child()
        if made is not None:
            if not is_attribute(made):
                return None
            number = identifier(made)
        below = (child for child in children if number in {identifier(a) for a in items(child.output())})
        plan = next(below, None)
        if plan is None:
            return None
    name = next(str(a.name()) for a in items(plan.output()) if identifier(a) == number)
    return ".".join([name, *fields])


# ---- below the filters


@dataclass(frozen=True, slots=True)
class Watched:
    """An input whose source's latest event time is observed under a name."""

    name: str
    df: DataFrame


def watched(df: DataFrame, time: str | None, name: str) -> Watched | None:
    """The input with its rows' latest event time observed below its filters; None if none is to be looked below."""
    if time is None:
        return None
    spark, plan = df.sparkSession, plan_of(df)
    attribute = next(a for a in items(plan.output()) if a.name() == time)
    found = _below_watermark(plan) if event_timed(attribute) else _below_filters(plan, attribute)
    if found is None:
        return None
    above, node, moment = found
    most = F.max(column_of(spark, moment))
    if isinstance(field(df, time, "event-time column").dataType, st.TimestampType):
        most = F.unix_micros(most)
    observed = dataframe_of(spark, node).observe(name, most.alias("latest"))
    rebuilt, maker = plan_of(observed), Maker(spark)
    for upper in reversed(above):
        rebuilt = maker.with_children(upper, [rebuilt if one.isStreaming() else one for one in items(upper.children())])
    return Watched(name, dataframe_of(spark, rebuilt))


def latest(query: StreamingQuery, spark: SparkSession, inputs: Sequence[Watched | None]) -> list[int | None]:
    """Per input: the latest event time its source had in the batch that has just run, in microseconds."""
    if not any(inputs):
        return []
    metrics = query._jsq.streamingQuery().lastExecution().observedMetrics()
    return [None if known is None else _micros(spark, metrics.get(known.name)) for known in inputs]


def _micros(spark: SparkSession, row: Any) -> int | None:
    moment = None if row.isEmpty() else row.get().get(0)
    if moment is None or isinstance(moment, int):
        return moment
    utc = jvm(spark).java.time.ZoneOffset.UTC  # a timestamp without time zone is a LocalDateTime
    return int(moment.toEpochSecond(utc)) * 1_000_000 + int(moment.getNano()) // 1000


def _below_watermark(plan: Any) -> tuple[list[Any], Any, Any] | None:
    """(nodes above, the one withWatermark() made, its event time); None if no row is lost on the way from there."""
    above: list[Any] = []
    while plan.nodeName() != "EventTimeWatermark":
        streams = [child for child in items(plan.children()) if child.isStreaming()]
        if len(streams) != 1:
            return None
        above.append(plan)
        (plan,) = streams
    losing = any(node.nodeName() not in _KEEPING for node in above)
    return (above, plan, plan.eventTime()) if losing else None


def _below_filters(plan: Any, time: Any) -> tuple[list[Any], Any, Any] | None:
    """(nodes above, node below the lowest filter that hides nothing of the time, the time as that node has it)."""
    above: list[Any] = []
    found = None
    moment, computed = time, False
    made = _made(plan)
    own = _renamed(time, made)
    while plan.nodeName() in _PASSED:
        if plan.nodeName() == "Filter" and (
            _judged(plan.condition(), moment) or not own.isdisjoint(_origins(plan.condition(), made))
        ):
            break
        if plan.nodeName() == "Project":
            below = _projected(plan, moment, computed)
            if below is None:
                break
            moment, computed = below
        above.append(plan)
        (child,) = items(plan.children())
        if plan.nodeName() == "Filter":
            found = (list(above), child, moment)
        plan = child
    return found


def _projected(project: Any, moment: Any, computed: bool) -> tuple[Any, bool] | None:
    """The time in terms of what a projection reads, and whether it is computed; None where that is unknown."""
    made = {identifier(entry): entry for entry in items(project.projectList())}
    entries = [made[id] for id in identifiers(moment)]
    if all(is_attribute(entry) for entry in entries):
        return moment, computed
    if computed or len(entries) != 1:
        return None  # an expression of expressions
    value = entries[0].child()
    if not value.deterministic():
        return None
    return value, not is_attribute(value)


def _made(plan: Any) -> dict[int, Any]:
    """What every column is that some projection on the way down computes or renames."""
    made: dict[int, Any] = {}
    while plan.nodeName() in _PASSED:
        if plan.nodeName() == "Project":
            made.update(_computed(plan))
        (plan,) = items(plan.children())
    return made


def _computed(project: Any) -> dict[int, Any]:
    """The columns that a projection computes or renames, each with what it is."""
    entries = [entry for entry in items(project.projectList()) if not is_attribute(entry)]
    return {identifier(entry): entry.child() for entry in entries}


def _renamed(time: Any, made: dict[int, Any]) -> set[int]:
    """The time under all names it has before it is computed."""
    own = {identifier(time)}
    while (time := made.get(identifier(time))) is not None and is_attribute(time):
        own.add(identifier(time))
    return own


def _origins(expression: Any, made: dict[int, Any]) -> set[int]:
    """The columns an expression reads, and those that they were computed from."""
    if expression.nodeName() == "IsNotNull":
        return set()
    if not is_attribute(expression):
        return set[int]().union(*(_origins(child, made) for child in items(expression.children())))
    number = identifier(expression)
    return {number} | (_origins(made[number], made) if number in made else set())


def _judged(condition: Any, moment: Any) -> bool:
    """Whether a condition looks at what the time is made of."""
    made, read = _paths(moment), _paths(condition)
    return any(a[: len(b)] == b or b[: len(a)] == a for a in made for b in read)


def _paths(expression: Any) -> set[tuple[int, ...]]:
    """The columns, and fields within columns, that an expression reads; that there is a value judges none."""
    if is_attribute(expression):
        return {(identifier(expression),)}
    if expression.nodeName() == "IsNotNull":
        return set()
    inner = set[tuple[int, ...]]().union(*(_paths(child) for child in items(expression.children())))
    if expression.nodeName() == "GetStructField":
        return {(*path, expression.ordinal()) for path in inner}
    return inner
