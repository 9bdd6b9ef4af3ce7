"""Expansion of join combinations over reduced sides, in bounded pieces.

`fluxen.operators.join.mway` reduces each input to the rows that can take part and says which of them are old and which
new; here they are combined. What a term leaves out no other produces twice: see `arrivals` and `mixtures`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa

from fluxen.arrays import MAX_TIME, MIN_TIME, Ints, Mask
from fluxen.operators.base import EMIT_ROWS
from fluxen.operators.kernels import ragged

Bounds = tuple[tuple[int, ...], ...]
"""low[i][j] <= t_j - t_i; the upper bound is -low[j][i]"""


class Side:
    """One input's rows that can take part: old ones first, then the new ones. The payload is gathered when needed."""

    def __init__(
        self,
        kid: Ints,
        t: Ints,
        h2: Ints | None,
        n_old: int,
        payload: Callable[[], pa.Table],
        since: Mask | None = None,
    ) -> None:
        self.kid, self.t, self.h2, self.n_old, self._payload = kid, t, h2, n_old, payload
        self.since = since
        """in the sender's half of a move by parallel track: which rows have come since it began"""

    @cached_property
    def table(self) -> pa.Table:
        return self._payload()


class _Codes:
    """(key index, time) as one integer whose order is theirs."""

    def __init__(self, sides: list[Side], keys: int) -> None:
        times = [side.t for side in sides if len(side.t)]
        self._first = min(int(t.min()) for t in times)
        span = max(int(t.max()) for t in times) - self._first
        self._ranks: Ints | None = None
        if (span + 2).bit_length() + keys.bit_length() > 62:
            # times too far apart for one integer: number the distinct ones instead
            self._ranks = np.unique(np.concatenate(times))
            span = len(self._ranks)
        self._last = span
        self._shift = np.int64((span + 2).bit_length())

    def exact(self, kid: Ints, t: Ints) -> Ints:
        return (kid << self._shift) + self._at_least(t)

    def range(self, kid: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """Codes between which, the first included and the second not, the key's rows in [first, last] lie."""
        base = kid << self._shift
        return base + self._at_least(first), base + self._at_least(last + 1)

    def _at_least(self, t: Ints) -> Ints:
        if self._ranks is not None:
            return np.searchsorted(self._ranks, t)
        offset = t - self._first
        np.maximum(offset, 0, out=offset)
        return np.minimum(offset, self._last + 1, out=offset)


Age = Literal["old", "new", "all"]
_OLD: Age = "old"
_NEW: Age = "new"
_ALL: Age = "all"
Fits = Callable[[list[Ints]], Mask]
"""Which of these combinations, given as row numbers per side, hold beyond their keys and times."""
Term = tuple[int, tuple[Age, ...]]
"""The side whose new rows start the combinations, and which rows of each side take part."""


def arrivals(sides: int) -> list[Term]:
    """All combinations with at least one new row, each in the term of its last new side."""
    return [(i, (_ALL,) * i + (_NEW,) + (_OLD,) * (sides - i - 1)) for i in range(sides)]


def mixtures(sides: int) -> list[Term]:
    """All combinations with at least one new and at least one old row.

    As `arrivals`, but where the last side is new another one must be old: the first old side tells the terms apart.

    >>> [rows for _, rows in mixtures(2)]
    [('new', 'old'), ('old', 'new')]
    """
    last = sides - 1
    first_old = [(last, (_NEW,) * p + (_OLD,) + (_ALL,) * (last - p - 1) + (_NEW,)) for p in range(last)]
    return arrivals(sides)[:-1] + first_old


class Probe:
    """Expands combinations over reduced sides."""

    def __init__(self, sides: list[Side], reach: Bounds, keys: int, emit_rows: int = EMIT_ROWS) -> None:
        self.sides, self.reach, self.emit_rows = sides, reach, emit_rows
        self.codes = _Codes(sides, keys)
        self.index: list[dict[Age, tuple[Ints, Ints]]] = []
        for side in sides:
            code = self.codes.exact(side.kid, side.t)
            order = np.argsort(code, kind="stable")
            chosen: dict[Age, Ints] = {
                "all": order,
                "old": order[order < side.n_old],
                "new": order[order >= side.n_old],
            }
            self.index.append({name: (code[rows], rows) for name, rows in chosen.items()})

    def results(self, terms: list[Term]) -> Iterator[list[Ints]]:
        """Row numbers per side of every combination, about `emit_rows` at a time."""
        return _blocks(self._results(terms), self.emit_rows)

    def met(self, start: int, rows: Ints, age: Age, fits: Fits | None = None) -> Mask:
        """Which rows of one of two sides have a partner among the other side's rows of that age.

        Where a search does not decide, partners are tried one by one, then two, four and so on: a row with many of
        them costs about as many as come before the first that fits.
        """
        j = 1 - start
        low, high = self._probe((start, (age, age)), {start: rows}, j)
        left, right, order = self.sides[start].h2, self.sides[j].h2, self.index[j][age][1]
        found: Mask = high > low
        if fits is None and (left is None or right is None):
            return found
        asked = np.flatnonzero(found)
        found[:] = False
        width = 1
        while len(asked):
            upto = np.minimum(low[asked] + width, high[asked])
            for origin, at in _pieces(low[asked], upto, self.emit_rows):
                origin = asked[origin]
                pair = {start: rows[origin], j: order[at]}
                same = self._same_key(pair, start, j)
                if same is not None:
                    origin, pair = origin[same], {side: ids[same] for side, ids in pair.items()}
                found[origin if fits is None else origin[fits([pair[0], pair[1]])]] = True
            low[asked] = upto
            asked = asked[~found[asked] & (upto < high[asked])]
            width *= 2
        return found

    def _results(self, terms: list[Term]) -> Iterator[list[Ints]]:
        for term in terms:
            start = term[0]
            rows = np.arange(self.sides[start].n_old, len(self.sides[start].kid), dtype=np.int64)
            if len(rows):
                others = [j for j in range(len(self.sides)) if j != start]
                yield from self._expand(term, {start: rows}, others)

    def _expand(self, term: Term, bound: dict[int, Ints], remaining: list[int]) -> Iterator[list[Ints]]:
        if not remaining:
            yield [bound[j] for j in range(len(self.sides))]
            return
        ranges: dict[int, tuple[Ints, Ints]] = {}
        for j in remaining:  # a row without a partner on any one side is out, whatever the order
            ranges[j] = self._probe(term, bound, j)
            alive = np.flatnonzero(ranges[j][1] > ranges[j][0])
            if len(alive) == 0:
                return
            bound = {i: rows[alive] for i, rows in bound.items()}
            ranges = {i: (low[alive], high[alive]) for i, (low, high) in ranges.items()}
        following = min(remaining, key=lambda j: int((ranges[j][1] - ranges[j][0]).sum()))
        rest = [j for j in remaining if j != following]
        order = self.index[following][term[1][following]][1]
        for origin, at in _pieces(*ranges[following], self.emit_rows):
            grown = {j: rows[origin] for j, rows in bound.items()}
            grown[following] = order[at]
            same = self._same_key(grown, term[0], following)
            if same is not None:
                grown = {j: rows[same] for j, rows in grown.items()}
            yield from self._expand(term, grown, rest)

    def _probe(self, term: Term, bound: dict[int, Ints], j: int) -> tuple[Ints, Ints]:
        """Range of partners on side j of each combination so far."""
        start = term[0]
        first = np.full(len(bound[start]), MIN_TIME, dtype=np.int64)
        last = np.full(len(bound[start]), MAX_TIME, dtype=np.int64)
        for i, rows in bound.items():
            t = self.sides[i].t[rows]
            np.maximum(first, t + self.reach[i][j], out=first)
            np.minimum(last, t - self.reach[j][i], out=last)
        return self._find(self.index[j][term[1][j]][0], self.sides[start].kid[bound[start]], first, last)

    def _find(self, codes: Ints, kid: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """Range in the sorted `codes` of each key's rows with times in [first, last]."""
        lowest, beyond = self.codes.range(kid, first, last)
        low = np.searchsorted(codes, lowest)
        high = low.copy()
        if len(codes):
            hit = np.flatnonzero((codes[np.minimum(low, len(codes) - 1)] < beyond) & (low < len(codes)))
            high[hit] = np.searchsorted(codes, beyond[hit])
        return low, high

    def _same_key(self, bound: dict[int, Ints], i: int, j: int) -> Mask | None:
        """Where the second hash agrees too; None when one hash decides."""
        left, right = self.sides[i].h2, self.sides[j].h2
        return None if left is None or right is None else left[bound[i]] == right[bound[j]]


def _pieces(low: Ints, high: Ints, rows: int) -> Iterator[tuple[Ints, Ints]]:
    """The ranges' elements with their origins, `rows` at a time, splitting a range where need be."""
    ends = np.cumsum(high - low)
    for start in range(0, int(ends[-1]), rows):
        stop = start + rows
        a, b = np.searchsorted(ends, start, side="right"), np.searchsorted(ends, stop, side="left") + 1
        begin = ends[a:b] - (high[a:b] - low[a:b])
        head = np.maximum(start - begin, 0)
        tail = np.maximum(ends[a:b] - stop, 0)
        counts = high[a:b] - low[a:b] - head - tail
        yield np.repeat(np.arange(a, a + len(counts)), counts), ragged(low[a:b] + head, counts)


def _blocks(pieces: Iterator[list[Ints]], rows: int) -> Iterator[list[Ints]]:
    """Small pieces put together, so that results leave in few tables."""
    held: list[list[Ints]] = []
    count = 0
    for piece in pieces:
        held.append(piece)
        count += len(piece[0])
        if count >= rows:
            yield [np.concatenate(part) for part in zip(*held)]
            held, count = [], 0
    if count:
        yield [np.concatenate(part) for part in zip(*held)]
