"""What a site has to do in one batch, piece by piece, and what of it waits: Flux's transient skew buffer (section 4).

A site whose time is over, because its time budget is spent or because the others are expected to be done, leaves the
rest of its rows in a buffer: segments of their own kind, one per input and arrival epoch, that move, survive crashes
and are forgotten like all other segments. The next batch begins with them. A full buffer is back-pressure: the site
goes on until what is left fits.

Rows are processed in pieces. A piece holds rows of one arrival epoch and of whole partition groups, and pieces come in
the order (arrival epoch, group). So rows of one key are processed in the order of their batches and never together with
those of another batch: each piece is to the operator what a batch of its own would be, and the results are those of a
run without a buffer, only later; of several updates of one key in a batch the last (`fluxen.site.updates`). Whether a
row is late depends on when it arrived, not on when it is processed.

What waits is written down before it counts (`fluxen.state.decision`), so all attempts of a batch do the same.

Rows of groups on disk wait as well, in the same buffer, until it is their group's turn
(`fluxen.control.memory.rotation`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from fluxen.arrays import Ints, Mask
from fluxen.errors import FluxenError
from fluxen.operators.base import Input
from fluxen.site.context import SiteContext
from fluxen.site.wire import WEIGHT
from fluxen.state.decision import Decision, decide, decided
from fluxen.state.epoch import StageState
from fluxen.state.routing import Routing, mask_of, ranges
from fluxen.state.segment import H2, H, T
from fluxen.state.sorted_run import SortedRun, open_runs, visible

PIECES = 16
"""Pieces an epoch's rows are cut into at most: how finely a time budget can be kept."""


@dataclass(slots=True, kw_only=True)
class Piece:
    """Rows of one arrival epoch and some partition groups; they are fetched when it is their turn."""

    arrival: int
    groups: Mask
    bytes: int
    fetch: Callable[[Mask], list[Input]]

    def inputs(self) -> list[Input]:
        return self.fetch(self.groups)


class _New:
    """Rows that arrived with this batch."""

    runs: tuple[SortedRun, ...] = ()

    def __init__(self, epoch: int, inputs: list[Input], routing: Routing) -> None:
        self.epoch, self.inputs, self.routing = epoch, inputs, routing

    def rows(self, number: int) -> Ints:
        """Rows of one input per partition group."""
        return np.bincount(self.routing.groups(self.inputs[number].h), minlength=self.routing.size).astype(np.int64)

    def row_bytes(self, number: int) -> float:
        return _bytes(self.inputs[number]) / max(len(self.inputs[number].h), 1)

    def since(self, number: int, groups: Mask) -> list[int]:
        """The oldest event time of these groups' rows, if there are any."""
        given = self.inputs[number]
        t = given.t[groups[self.routing.groups(given.h)]]
        return [int(t.min())] if len(t) else []

    def take(self, groups: Mask) -> list[Input]:
        return [given.take(groups[self.routing.groups(given.h)]) for given in self.inputs]


class _Buffered:
    """Rows that an earlier batch left: counted by their segments' own offsets, read when it is their turn."""

    def __init__(self, epoch: int, runs: Sequence[SortedRun], like: list[Input], routing: Routing) -> None:
        self.epoch, self.runs, self.routing = epoch, tuple(runs), routing
        self._like = [given.take(np.zeros(0, dtype=np.int64)) for given in like]
        self._of = [[run for run in runs if run.ref.side == number] for number in range(len(like))]

    def rows(self, number: int) -> Ints:
        counts: Ints = np.zeros(self.routing.size, dtype=np.int64)
        for run in self._of[number]:
            counts += run.rows_per_group(self.routing)
        return counts

    def row_bytes(self, number: int) -> float:
        refs = [run.ref for run in self._of[number]]
        return sum(ref.bytes for ref in refs) / max(sum(ref.rows for ref in refs), 1)

    def since(self, number: int, groups: Mask) -> list[int]:
        """A lower bound: that of the whole segments."""
        held = [run for run in self._of[number] if run.rows_per_group(self.routing)[groups].any()]
        return [run.ref.t_min for run in held]

    def take(self, groups: Mask) -> list[Input]:
        taken = []
        for like, runs in zip(self._like, self._of):
            tables = [replace(run, mine=run.mine & groups).rows(self.routing) for run in runs]
            rows = [table for table in tables if table.num_rows]
            taken.append(_decoded(pa.concat_tables(rows).combine_chunks()) if rows else like)
        return taken


_Arrival: TypeAlias = _New | _Buffered


