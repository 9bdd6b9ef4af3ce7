"""Joins of streams as stages: inner ones put together as far as their keys go, all others two by two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fluxen.operators.join.matching import AllOf, Matching
from fluxen.operators.join.outer import preserved
from fluxen.spark.catalyst import DELAY, Maker, identifier, identifiers, is_attribute, items
from fluxen.spark.compile.closing import check_times
from fluxen.spark.compile.conditions import KeyClass, key_classes, matching_of, sides
from fluxen.spark.compile.moments import Distance, Moments, window_size, with_windows
from fluxen.spark.compile.pieces import Names, Piece, struct_end
from fluxen.spark.compile.refusals import check_repeatable, refused
from fluxen.spark.plan.join import MAX_INPUTS, JoinWords, join_stage

__all__ = ["inner_join", "other_join"]

Base = tuple[int, bool]


def inner_join(node: Any, pieces: Sequence[Piece], conditions: Sequence[Any], needed: set[int]) -> Piece:
    """Inputs with one key in common are one stage, what they give joins the next one on other keys."""
    inputs, left = [with_windows(one) for one in pieces], list(conditions)
    while len(inputs) > 1:
        classes = key_classes(left, inputs)
        chosen = _largest(classes)
        if not chosen:
            raise _no_key(node)
        chosen = _timed_together(node, chosen, inputs, left)
        keys = [one for one in classes if chosen <= one.keys.keys()]
        mine = [one for one in left if sides(one, inputs) <= chosen]
        left = [one for one in left if not sides(one, inputs) <= chosen]
        wanted = needed.union(*(identifiers(one) for one in left))
        stage = _Stage(node, [inputs[at] for at in sorted(chosen)], wanted, "inner")
        stage.set_keys([[one.keys[at] for one in keys] for at in sorted(chosen)])
        met = [one for key in keys for one in key.conditions]
        rest = stage.set_times(mine, met)
        for one in rest:
            check_repeatable(one)
        stage.needed = wanted.union(*(identifiers(one) for one in rest))
        inputs = [stage.piece().filtered(rest), *(one for at, one in enumerate(inputs) if at not in chosen)]
    return inputs[0].filtered(left)


def other_join(node: Any, how: str, pieces: Sequence[Piece], conditions: Sequence[Any], needed: set[int]) -> Piece:
    """A left, right, full, semi or anti join."""
    pieces = [with_windows(one) for one in pieces]
    classes = [one for one in key_classes(conditions, pieces) if len(one.keys) == 2]
    if not classes:
        raise _no_key(node)
    stage = _Stage(node, pieces, needed, how)
    stage.set_keys([[one.keys[at] for one in classes] for at in (0, 1)])
    met = [one for key in classes for one in key.conditions]
    stage.set_matching(stage.set_times(conditions, met))
    stage.check_closing()
    return stage.piece()


def _timed_together(node: Any, chosen: set[int], inputs: Sequence[Piece], conditions: Sequence[Any]) -> set[int]:
    """Of inputs with one key those that bounds connect, the most of them; all where there are no bounds.

    An input that no bound is about also gives its rows without an event time, so it is not for a stage that goes by it.
    """
    while True:
        at = sorted(chosen)
        stage = _Stage(node, [inputs[one] for one in at], set(), "inner")
        stage.set_times([one for one in conditions if sides(one, inputs) <= chosen], [])
        largest = max(_connected(len(at), stage.bounds), key=len)
        if len(largest) in (1, len(at)):
            return chosen
        chosen = {at[one] for one in largest}


def _connected(size: int, pairs: Iterable[tuple[int, int]]) -> list[set[int]]:
    """The numbers below `size` in sets that pairs connect."""
    found = [{one} for one in range(size)]
    for first, second in pairs:
        touched = [one for one in found if first in one or second in one]
        found = [one for one in found if one not in touched] + [set[int]().union(*touched)]
    return found


def _no_key(node: Any) -> Exception:
    return refused(
        "a join of two streams without equal keys",
        node,
        "rows are brought together by their keys; add a condition such as a.key = b.key",
    )


def _largest(classes: Sequence[KeyClass]) -> set[int]:
    """The inputs to join first: as many as one key connects, and of those sets the one with most keys."""
    sets = [frozenset(sorted(one.keys)[:MAX_INPUTS]) for one in classes]
    keys = Counter(other for other in sets for one in classes if other <= one.keys.keys())
    best = max(sets, key=lambda one: (len(one), keys[one], -min(one)), default=frozenset[int]())
    return set(best)


@dataclass
class _Input:
    """One input's columns as the stage will see them."""

    name: str
    piece: Piece
    names: Names = field(default_factory=Names)
    columns: list[tuple[Any, str]] = field(default_factory=list)
    by_id: dict[int, str] = field(default_factory=dict)
    """columns of the plan that the stage gives back, by the name they have here"""
    keys: list[str] = field(default_factory=list)
    time: str | None = None
    window: Any = None
    """the column whose ends are the event times, if these are of windows"""
    lateness: str | None = None
    """of windows that a source's rows were given: how far their ends may be behind the latest one"""

    def add(self, expression: Any, wanted: str) -> str:
        name = self.names.new(wanted)
        self.columns.append((expression, name))
        return name

    def attribute(self, number: int) -> Any:
        return next(one for one in self.piece.output if identifier(one) == number)


