"""One node of a join tree in one batch: its children's new rows against each other and against what is stored.

The same delta expansion as the m-way join's, over rows that may already combine several inputs and so have several
event times. Probing goes by key and each side's earliest time; bounds on the other times are checked on what is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fluxen.arrays import MAX_TIME, MIN_TIME, Groups, Ints, Mask
from fluxen.operators.base import Input
from fluxen.operators.join.probe import Bounds, Probe, Side, Term, arrivals
from fluxen.operators.join.reduction import find_rows
from fluxen.operators.kernels import boundaries, sort_order, sorted_union
from fluxen.state.routing import Routing
from fluxen.state.segment import H2, H, T, column
from fluxen.state.sorted_run import SortedRun

NEW = "_new"
"""marks combinations all of whose parts are new; only stored by the sender's half of a move by parallel track"""


def time_column(number: int) -> str:
    return f"_t{number}"


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """Rows that each combine one row of every member input, sorted by (hash, earliest time)."""

    members: tuple[int, ...]
    h: Ints
    h2: Ints | None
    times: Mapping[int, Ints]
    table: pa.Table
    """payload; columns are named <input number>.<column>"""
    new: Mask | None = None

    @property
    def t(self) -> Ints:
        """The earliest of each row's times."""
        first, *rest = self.times.values()
        for other in rest:
            first = np.minimum(first, other)
        return first

    @staticmethod
    def of_input(number: int, rows: Input, *, new: bool = False) -> JoinedRows:
        mark = np.ones(len(rows.h), dtype=np.bool_) if new else None
        return JoinedRows((number,), rows.h, rows.h2, {number: rows.t}, _numbered(number, rows.table), mark)

    @staticmethod
    def of_stored(members: tuple[int, ...], table: pa.Table) -> JoinedRows:
        second = column(table, H2) if H2 in table.column_names else None
        return JoinedRows(members, column(table, H), second, _times(members, table), _payload(members, table))

    @staticmethod
    def nothing(parts: Sequence[JoinedRows]) -> JoinedRows:
        """No rows, of the schema that joining `parts` would have."""
        none = np.zeros(0, dtype=np.int64)
        columns = {name: part.table.column(name).slice(0, 0) for part in parts for name in part.table.column_names}
        members = tuple(sorted(i for part in parts for i in part.members))
        second = None if parts[0].h2 is None else none
        mark = None if parts[0].new is None else np.zeros(0, dtype=np.bool_)
        return JoinedRows(members, none, second, dict.fromkeys(members, none), _ordered(pa.table(columns)), mark)

    @staticmethod
    def concat(
        parts: list[JoinedRows], children: Mapping[tuple[int, ...], JoinedRows], members: tuple[int, ...]
    ) -> JoinedRows:
        """The parts as one; without any, nothing with the schema of the children that make up `members`."""
        if not parts:
            inputs = [rows for found, rows in children.items() if len(found) == 1 and found[0] in members]
            return JoinedRows.nothing(inputs if len(inputs) == len(members) else list(children.values()))
        if len(parts) == 1:
            whole = parts[0]
        else:
            whole = JoinedRows(
                members,
                np.concatenate([part.h for part in parts]),
                None if parts[0].h2 is None else np.concatenate([part.h2 for part in parts if part.h2 is not None]),
                {i: np.concatenate([part.times[i] for part in parts]) for i in members},
                pa.concat_tables([part.table for part in parts]).combine_chunks(),
                None if parts[0].new is None else np.concatenate([part.new for part in parts if part.new is not None]),
            )
        return whole.take(sort_order(whole.h, None, whole.t))

    def take(self, rows: Ints) -> JoinedRows:
        return JoinedRows(
            self.members,
            self.h[rows],
            None if self.h2 is None else self.h2[rows],
            {i: t[rows] for i, t in self.times.items()},
            self.table.take(pa.array(rows)),
            None if self.new is None else self.new[rows],
        )

    def stored(self) -> pa.Table:
        """The layout of a segment."""
        columns = {H: pa.array(self.h)}
        if self.h2 is not None:
            columns[H2] = pa.array(self.h2)
        columns[T] = pa.array(self.t)
        columns.update({time_column(i): pa.array(self.times[i]) for i in self.members})
        if self.new is not None:
            columns[NEW] = pa.array(self.new)
        return pa.table({**columns, **dict(zip(self.table.column_names, self.table.columns))})


