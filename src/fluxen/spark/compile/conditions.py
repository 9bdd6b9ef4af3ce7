"""What a join asks of its inputs: equal keys, distances in time, and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fluxen.operators.join.matching import AllOf, AnyOf, Compare, Holds, Matching, Not, Of, Sign
from fluxen.spark.catalyst import identifiers, items
from fluxen.spark.compile.pieces import Piece
from fluxen.spark.compile.refusals import refused

__all__ = ["KeyClass", "conjuncts", "key_classes", "matching_of", "sides"]

_SIGNS: dict[str, Sign] = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "EqualNullSafe": "<=>",
}
_Member = tuple[int, Any]
"""an input, and a key of it"""


def conjuncts(condition: Any) -> list[Any]:
    """The parts that must all hold."""
    if condition.nodeName() == "And":
        return [part for child in items(condition.children()) for part in conjuncts(child)]
    return [condition]


def sides(expression: Any, pieces: Sequence[Piece]) -> set[int]:
    """Which pieces' columns an expression reads."""
    read = identifiers(expression)
    return {at for at, piece in enumerate(pieces) if not piece.ids.isdisjoint(read)}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyClass:
    """Expressions that are all equal, one for each of some inputs."""

    keys: dict[int, Any]
    """per input, what must be equal"""
    conditions: tuple[Any, ...]
    """the equalities that this is made of"""


def key_classes(conditions: Sequence[Any], pieces: Sequence[Piece]) -> list[KeyClass]:
    """Equalities between inputs put together: a.k = b.id and b.id = c.ref make one class of three."""
    known: list[_Member] = []
    found: list[tuple[list[int], list[tuple[Any, set[int]]]]] = []
    for condition in conditions:
        if condition.nodeName() not in ("EqualTo", "EqualNullSafe"):
            continue
        both = [_member(side, pieces, condition) for side in (condition.left(), condition.right())]
        if None in both or both[0][0] == both[1][0]:  # type: ignore[index]
            continue
        numbers = [_number(known, one) for one in both if one is not None]
        touched = [one for one in found if not set(one[0]).isdisjoint(numbers)]
        members, equalities = list(numbers), [(condition, set(numbers))]
        for one, others in touched:
            members, equalities = [*one, *members], [*others, *equalities]
        found = [one for one in found if not any(one is other for other in touched)] + [(members, equalities)]
    return [_class(members, equalities, known) for members, equalities in found]


def _member(expression: Any, pieces: Sequence[Piece], condition: Any) -> _Member | None:
    """The input that one side of an equality is about, and the key: null-safe ones in a struct, which is never null."""
    about = sides(expression, pieces)
    if len(about) != 1 or not expression.deterministic():
        return None
    (at,) = about
    safe = condition.nodeName() == "EqualNullSafe"
    return at, pieces[at].maker.struct([expression]) if safe else expression


def _number(known: list[_Member], member: _Member) -> int:
    """The place of a key among those that are known; what it is called would not tell two functions of a name apart."""
    at, key = member
    for number, (other, same) in enumerate(known):
        if other == at and same.semanticEquals(key):
            return number
    known.append(member)
    return len(known) - 1


def _class(members: Sequence[int], equalities: Sequence[tuple[Any, set[int]]], known: Sequence[_Member]) -> KeyClass:
    """One key for each input; an equality with a second one of the same input stays a condition."""
    chosen: dict[int, int] = {}
    for number in members:
        chosen.setdefault(known[number][0], number)
    met = tuple(condition for condition, numbers in equalities if numbers <= set(chosen.values()))
    return KeyClass(keys={at: known[number][1] for at, number in chosen.items()}, conditions=met)


def matching_of(condition: Any, pieces: Sequence[Piece], column: Any) -> Matching:
    """A condition on two inputs as sites evaluate it; `column(side, expression)` has Spark compute an operand."""
    name = str(condition.nodeName())
    about = sides(condition, pieces)
    if len(about) < 2:
        side = next(iter(about), 0)
        return Holds(column=Of(side=side, column=column(side, condition)))
    if name in ("And", "Or"):
        parts = tuple(matching_of(part, pieces, column) for part in items(condition.children()))
        return AllOf(parts=parts) if name == "And" else AnyOf(parts=parts)
    if name == "Not":
        return Not(part=matching_of(condition.child(), pieces, column))
    if name in _SIGNS:
        operands = [(sides(one, pieces), one) for one in (condition.left(), condition.right())]
        if all(len(read) == 1 for read, _ in operands):
            left, right = (Of(side=next(iter(read)), column=column(next(iter(read)), one)) for read, one in operands)
            return Compare(left=left, op=_SIGNS[name], right=right)
    raise refused(
        f"the condition {condition.sql()} of an outer, semi or anti join",
        condition,
        "it computes with columns of both inputs; bring each input to one side of a comparison",
    )