class _Stage:
    """A join stage in the making."""

    def __init__(self, node: Any, pieces: Sequence[Piece], needed: set[int], how: str) -> None:
        self.node, self.how, self.needed = node, how, needed
        self.maker: Maker = pieces[0].maker
        named = Names()
        self.inputs = [_Input(named.new(_called(piece, at)), piece) for at, piece in enumerate(pieces)]
        self.bounds: dict[tuple[int, int], tuple[int | None, int | None]] = {}
        """per two inputs, the first one first: how much later the second one's rows are, at least and at most"""
        self.matching: Matching | None = None

    @property
    def pieces(self) -> list[Piece]:
        return [one.piece for one in self.inputs]

    # ---- keys

    def set_keys(self, keys: Sequence[Sequence[Any]]) -> None:
        for at, (one, expressions) in enumerate(zip(self.inputs, keys)):
            for expression in expressions:
                plain = is_attribute(expression)
                name = one.add(expression, expression.name() if plain else expression.sql())
                one.keys.append(name)
                if plain and self._stands_for(at, expression):
                    one.by_id[identifier(expression)] = name

    def _stands_for(self, at: int, attribute: Any) -> bool:
        """Whether the stage's key column is this input's: not where the input may be missing from a result, and not
        where equal values differ, as 0.0 and -0.0 do."""
        if self.how != "inner":
            return at == 0 and self.how in ("left", "semi", "anti")
        return at == 0 or attribute.dataType().typeName() not in ("float", "double", "struct", "array")

    # ---- event times and bounds

    def set_times(self, conditions: Sequence[Any], met: Sequence[Any]) -> list[Any]:
        """Choose each input's event time and take bounds from conditions; gives those that say more than that."""
        moments = Moments(self.pieces)
        found = [(one, moments.distance(one) if len(sides(one, self.pieces)) == 2 else None) for one in conditions]
        bases = self._bases([distance for _, distance in found if distance is not None])
        rest = []
        for condition, distance in found:
            used = bases is not None and distance is not None and self._bound(distance, bases)
            keyed = any(condition is other for other in met)
            if not keyed and not (used and distance is not None and distance.exact):
                rest.append(condition)
        # where no bound is, event times decide nothing, and a row without one is as good as any other
        if bases is not None and (self.bounds or self.how not in ("inner", "semi")):
            for one, base in zip(self.inputs, bases):
                one.time = self._time_column(one, base)
        return rest

    def _bases(self, distances: Sequence[Distance]) -> list[Base] | None:
        """The event time of each input: the one that most conditions are about; None if some input has none."""
        votes = Counter(base for one in distances for base in (one.first, one.second))
        chosen: list[Base] = []
        for one in self.inputs:
            mine = [base for base in votes if base[0] in one.piece.ids]
            times = one.piece.event_times
            known = [(identifier(time), struct_end(time)) for time in sorted(times, key=struct_end)]
            if not mine and not known:
                return None
            chosen.append(max(mine, key=lambda base: votes[base]) if mine else known[0])
        return chosen

    def _time_column(self, one: _Input, base: Base) -> str:
        number, window = base
        attribute = one.attribute(number)
        if window:
            found = one.piece.end(attribute)
            if found is None:
                raise refused(f"a join by {attribute.sql()}", self.node, "keep the window itself among the columns")
            if one.piece.stage is None:
                one.lateness = self._behind(one.piece, attribute)
            one.piece, end = found
            one.window = attribute
            return one.add(end, f"{attribute.name()}_end")
        for expression, name in one.columns:
            if is_attribute(expression) and identifier(expression) == number:
                return name
        name = one.add(attribute, attribute.name())
        one.by_id[number] = name
        return name

    def _behind(self, piece: Piece, window: Any) -> str:
        """A row's window ends after its time, but no later than it is long."""
        size = window_size(piece, identifier(window))
        if size is None:
            raise refused(f"a join by {window.sql()}", self.node, "nothing says how long it is; join by its event time")
        return f"{int(window.metadata().getLong(DELAY)) * 1000 + size} microseconds"

    def _bound(self, distance: Distance, bases: Sequence[Base]) -> bool:
        """Take a bound into account, if it is about the inputs' event times."""
        if distance.first not in bases or distance.second not in bases:
            return False
        first, second = bases.index(distance.first), bases.index(distance.second)
        low, high = distance.low, distance.high
        if first > second:
            first, second, low, high = second, first, _negative(high), _negative(low)
        known = self.bounds.get((first, second), (None, None))
        self.bounds[first, second] = (_tighter(max, known[0], low), _tighter(min, known[1], high))
        return True

    # ---- conditions that decide what matches

    def set_matching(self, conditions: Sequence[Any]) -> None:
        if not conditions:
            return
        for one in conditions:
            check_repeatable(one)
        parts = tuple(matching_of(one, self.pieces, self._operand) for one in conditions)
        self.matching = parts[0] if len(parts) == 1 else AllOf(parts=parts)

    def _operand(self, side: int, expression: Any) -> str:
        one = self.inputs[side]
        for known, name in one.columns:
            if known.semanticEquals(expression) and name not in one.keys and name != one.time:
                return name
        plain = is_attribute(expression)
        name = one.add(expression, expression.name() if plain else expression.sql())
        if plain:
            one.by_id[identifier(expression)] = name
        return name

    def check_closing(self) -> None:
        """Raise if nothing says when a row that comes out alone has no partner to wait for any more."""
        low, high = self.bounds.get((0, 1), (None, None))
        for side, bound in enumerate((high, low)):
            if not preserved(self.how)[side] or bound is not None:
                continue
            one, other = self.inputs[side], self.inputs[1 - side]
            timeless = [of.name for of in self.inputs if not of.piece.event_times]
            mine, theirs = (f"{of.name}.{of.time or 'ts'}" for of in (one, other))
            need = f"put withWatermark() on {' and '.join(timeless)} and add" if timeless else "add"
            raise refused(
                f"a {self.how} join without a bound on event times",
                self.node,
                f"rows of {one.name} without a partner come out once none can come, and nothing says how much later "
                f"than them rows of {other.name} may be; {need} such a bound to ON, as in {theirs} BETWEEN {mine} - "
                f"INTERVAL 1 HOUR AND {mine} + INTERVAL 1 HOUR",
            )

    # ---- the stage

    def piece(self) -> Piece:
        returned = self.inputs[:1] if self.how in ("semi", "anti") else self.inputs
        for one in returned:
            for attribute in one.piece.output:
                if identifier(attribute) in self.needed and identifier(attribute) not in one.by_id:
                    one.by_id[identifier(attribute)] = one.add(attribute, attribute.name())
        self._part_names()
        timed = all(one.time is not None for one in self.inputs)
        words = JoinWords(
            on={one.name: one.keys for one in self.inputs},
            time={one.name: str(one.time) for one in self.inputs} if timed else None,
            within=None,
            between=self._between() or None,
            lateness={one.name: one.lateness for one in self.inputs if one.lateness is not None} or None,
            idle=None,
            plan="mjoin",
            ttl=None,
            how=self.how,
            matching=self.matching,
            compiled=True,
        )
        built = join_stage({one.name: one.piece.given(one.columns) for one in self.inputs}, words)
        check_times(self.node, built)
        attributes = self._attributes()
        results = tuple(
            (self._result(one, name), attributes[number])
            for one in returned
            for number, name in one.by_id.items()
            if number in attributes
        )
        ends = {identifier(one.window): (one, self._end(one)) for one in returned if one.window is not None}
        results += tuple((self._result(one, str(one.time)), end) for one, end in ends.values())
        leaf = self.maker.leaf([attribute for _, attribute in results], streaming=True)
        known = {number: end for number, (_, end) in ends.items()}
        return Piece(maker=self.maker, plan=leaf, node=self.node, stage=built, results=results, ends=known)

    def _end(self, one: _Input) -> Any:
        """A column for the event time of an input of windows."""
        return self.maker.alias(self.maker.field(one.window, "end"), str(one.time)).toAttribute()

    def _between(self) -> dict[tuple[str, str], tuple[str | None, str | None]]:
        return {
            (self.inputs[second].name, self.inputs[first].name): (_length(low), _length(high))
            for (first, second), (low, high) in self.bounds.items()
        }

    def _attributes(self) -> Mapping[int, Any]:
        """The columns as the join gives them: those of an input that may be missing may be null."""
        if self.how == "inner":
            return {identifier(one): one for piece in self.pieces for one in piece.output}
        return {identifier(one): one for one in items(self.node.output())}

    def _result(self, one: _Input, name: str) -> str:
        if name in one.keys:
            return self.inputs[0].keys[one.keys.index(name)]
        return f"{one.name}_{name}"

    def _part_names(self) -> None:
        """Give inputs other names where two result columns would have one, as `a_b` of `x` and `b` of `x_a` would."""
        while True:
            made = [f"{one.name}_{name}".lower() for one in self.inputs for _, name in one.columns]
            made += [name.lower() for name in self.inputs[0].keys]
            if len(set(made)) == len(made):
                return
            for at, one in enumerate(self.inputs):
                one.name = f"{one.name}{at + 1}"


def _called(piece: Piece, at: int) -> str:
    """An input's name: that of its table, as the query has it."""
    labels = {piece.maker.labels.get(number) for number in piece.ids} - {None}
    return str(labels.pop()) if len(labels) == 1 else f"input{at + 1}"


def _length(micros: int | None) -> str | None:
    return None if micros is None else f"{micros} microseconds"


def _negative(micros: int | None) -> int | None:
    return None if micros is None else -micros


def _tighter(choose: Any, one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else choose(one, other)