def _numbered(number: int, table: pa.Table) -> pa.Table:
    return table.rename_columns([f"{number}.{name}" for name in table.column_names])


def _times(members: tuple[int, ...], table: pa.Table) -> dict[int, Ints]:
    if len(members) == 1:
        return {members[0]: column(table, T)}
    return {i: column(table, time_column(i)) for i in members}


def _payload(members: tuple[int, ...], table: pa.Table) -> pa.Table:
    own = {H, H2, T, NEW, *(time_column(i) for i in members)} if len(members) > 1 else {H, H2, T}
    payload = table.select([name for name in table.column_names if name not in own])
    return _numbered(members[0], payload) if len(members) == 1 else _ordered(payload)


def _ordered(payload: pa.Table) -> pa.Table:
    """The columns in the order of the inputs: trees that put the same inputs together otherwise share these states."""
    return payload.select(sorted(payload.column_names, key=lambda name: int(name.split(".", 1)[0])))


class Child(Side):
    """One child's rows that can take part: stored ones found in the runs, then the new ones."""

    def __init__(
        self, new: JoinedRows, runs: list[SortedRun], picked: list[Ints], kids: list[Ints], new_kid: Ints
    ) -> None:
        self.members = new.members
        self._new, self._runs, self._picked = new, runs, picked
        kid = np.concatenate([*kids, new_kid])
        stored = [_times(new.members, run.segment.table) for run in runs]
        self.times = {
            i: np.concatenate([*(times[i][rows] for times, rows in zip(stored, picked)), new.times[i]])
            for i in new.members
        }
        t = np.concatenate([*(run.segment.t[rows] for run, rows in zip(runs, picked)), new.t])
        h2: Ints | None = None
        if new.h2 is not None:
            h2 = np.concatenate([*(column(run.segment.table, H2)[rows] for run, rows in zip(runs, picked)), new.h2])
        super().__init__(kid, t, h2, len(kid) - len(new_kid), self._gathered)

    def is_new(self, old_until: Ints, groups: Groups) -> Mask:
        """Which rows consist of new parts only, given each group's last old epoch and each key's group."""
        marks = []
        at = 0
        for run, rows in zip(self._runs, self._picked):
            kid = self.kid[at : at + len(rows)]
            at += len(rows)
            if len(self.members) == 1:
                marks.append(old_until[groups[kid]] < run.ref.first_epoch)
            elif NEW in run.segment.table.column_names:
                marks.append(run.segment.table.column(NEW).to_numpy()[rows])
            else:
                marks.append(np.zeros(len(rows), dtype=np.bool_))
        assert self._new.new is not None
        whole: Mask = np.concatenate([*marks, self._new.new])
        return whole

    def _gathered(self) -> pa.Table:
        old = [
            _payload(self.members, run.segment.table).take(pa.array(rows))
            for run, rows in zip(self._runs, self._picked)
        ]
        return pa.concat_tables([*old, self._new.table]).combine_chunks()


