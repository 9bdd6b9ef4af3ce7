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
    found: list[tuple[dict[tuple[int, str], Any], list[Any]]] = []
    for condition in conditions:
        if condition.nodeName() not in ("EqualTo", "EqualNullSafe"):
            continue
        both = [_member(side, pieces, condition) for side in (condition.left(), condition.right())]
        if None in both or both[0][0][0] == both[1][0][0]:  # type: ignore[index]
            continue
        members = dict(one for one in both if one is not None)
        touched = [one for one in found if not one[0].keys().isdisjoint(members)]
        made: tuple[dict[tuple[int, str], Any], list[Any]] = (members, [condition])
        for known, equalities in touched:
            made = ({**known, **made[0]}, [*equalities, *made[1]])
        found = [one for one in found if not any(one is other for other in touched)] + [made]
    return [_class(members, equalities, pieces) for members, equalities in found]


def _member(expression: Any, pieces: Sequence[Piece], condition: Any) -> tuple[tuple[int, str], Any] | None:
    """The input that one side of an equality is about, and the key: null-safe ones in a struct, which is never null."""
    about = sides(expression, pieces)
    if len(about) != 1 or not expression.deterministic():
        return None
    (at,) = about
    safe = condition.nodeName() == "EqualNullSafe"
    key = pieces[at].maker.struct([expression]) if safe else expression
    return (at, str(key.canonicalized().toString())), key


def _class(members: dict[tuple[int, str], Any], equalities: Sequence[Any], pieces: Sequence[Piece]) -> KeyClass:
    """One key for each input; an equality with a second one of the same input stays a condition."""
    chosen: dict[int, Any] = {}
    texts: dict[int, str] = {}
    for (at, text), key in members.items():
        if at not in chosen:
            chosen[at], texts[at] = key, text
    met = []
    for condition in equalities:
        both = [_member(side, pieces, condition) for side in (condition.left(), condition.right())]
        if all(one is not None and texts[one[0][0]] == one[0][1] for one in both):
            met.append(condition)
    return KeyClass(keys=chosen, conditions=tuple(met))


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
