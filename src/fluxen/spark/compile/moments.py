"""Event times in conditions: a column, or the end of a window, and a constant distance from it.

b.ts <= a.ts + INTERVAL 10 SECONDS          the times of two inputs, 10 seconds apart at most
a.ts >= w.start                             w.start is w.end less the window's length
window_time(w)                              w.end less a microsecond
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fluxen.spark.catalyst import Maker, field_name, identifier, is_attribute, items, jvm
from fluxen.spark.compile.pieces import STAMPS, Piece, definition, struct_end
from fluxen.spark.compile.refusals import refused

__all__ = ["Distance", "Moment", "Moments", "session_of", "with_windows"]

_DAY = 86_400_000_000
_PARTS = ("months", "days", "microseconds")
SLACK = 2 * 3_600_000_000
"""A day of a zone with summer time is this much shorter or longer, at most."""
_ADD = ("TimeAdd", "TimestampAddInterval", "TimestampAddYMInterval")
_CONVERTED = ("PreciseTimestampConversion", "KnownNullable")
_SIGNS = {
    "GreaterThanOrEqual": ">=",
    "GreaterThan": ">",
    "LessThanOrEqual": "<=",
    "LessThan": "<",
    "EqualTo": "=",
}
"""not the null-safe one, which is true of two rows without a time"""
_MIRRORED = {">=": "<=", ">": "<", "<=": ">=", "<": ">", "=": "="}


class Moment(NamedTuple):
    """A time: that of a column, or of the end of the window that a column is, plus so many microseconds."""

    column: int
    window: bool
    offset: int
    exact: bool = True
    """false if the distance depends on the calendar"""

    @property
    def base(self) -> tuple[int, bool]:
        return self.column, self.window

    def later(self, by: int, exact: bool) -> Moment:
        return Moment(self.column, self.window, self.offset + by, self.exact and exact)


class Distance(NamedTuple):
    """What a condition says of `second` less `first`: at least `low`, at most `high` microseconds; None for open."""

    first: tuple[int, bool]
    second: tuple[int, bool]
    low: int | None
    high: int | None
    exact: bool
    """false if the condition says more than this, so that it must be looked at besides"""


class Moments:
    """Reads conditions over the columns of some pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self._fixed = _fixed_zone(pieces[0].maker)

    def distance(self, condition: Any) -> Distance | None:
        """What a comparison says of the distance between two times; None if that is not what it is about."""
        sign = _SIGNS.get(str(condition.nodeName()))
        if sign is None:
            return None
        left, right = condition.left(), condition.right()
        if sign == "=" and is_attribute(left) and is_attribute(right) and struct_end(left) and struct_end(right):
            both = [Moment(identifier(one), True, 0) for one in (left, right) if self._timed(one)]
            # their starts are equal as well, which the distance of their ends does not say
            return _distance(both[0], "=", both[1])._replace(exact=False) if len(both) == 2 else None
        for one, relation, other in ((left, sign, right), (right, _MIRRORED[sign], left)):
            if one.nodeName() == "SubtractTimestamps" and other.foldable():
                return self._apart(one, relation, other)
        first, second = self.moment(left), self.moment(right)
        return None if first is None or second is None else _distance(first, sign, second)

    def _apart(self, difference: Any, sign: str, literal: Any) -> Distance | None:
        """a - b <= INTERVAL ... as a <= b + INTERVAL ..."""
        first, second = self.moment(difference.left()), self.moment(difference.right())
        found = _interval(literal)
        if first is None or second is None or found is None:
            return None
        # of local times: across a change to or from summer time an hour is missing, or there twice
        zoned = difference.left().dataType().typeName() == "timestamp" and not self._fixed
        return _distance(first, sign, second.later(found, exact=not zoned))

    def moment(self, expression: Any) -> Moment | None:
        """The time that an expression is, if that is an event time and a constant."""
        name = str(expression.nodeName())
        if is_attribute(expression):
            return self._column(expression)
        if name == "GetStructField":
            return self._part(expression)
        if _same(expression):
            return self.moment(expression.child())
        if name == "DatetimeSub":
            return self.moment(expression.replacement())
        if name in _ADD and expression.right().foldable():
            start, length = self.moment(expression.left()), _interval(expression.right())
            if start is None or length is None:
                return None
            zoned = expression.left().dataType().typeName() == "timestamp" and not self._fixed
            return start.later(length, exact=not zoned or not _days(expression.right()))
        return None

    def _column(self, attribute: Any) -> Moment | None:
        number = identifier(attribute)
        piece = next((piece for piece in self.pieces if number in piece.ids), None)
        if piece is None:
            return None
        made = definition(piece.node, number)
        if made is not None and (window := _window_time(made)) is not None and self._timed(window):
            return Moment(identifier(window), True, -1)
        return Moment(number, False, 0) if piece.timed(attribute) else None

    def _timed(self, attribute: Any) -> bool:
        """Whether this is an event time of one of the pieces."""
        return any(identifier(attribute) in piece.ids and piece.timed(attribute) for piece in self.pieces)

    def _part(self, expression: Any) -> Moment | None:
        """The start or the end of a window."""
        window = expression.child()
        if not is_attribute(window) or not self._timed(window) or not struct_end(window):
            return None
        number, part = identifier(window), field_name(expression)
        if part == "end":
            return Moment(number, True, 0)
        piece = next((piece for piece in self.pieces if number in piece.ids), None)
        size = None if piece is None or part != "start" else window_size(piece, number)
        return None if size is None else Moment(number, True, -size)