class Backlog:
    """One site's work in one batch."""

    def __init__(self, context: SiteContext, site: int, inputs: list[Input]) -> None:
        before, limit = context.before, context.limit(site)
        self.store, self.epoch, self.stage = context.store, context.epoch, context.stage
        self.routing = before.routing
        self.owned = before.routing.owned(site)
        self.late_before = {**dict(before.waiting), self.epoch: before.late_before}
        self._inputs = len(inputs)
        self.arrivals: list[_Arrival] = [
            *self._buffered(before, site, inputs),
            _New(self.epoch, inputs, before.routing),
        ]
        self.waiting: list[Piece] = []
        """what is left when `pieces` has ended"""
        turns = before.residence
        on_disk = self.owned & turns.sized(self.routing.size).on_disk if turns is not None else ~self.owned & self.owned
        self._on_disk = on_disk if on_disk.any() else None
        self._moving = _moving(before)
        self._spooled: list[Piece] = []
        """what waits because its group is on disk, whatever the clock says"""
        asked = limit is not None or context.follow
        self._known = decided(self.store, self.epoch, self.stage) if asked else []
        # a run without a limit has decided, too: that nothing waits
        self.limit = None if context.follow and not self._known else limit

    def _buffered(self, before: StageState, site: int, inputs: list[Input]) -> Iterator[_Arrival]:
        refs = visible(before.buffer, self.routing, site)
        for arrival in sorted({ref.first_epoch for ref in refs}):
            runs = open_runs(self.store, [ref for ref in refs if ref.first_epoch == arrival], self.routing, site)
            yield _Buffered(arrival, runs, inputs, self.routing)

    def pieces(self, spent: Callable[[], float]) -> Iterator[Piece]:
        """What to process now, in order; `spent` tells the seconds this site has worked on the batch."""
        must, left = self._planned()
        done: list[Piece] = []
        while must or left:
            if must:
                done.append(must.pop(0))
            elif done and self._may_stop(left, spent()):
                break
            else:
                done.append(left.pop(0))
            yield done[-1]
        owed = self._settled(done, left)
        yield from owed
        if not done and not owed:  # windows close without rows, too
            yield self._empty_piece()

    def _planned(self) -> tuple[list[Piece], list[Piece]]:
        """Pieces another attempt has processed, and those nobody has decided about; others wait."""
        if self.limit is None and self._on_disk is None and not self._known and len(self.arrivals) == 1:
            new = self.arrivals[0]
            assert isinstance(new, _New)
            return [], [Piece(arrival=self.epoch, groups=self.owned, bytes=0, fetch=lambda groups: new.inputs)]
        free = self.owned.copy()
        if self._on_disk is not None:
            free &= ~self._on_disk
            self._spooled = [piece for arrival in self.arrivals for piece in self._cut(arrival, self._on_disk)]
        # a row that goes to two sites must be processed in one batch
        must = [piece for arrival in self.arrivals for piece in self._cut(arrival, free & self._moving)]
        free &= ~self._moving
        for known in self._known:
            about = mask_of(known.groups, self.routing.size) & free
            free &= ~about
            for arrival in self.arrivals:
                waits = self._mask(known, arrival.epoch)
                must += self._cut(arrival, about & ~waits)
                self.waiting += self._cut(arrival, about & waits)
        must.sort(key=lambda piece: piece.arrival)
        return must, [piece for arrival in self.arrivals for piece in self._cut(arrival, free)]

    def _cut(self, arrival: _Arrival, groups: Mask) -> list[Piece]:
        """The rows of `groups` in pieces of about equal size."""
        if arrival.runs:
            # a group without rows counts as well: its claim on the segment has to end
            groups = groups & np.logical_or.reduce([run.mine for run in arrival.runs])
        rows = np.zeros(len(groups), dtype=np.int64)
        size = np.zeros(len(groups), dtype=np.float64)
        for number in range(self._inputs):
            counts = arrival.rows(number)
            rows += counts
            size += counts * arrival.row_bytes(number)
        rows[~groups] = 0
        total = int(rows.sum())
        if total == 0 and not arrival.runs:
            return []
        each = max(total, 1) if self.limit is None else max(self.limit.piece_rows, -(-total // PIECES))
        piece_of = (np.cumsum(rows) - rows) // each
        return [
            Piece(
                arrival=arrival.epoch,
                groups=mine,
                bytes=int(size[mine].sum()),
                fetch=arrival.take,
            )
            for number in np.unique(piece_of[groups]).tolist()
            if (mine := groups & (piece_of == number)).any()
        ]

    def _may_stop(self, left: Sequence[Piece], spent: float) -> bool:
        if self.limit is None or self.limit.seconds is None or spent < self.limit.seconds:
            return False
        return sum(piece.bytes for piece in [*self.waiting, *left]) <= self.limit.bytes

    def _settled(self, done: list[Piece], left: list[Piece]) -> list[Piece]:
        """Make it known that `left` waits; gives what is still to be processed because another attempt did so."""
        if self.limit is None and not self._known:  # there is nothing to decide
            return []
        mine = Decision(groups=ranges(self.owned), waiting=_waiting([*self.waiting, *left]))
        found = decide(self.store, self.epoch, self.stage, self.owned, mine)
        if found == mine:
            self.waiting += left
            return []
        for piece in done:
            if (piece.groups & self._mask(found, piece.arrival)).any():
                raise FluxenError(
                    f"epoch {self.epoch}: another attempt of this site decided that rows wait which this one has "
                    "processed; it will be run again and follow"
                )
        owed = []
        for piece in left:
            waits = piece.groups & self._mask(found, piece.arrival)
            self.waiting += [replace(piece, groups=waits)] if waits.any() else []
            if (piece.groups & ~waits).any():
                owed.append(replace(piece, groups=piece.groups & ~waits))
        return owed

    def _mask(self, decision: Decision, arrival: int) -> Mask:
        return mask_of(decision.waiting.get(arrival, ()), self.routing.size)

    def _empty_piece(self) -> Piece:
        nothing = np.zeros(self.routing.size, dtype=np.bool_)
        new = self.arrivals[-1]
        return Piece(arrival=self.epoch, groups=nothing, bytes=0, fetch=new.take)

    # ---- what becomes of the buffer

    def consumed(self) -> list[tuple[str, tuple[tuple[int, int], ...]]]:
        """Of each old segment of the buffer, the groups whose rows have been processed."""
        found = []
        for arrival in self.arrivals:
            for run in arrival.runs:
                done = run.mine & ~self._waits(arrival.epoch)
                if done.any():
                    found.append((run.ref.id, ranges(done)))
        return found

    def kept(self) -> Iterator[tuple[int, pa.Table, tuple[tuple[int, int], ...]]]:
        """New rows that wait, as (number of their input, sorted rows, groups)."""
        waits = self._waits(self.epoch)
        if not waits.any():
            return
        for number, rows in enumerate(self.arrivals[-1].take(waits)):
            if len(rows.h):
                rows = rows.take(np.argsort(rows.h, kind="stable"))
                groups = np.zeros(self.routing.size, dtype=np.bool_)
                groups[self.routing.groups(rows.h)] = True
                yield number, _encoded(rows), ranges(groups)

    def _waits(self, arrival: int) -> Mask:
        mask = np.zeros(self.routing.size, dtype=np.bool_)
        for piece in (*self.waiting, *self._spooled):
            if piece.arrival == arrival:
                mask |= piece.groups
        return mask

    def held(self, number: int) -> Held:
        """What of one input waits after this batch."""
        rows, size, since = 0, 0.0, list[int]()
        for arrival in self.arrivals:
            waits = self._waits(arrival.epoch)
            if waits.any():
                count = int(arrival.rows(number)[waits].sum())
                rows += count
                size += count * arrival.row_bytes(number)
                since += arrival.since(number, waits)
        return Held(rows=rows, bytes=int(size), since=min(since, default=None))

    def arrived(self) -> Ints:
        """Rows that came with this batch, all inputs, whatever became of them."""
        total: Ints = np.zeros(self.routing.size, dtype=np.int64)
        for number in range(self._inputs):
            total += self.arrivals[-1].rows(number)
        return total

    def rows_per_group(self) -> Ints:
        """Rows that wait after this batch, all inputs and arrivals."""
        total: Ints = np.zeros(self.routing.size, dtype=np.int64)
        for arrival in self.arrivals:
            waits = self._waits(arrival.epoch)
            if waits.any():
                for number in range(self._inputs):
                    total += np.where(waits, arrival.rows(number), 0)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Rows of one input that wait."""

    rows: int = 0
    bytes: int = 0
    since: int | None = None
    """their oldest event time"""


def _moving(before: StageState) -> Mask:
    """Groups of which copies are finished elsewhere."""
    mask = np.zeros(before.routing.size, dtype=np.bool_)
    for track in before.tracks:
        mask[track.owners(before.routing)] = True
    return mask


def _waiting(pieces: Sequence[Piece]) -> dict[int, tuple[tuple[int, int], ...]]:
    masks: dict[int, Mask] = {}
    for piece in pieces:
        masks[piece.arrival] = masks.get(piece.arrival, piece.groups) | piece.groups
    return {arrival: ranges(mask) for arrival, mask in masks.items()}


def _bytes(rows: Input) -> int:
    keys = 16 if rows.h2 is None else 24
    return int(rows.table.nbytes) + keys * len(rows.h)


def _encoded(rows: Input) -> pa.Table:
    table = rows.with_keys()
    return table if rows.weight is None else table.append_column(WEIGHT, pa.array(rows.weight))


def _decoded(table: pa.Table) -> Input:
    def ints(name: str) -> Ints:
        values: Ints = table.column(name).to_numpy()
        return values

    names = table.column_names
    own = [name for name in names if name not in (H, H2, T, WEIGHT)]
    return Input(
        ints(H),
        ints(H2) if H2 in names else None,
        ints(T),
        table.select(own),
        ints(WEIGHT) if WEIGHT in names else None,
    )