class Node:
    """The new combinations of one node's children; afterwards, how many probes and combinations that took."""

    def __init__(
        self,
        new: list[JoinedRows],
        runs: Sequence[list[SortedRun]],
        reach: Bounds,
        routing: Routing,
        old_until_epoch: Ints | None,
    ) -> None:
        self._reach, self._old_until = reach, old_until_epoch
        self.probes = self.made = 0
        self._keys = sorted_union([rows.h for rows in new])
        self._groups = routing.groups(self._keys)
        self.sides: list[Child] = []
        if len(self._keys):
            self.sides = self._reduced(new, runs)

    def combinations(self, *, drop_new: bool = False) -> Iterator[tuple[Ints, list[Child], list[Ints]]]:
        """(key hashes, the children, row numbers per child) of every new combination, in pieces of bounded size."""
        if not self.sides or any(len(side.kid) == 0 for side in self.sides):
            return
        marks = None
        if drop_new:
            assert self._old_until is not None
            marks = [side.is_new(self._old_until, self._groups) for side in self.sides]
        expansion = _Expansion(self.sides, self._reach, len(self._keys))
        for ids in expansion.results(arrivals(len(self.sides))):
            if marks is not None:
                old = ~np.logical_and.reduce([mark[rows] for mark, rows in zip(marks, ids)])
                ids = [rows[old] for rows in ids]
            if len(ids[0]):
                yield self._keys[self.sides[0].kid[ids[0]]], self.sides, ids
        self.probes, self.made = expansion.probes, expansion.made

    def rows(self) -> Iterator[JoinedRows]:
        """The new combinations as rows."""
        for h, sides, ids in self.combinations():
            tables = [side.table.take(pa.array(rows)) for side, rows in zip(sides, ids)]
            marks = None
            if self._old_until is not None:
                news = [side.is_new(self._old_until, self._groups)[rows] for side, rows in zip(sides, ids)]
                marks = np.logical_and.reduce(news)
            yield JoinedRows(
                tuple(sorted(i for side in sides for i in side.members)),
                h,
                None if sides[0].h2 is None else sides[0].h2[ids[0]],
                {i: t[rows] for side, rows in zip(sides, ids) for i, t in side.times.items()},
                _ordered(pa.table({name: table.column(name) for table in tables for name in table.column_names})),
                marks,
            )

    def _reduced(self, new: list[JoinedRows], runs: Sequence[list[SortedRun]]) -> list[Child]:
        """Each child's rows with a key among the new rows' and a time that another child's new row can meet."""
        size = len(self._keys)
        kids = [np.searchsorted(self._keys, rows.h).astype(np.int64) for rows in new]
        sides = []
        for j, rows in enumerate(new):
            first = np.full(size, MAX_TIME, dtype=np.int64)
            last = np.full(size, MIN_TIME, dtype=np.int64)
            for i, other in enumerate(new):
                starts = np.flatnonzero(boundaries(kids[i])) if len(kids[i]) else kids[i]
                if i != j and len(starts):
                    low, high = _window(other.times, rows.members, self._reach)
                    seen = kids[i][starts]
                    first[seen] = np.minimum(first[seen], np.minimum.reduceat(low, starts))
                    last[seen] = np.maximum(last[seen], np.maximum.reduceat(high, starts))
            wanted = np.flatnonzero(last > MIN_TIME)
            used, picked, found = [], [], []
            for run in runs[j]:
                at, row = find_rows(run, self._keys, self._groups, wanted, first, last)
                if len(row):
                    used.append(run)
                    picked.append(row)
                    found.append(at)
            sides.append(Child(rows, used, picked, found, kids[j]))
        return sides


def _window(times: Mapping[int, Ints], members: tuple[int, ...], reach: Bounds) -> tuple[Ints, Ints]:
    """For rows with these times: between which bounds the earliest time of a partner over `members` lies."""
    low: Ints | None = None
    high: Ints | None = None
    for i, t in times.items():
        least = t + min(reach[i][j] for j in members)
        most = t - max(reach[j][i] for j in members)
        low = least if low is None else np.maximum(low, least)
        high = most if high is None else np.minimum(high, most)
    assert low is not None
    assert high is not None
    return np.maximum(low, MIN_TIME), np.maximum(np.minimum(high, MAX_TIME), MIN_TIME + 1)


class _Expansion(Probe):
    """The expansion over rows that have several times, of which the codes hold the earliest."""

    def __init__(self, children: list[Child], reach: Bounds, keys: int) -> None:
        super().__init__(list(children), reach, keys)
        self.children = children
        self.probes = self.made = 0

    def _probe(self, term: Term, bound: dict[int, Ints], j: int) -> tuple[Ints, Ints]:
        times = {i: t[rows] for child, rows in bound.items() for i, t in self.children[child].times.items()}
        first, last = _window(times, self.children[j].members, self.reach)
        self.probes += len(first)
        return self._find(self.index[j][term[1][j]][0], self.sides[term[0]].kid[bound[term[0]]], first, last)

    def _same_key(self, bound: dict[int, Ints], i: int, j: int) -> Mask | None:
        """Also where the found rows satisfy the bounds that the probe could not check."""
        self.made += len(bound[j])
        fits = super()._same_key(bound, i, j)
        found = self.children[j]
        if len(found.members) == 1:
            return fits
        for child, rows in bound.items():
            if child == j:
                continue
            for other, t in self.children[child].times.items():
                for own in found.members:
                    apart = found.times[own][bound[j]] - t[rows]
                    near = (apart >= self.reach[other][own]) & (apart <= -self.reach[own][other])
                    fits = near if fits is None else fits & near
        return fits