def with_windows(piece: Piece) -> Piece:
    """The piece with the windows that it has the window_time() of, where projections have dropped them."""
    for attribute in piece.output:
        if attribute.dataType().typeName() in STAMPS and not piece.timed(attribute):
            made = definition(piece.node, identifier(attribute))
            window = None if made is None else _window_time(made)
            if window is not None and identifier(window) not in piece.ids:
                piece = piece.carrying(window) or piece
    return piece


def window_size(piece: Piece, number: int) -> int | None:
    """The length of the windows that a column holds, if they have one: the `end` is its `start` and a constant."""
    made = definition(piece.node, number)
    return None if made is None else _size(made)


def session_of(maker: Maker, node: Any, session: Any) -> tuple[Any, int]:
    """The event time that session_window() was made of, and the gap after which a session ends."""
    made = definition(node, identifier(session))
    parts = [] if made is None or made.nodeName() != "CreateNamedStruct" else items(made.children())
    named = {str(name.value().toString()): _bare(value) for name, value in zip(parts[::2], parts[1::2])}
    start, end = named.get("start"), named.get("end")
    if start is not None and end is not None and end.nodeName() in _ADD and end.right().foldable():
        gap = _interval(end.right())
        if is_attribute(start) and end.left().semanticEquals(start) and gap is not None:
            if _days(end.right()) and start.dataType().typeName() == "timestamp" and not _fixed_zone(maker):
                raise refused(
                    "session_window() with a gap in days",
                    node,
                    "the session's time zone has days of 23 and 25 hours; say how many hours, as in '24 hours'",
                )
            return start, gap
    raise refused("session_window()", node, "its gap must be one length, such as '30 seconds', of an event-time column")


def _fixed_zone(maker: Maker) -> bool:
    """Whether the session's time zone has no summer time, so that all days have 24 hours."""
    dates = jvm(maker.spark).org.apache.spark.sql.catalyst.util.DateTimeUtils
    zone = dates.getZoneId(maker.spark.conf.get("spark.sql.session.timeZone"))
    return bool(zone.getRules().isFixedOffset())


def _size(struct: Any) -> int | None:
    if struct.nodeName() != "CreateNamedStruct":
        return None
    parts = items(struct.children())
    named = {str(name.value().toString()): _bare(value) for name, value in zip(parts[::2], parts[1::2])}
    start, end = named.get("start"), named.get("end")
    if start is None or end is None or end.nodeName() != "Add" or not end.right().foldable():
        return None
    return int(end.right().eval(None)) if end.left().semanticEquals(start) else None


def _bare(expression: Any) -> Any:
    """What Spark converts to a timestamp."""
    while expression.nodeName() in _CONVERTED or _same(expression):
        expression = expression.child()
    return expression


def _same(expression: Any) -> bool:
    """Whether this is a cast to what it is already."""
    return bool(expression.nodeName() == "Cast") and bool(expression.child().dataType().sameType(expression.dataType()))


def _window_time(expression: Any) -> Any:
    """The window of a window_time(), which is its end less a microsecond."""
    inner = _bare(expression)
    if inner.nodeName() != "Subtract" or not inner.right().foldable() or inner.right().eval(None) != 1:
        return None
    end = _bare(inner.left())
    if end.nodeName() != "GetStructField" or field_name(end) != "end" or not is_attribute(end.child()):
        return None
    return end.child()


def _interval(expression: Any) -> int | None:
    """Microseconds of a constant interval, with days of 24 hours; None for months, and for null."""
    value = expression.eval(None)
    if value is None:
        return None
    if isinstance(value, int):
        kind = str(expression.dataType().typeName())
        return None if "month" in kind or "year" in kind else value
    months, days, micros = (int(value.getClass().getField(part).get(value)) for part in _PARTS)
    return None if months else days * _DAY + micros


def _days(interval: Any) -> bool:
    """Whether a constant interval counts in days, which Spark adds to the local date."""
    value = interval.eval(None)
    return abs(value) >= _DAY if isinstance(value, int) else int(value.getClass().getField("days").get(value)) != 0


def _distance(left: Moment, sign: str, right: Moment) -> Distance:
    """`left sign right` as a bound on right's column less left's."""
    apart = left.offset - right.offset  # left.column + left.offset <= right.column + right.offset
    exact = left.exact and right.exact
    slack = 0 if exact else SLACK
    low = high = None
    if sign in ("<=", "<", "="):
        low = apart + (sign == "<") - slack
    if sign in (">=", ">", "="):
        high = apart - (sign == ">") + slack
    return Distance(left.base, right.base, low, high, exact)
