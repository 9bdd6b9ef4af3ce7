"""What an operator is: a frozen config, the logic on columns, and state made of segments.

An operator is given one micro-batch at one site: the new rows of its inputs, the runs of its state, the watermarks
(`SiteInput`). It yields result tables and returns new state rows (`SiteOutput`). `fluxen.site.task` drives it; it does
no I/O itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from fluxen.arrays import MIN_TIME, Groups, Ints, Json, Mask
from fluxen.partitioning import Resources
from fluxen.state.generations import Spans
from fluxen.state.routing import Routing
from fluxen.state.segment import SegmentRef
from fluxen.state.sorted_run import SortedRun
from fluxen.state.trees import Track, Tree

EMIT_ROWS = 1 << 16
"""Results leave a site in tables of about this many rows, however many there are."""


@dataclass(frozen=True, slots=True)
class Input:
    """New rows of one input at one site, in any order."""

    h: Ints
    h2: Ints | None
    t: Ints
    table: pa.Table
    """the operator's own columns, without hashes and time"""
    weight: Ints | None = None
    """how many rows of the source each row stands for, when Spark has pre-aggregated them"""
    hidden: int | None = None
    """the latest event time of rows that are not here because their key is null"""

    @property
    def rows(self) -> int:
        """Rows of the source."""
        return len(self.h) if self.weight is None else int(self.weight.sum())

    def take(self, rows: Ints | Mask) -> Input:
        if rows.dtype == np.bool_:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        h2 = None if self.h2 is None else self.h2[rows]
        weight = None if self.weight is None else self.weight[rows]
        return Input(self.h[rows], h2, self.t[rows], self.table.take(pa.array(rows)), weight, self.hidden)

    def with_keys(self) -> pa.Table:
        """Hashes and time as columns in front: the layout of a segment."""
        hashes = [pa.array(self.h)] if self.h2 is None else [pa.array(self.h), pa.array(self.h2)]
        names = ["_h", "_t"] if self.h2 is None else ["_h", "_h2", "_t"]
        columns = [*hashes, pa.array(self.t), *self.table.columns]
        return pa.table(columns, names=[*names, *self.table.column_names])


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteInput:
    """One micro-batch, or a piece of one, as one site's operator gets it."""

    inputs: Sequence[Input]
    runs: Sequence[Sequence[SortedRun]]
    """state of each side, oldest first"""
    watermarks: tuple[int, ...]
    """per input: the time below which windows close and state expires"""
    emitted: tuple[int, ...]
    """per input: the watermark of the batch before; what it closed was emitted then"""
    late_before: tuple[int, ...]
    """per input: older rows are late; with rows waiting in the skew buffer that is above the watermarks"""
    routing: Routing
    swapped_bytes: int = 0
    """state that came back from disk for this batch"""
    tree: str = ""
    """the join tree this site runs; empty for the operator's own choice"""
    foreign_trees: tuple[tuple[str, Mask], ...] = ()
    """groups whose state was built for another tree: (that tree, which groups)"""
    old_until_epoch: Ints | None = None
    """per group: rows of later epochs are new; only for the sender's half of a move by parallel track"""
    piece_bytes: int | None = None
    """bytes of rows to hold at a time, about; None where memory is not limited"""

    def on_time(self) -> tuple[list[Input], tuple[int, ...]]:
        """The inputs without late rows, and how many of each were late."""
        kept = [rows.take(rows.t >= limit) for rows, limit in zip(self.inputs, self.late_before)]
        return kept, tuple(rows.rows - fresh.rows for rows, fresh in zip(self.inputs, kept))

    def per_group(self, groups: Groups | None = None) -> Ints:
        """How many rows of each partition group there are, given the rows' groups; none without."""
        if groups is None:
            return np.zeros(self.routing.size, dtype=np.int64)
        return np.bincount(groups, minlength=self.routing.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOutput:
    """What the operator leaves of a `SiteInput` besides results."""

    state: tuple[pa.Table | None, ...] = ()
    """new state rows of each side, sorted by hash; sides at the end that have none may be left out"""
    rows_out: Ints | None = None
    """results per partition group (`SiteInput.per_group`); None for none at all"""
    late: tuple[int, ...] = ()
    """rows of each input that were late; empty for none"""
    distinct: int = 0
    """rows left when those of one key were combined"""
    dropped_sides: tuple[int, ...] = ()
    """sides whose stored rows are no longer needed"""
    observed: Json = field(default_factory=dict)
    """what the operator saw, for the planner"""


Results: TypeAlias = Generator[pa.Table, None, SiteOutput]
"""Result tables as they are found, and what the operator leaves when there are no more."""


def drained(results: Results) -> tuple[list[pa.Table], SiteOutput]:
    """All results at once, for callers that do not stream them."""
    tables: list[pa.Table] = []
    while True:
        try:
            tables.append(next(results))
        except StopIteration as end:
            return tables, end.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a stage has come after a batch: what its results to come follow from."""

    watermarks: tuple[int, ...]
    """per input: rows to come, and rows that wait, are not older, unless they are late"""
    emitted: tuple[int, ...]
    """per input: the watermark the batch worked under; what it closed is out"""
    owed: tuple[int, ...]
    """per side: the oldest time among the rows of groups that owe results; MAX_TIME if none do"""


Division = Literal["results", "windows", "keys"]
"""What two sites divide while a group moves from one to the other by parallel track."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """An operator whose sites run join trees of their own: what a planner must know about it."""

    names: tuple[str, ...]
    """of the inputs"""
    start: Tree
    """the tree of every site at the start"""
    sides: Mapping[tuple[int, ...], int]
    """which side holds the combinations of each set of inputs"""


class Operator(ABC):
    """A stateful operator: what it does with a batch, and its traits, which say what the engine may do with it.

    The defaults are those of an operator with one input that keeps rows for ever and emits each result once.

    Example::

        class Users(fx.Operator):  # every row's user; keeps nothing
            schema = "user string"

            def identity(self):
                return {"operator": "users"}

            def compact(self, side, tables, horizon):
                return pa.concat_tables(tables)

            def process(self, given):
                (rows,), late = given.on_time()
                yield rows.table.select(["user"])
                return SiteOutput(late=late)  # of fluxen.operators.base

        fx.stateful(clicks, by="user", operator=Users(), time="ts")
    """

    # ---- what it does

    @abstractmethod
    def process(self, given: SiteInput) -> Results:
        """Yields results of the new rows; returns the new state rows and what else there is to report."""

    @abstractmethod
    def compact(self, side: int, tables: Sequence[pa.Table], horizon: int) -> pa.Table:
        """One sorted table equivalent to several, oldest first, without rows older than `horizon`."""

    @abstractmethod
    def identity(self) -> Json:
        """What must not change between two runs on one checkpoint; `operator` is its name."""

    # ---- time

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        """Per side: state rows with an earlier time are dead after a batch that worked under the watermarks `used`."""
        return (MIN_TIME,) * self.sides

    def output_watermarks(self, progress: Progress) -> dict[str, int]:
        """The result columns that carry event time, each with a time that no result to come lies below.

        MIN_TIME where there is no such time. Results that only late rows of a source have made may lie below: to the
        next stage they are late as well.
        """
        return {}

    def distances(self) -> Mapping[tuple[str, str], int]:
        """Of two result columns with event time: how much later the second one is in every result, at least.

        So a stage behind that goes by the one knows the other's progress as well, if its results have it.
        """
        return {}

    # ---- traits

    @property
    def inputs(self) -> int:
        return 1

    @property
    def sides(self) -> int:
        """Kinds of state rows, each with segments of its own."""
        return 1

    @property
    def emits(self) -> Literal["append", "update"]:
        """Each result once, or again whenever it has changed."""
        return "append"

    @property
    def result_key(self) -> tuple[str, ...]:
        """Of updates: the result columns that tell which earlier result one takes the place of.

        A batch brings at most one result for each of their values; without them, one for every change.
        """
        return ()

    @property
    def divisible(self) -> bool:
        """Whether a single key of a partition group can get a group of its own."""
        return True

    @property
    def deals(self) -> tuple[int, ...]:
        """The inputs whose rows of one key may be dealt over several groups, if all of these get the others' rows.

        Every result must then have exactly one row of the dealt input, and depend on no other of its rows.
        """
        return ()

    @property
    def whole(self) -> str:
        """Why rows of one key cannot be dealt over several groups, where they cannot."""
        return "its results depend on all rows of a key together"

    def dealt_sides(self, dealt: int) -> tuple[int, ...]:
        """The sides whose rows are dealt with those of this input; every group has all rows of the others."""
        return (dealt,)

    @property
    def flushes(self) -> bool:
        """Whether state rows become results when the watermark passes their time, also in a batch without rows."""
        return False

    def due(self, one: SegmentRef, emitted: tuple[int, ...], watermarks: tuple[int, ...]) -> bool:
        """Whether rows of this segment may become results as watermarks advance; only for operators that flush."""
        return one.t_min <= watermarks[0]

    @property
    def by_arrival(self) -> bool:
        """Whether which state a row finds is a matter of the watermark when it came, not of its own time.

        Rows that wait then hold the watermark back to that one, so that nothing they ask for has gone.
        """
        return False

    @property
    def shadows(self) -> bool:
        """Whether later state rows of a key take the place of earlier ones, which only cost room then."""
        return False

    @property
    def plans(self) -> Plans | None:
        """Its join trees, if each site runs one of its own (`SiteInput.tree`)."""
        return None

    @property
    def resources(self) -> Resources:
        """How memory, computation and communication grow with the frequency of a key (Gedik's beta)."""
        return Resources.of("LLL")

    @property
    def schema(self) -> Any:
        """Of the results, as anything PySpark takes: what `fluxen.stateful` asks of a user's own operator."""
        return None

    def keeps(self, clock: str) -> list[str]:
        """What the state is and when it goes, in a line for each kind and none for no state; `clock` says what time is
        measured by."""
        return ["what the operator keeps"]

    # ---- generations on disk

    @property
    def spills(self) -> bool:
        """Whether groups may have generations of state that have not met: those on disk, and the one in memory.

        Needs `meets`, `needed_since` and `owed`. Groups of all other operators take turns in memory.
        """
        return False

    def meets(self, one: SegmentRef, others: Spans) -> Mask:
        """Which of these segments may hold a row that joins with a row of the given one, judged by times."""
        raise NotImplementedError(f"{type(self).__name__} does not spill")

    def needed_since(self, others: Sequence[SegmentRef]) -> tuple[int, ...]:
        """Per side: earlier rows can meet none of these segments' rows."""
        raise NotImplementedError(f"{type(self).__name__} does not spill")

    def owed(
        self, sides: Sequence[Sequence[tuple[int, pa.Table]]], piece_bytes: int | None = None
    ) -> Iterator[pa.Table]:
        """Results of rows that are not all of one generation, given each side's (generation, rows)."""
        raise NotImplementedError(f"{type(self).__name__} does not spill")

    # ---- parallel tracks

    def lifetime(self) -> int | None:
        """Microseconds of event time until all rows that are old now have gone, which is how long a parallel track
        lasts; None where groups move only with their state."""
        return None

    @property
    def division(self) -> Division:
        """What the two sites of a parallel track divide.

        "results": both process all rows; the sender drops what new rows make alone (`SiteInput.old_until_epoch`).
        "windows": the sender keeps the windows that are open when the move begins; a state row's time is the end of its
        window. "keys": the sender keeps the keys it has state of; in the end that goes to the receiver. With windows
        and keys, `stays` says whose a row is.
        """
        return "results"

    def stays(self, rows: Input, track: Track, runs: Sequence[SortedRun], groups: Groups, watermark: int) -> Mask:
        """Which rows are the sender's, whose state is `runs`; `groups` are the rows' groups in these."""
        raise NotImplementedError(f"{type(self).__name__} does not divide rows")
