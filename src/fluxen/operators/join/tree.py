"""The join as a tree: inner nodes that keep what they found, so that later rows need not find it again.

Each node joins its children symmetrically with the delta expansion of `fluxen.operators.join.mway`: a combination is
made by its last new child. Children are inputs or other nodes; a node's results are the parent's new rows and, unless
it is the root, state with segments like any other. A node of all inputs is the m-way join, so every plan between that
and binary trees is one and the same operator (`fluxen.state.trees` has the shapes).

A row of an intermediate state carries the event time of each input it combines, and as its own time the earliest of
them: it is dead once no input outside can still send a row that all of its parts may meet. Plans change only between
batches. A site that finds groups whose state was built for another tree keeps the states both trees share, drops
those its own tree lacks and recomputes, bottom-up, those it needs (Zhu and Rundensteiner, sections 4.1 and 4.2).

In the sender's half of a move by parallel track (`fluxen.site.shares`) rows are old or new, a combination is new
if all its parts are, and the root drops what is new: the receiver finds that by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from fluxen.arrays import MAX_TIME, Ints, Json, Mask
from fluxen.operators.base import Plans, Results, SiteInput, SiteOutput
from fluxen.operators.join.mway import Join
from fluxen.operators.join.node import JoinedRows, Node
from fluxen.operators.join.observe import observe
from fluxen.operators.join.reduction import at_least
from fluxen.operators.kernels import concat_sorted, sort_order
from fluxen.state.generations import Spans
from fluxen.state.segment import Segment, SegmentRef, column, time_range
from fluxen.state.sorted_run import SortedRun
from fluxen.state.trees import Tree, intermediates, left_deep, members, nodes, read


@dataclass(frozen=True, kw_only=True)
class TreeJoin(Join):
    """A join that runs as a tree, one per site and chosen while it runs."""

    initial: str = ""
    """tree of every site at the start; empty for left-deep in the order of the inputs"""

    @property
    def plans(self) -> Plans:
        return Plans(names=self.names, start=self.start, sides=self.side_of)

    @property
    def start(self) -> Tree:
        return read(self.initial) if self.initial else left_deep(self.inputs)

    @cached_property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """The set of inputs whose combinations each side holds: the inputs themselves, then every possible node."""
        sizes = (1, *range(2, self.inputs))
        return tuple(found for size in sizes for found in itertools.combinations(range(self.inputs), size))

    @cached_property
    def side_of(self) -> Mapping[tuple[int, ...], int]:
        return {found: side for side, found in enumerate(self.sets)}

    @property
    def sides(self) -> int:
        return len(self.sets)

    def dealt_sides(self, dealt: int) -> tuple[int, ...]:
        return tuple(side for side, found in enumerate(self.sets) if dealt in found)

    def identity(self) -> Json:
        return {"operator": "join", "plan": "tree", **self.described}

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        """A combination is dead once every input outside it has moved beyond what one of its parts may meet.

        Stated for the earliest part, which is the time a stored combination goes by.
        """
        return tuple(
            min(
                at_least(following[k], min(self.reach[k][j] for j in found))
                for k in range(self.inputs)
                if k not in found
            )
            for found in self.sets
        )

    # ---- generations on disk owe results between inputs, whatever trees there were: see `control.memory.spilling`

    def meets(self, one: SegmentRef, others: Spans) -> Mask:
        mask = np.zeros(len(others.side), dtype=np.bool_)
        if one.side < self.inputs:
            at = np.flatnonzero(others.side < self.inputs)
            mask[at] = super().meets(one, Spans(others.side[at], others.t_min[at], others.t_max[at]))
        return mask

    def needed_since(self, others: Sequence[SegmentRef]) -> tuple[int, ...]:
        rows = super().needed_since([ref for ref in others if ref.side < self.inputs])
        return (*rows, *(MAX_TIME,) * (self.sides - self.inputs))

    def owed(
        self, sides: Sequence[Sequence[tuple[int, pa.Table]]], piece_bytes: int | None = None
    ) -> Iterator[pa.Table]:
        return super().owed(sides[: self.inputs], piece_bytes)

    # ---- a batch

    def process(self, given: SiteInput) -> Results:
        tree = read(given.tree) if given.tree else self.start
        dropped = self._dropped(given, tree)
        runs = [[] if side in dropped else list(held) for side, held in enumerate(given.runs)]
        observed: Json = {}
        stored = self._recomputed(given, tree, runs, observed)
        kept, late = given.on_time()
        fresh = [rows.take(sort_order(rows.h, None, rows.t)) for rows in kept]
        found: dict[tuple[int, ...], JoinedRows] = {}
        for i, rows in enumerate(fresh):
            if len(rows.h):
                stored[i].append(rows.with_keys())
            found[i,] = JoinedRows.of_input(i, rows, new=given.old_until_epoch is not None)
        if given.old_until_epoch is None:
            observed.update(observe(fresh, runs, self.reach, given.routing))
        rows_out = given.per_group()
        for node in nodes(tree):
            joined = self._node(given, node, [found[members(child)] for child in node], runs)
            if node is tree:
                rows_out = yield from self._results(given, joined)
                _count(observed, joined, 0)
            else:
                made = JoinedRows.concat(list(joined.rows()), found, members(node))
                found[members(node)] = made
                _count(observed, joined, len(made.h))
                if len(made.h):
                    stored[self.side_of[members(node)]].append(made.stored())
        state = tuple(_together(tables) for tables in stored)
        return SiteOutput(state=state, rows_out=rows_out, late=late, dropped_sides=dropped, observed=observed)

    def _node(
        self, given: SiteInput, node: tuple[Tree, ...], new: list[JoinedRows], runs: Sequence[list[SortedRun]]
    ) -> Node:
        sides = [self.side_of[members(child)] for child in node]
        return Node(new, [runs[side] for side in sides], self.reach, given.routing, given.old_until_epoch)

    def _results(self, given: SiteInput, root: Node) -> Generator[pa.Table, None, Ints]:
        """The root's combinations as results; afterwards, how many there were of each group."""
        rows_out = given.per_group()
        for h, children, ids in root.combinations(drop_new=given.old_until_epoch is not None):
            rows_out += given.per_group(given.routing.groups(h))
            columns = []
            for out in self.output:
                at = next(n for n, child in enumerate(children) if out.side in child.members)
                if out.column is None:
                    columns.append(pa.array(children[at].times[out.side][ids[at]]).view(out.time_type))
                else:
                    values = children[at].table.column(f"{out.side}.{out.column}")
                    columns.append(values.take(pa.array(ids[at])))
            yield pa.table(columns, names=[out.name for out in self.output])
        return rows_out

    # ---- states of other trees

    def _dropped(self, given: SiteInput, tree: Tree) -> tuple[int, ...]:
        """The sides whose rows this site's tree does not keep; the sender's half of a move keeps the tree it had."""
        if given.old_until_epoch is not None:
            return ()
        needed = intermediates(tree)
        return tuple(side for side, found in enumerate(self.sets) if len(found) > 1 and found not in needed)

    def _recomputed(
        self, given: SiteInput, tree: Tree, runs: list[list[SortedRun]], observed: Json
    ) -> list[list[pa.Table]]:
        """The rows to store so that all groups' states fit this site's tree; `runs` has them, too, afterwards."""
        stored: list[list[pa.Table]] = [[] for _ in self.sets]
        for node in nodes(tree) if given.foreign_trees else ():
            groups = self._missing(given, members(node))
            if node is tree or not groups.any():
                continue
            new = [self._of_groups(given, runs, members(child), groups) for child in node]
            joined = self._node(given, node, new, [[] for _ in self.sets])
            rows = JoinedRows.concat(list(joined.rows()), {rows.members: rows for rows in new}, members(node))
            observed["recomputed"] = observed.get("recomputed", 0) + len(rows.h)
            _count(observed, joined, len(rows.h))
            if len(rows.h):
                side, table = self.side_of[members(node)], rows.stored()
                stored[side].append(table)
                runs[side].append(_in_memory(table, groups, side))
        return stored

    def _missing(self, given: SiteInput, wanted: tuple[int, ...]) -> Mask:
        """Groups that came with the state of a tree without this node."""
        missing = np.zeros(given.routing.size, dtype=np.bool_)
        for text, groups in given.foreign_trees:
            if wanted not in intermediates(read(text)):
                missing |= groups
        return missing

    def _of_groups(
        self, given: SiteInput, runs: Sequence[list[SortedRun]], wanted: tuple[int, ...], groups: Mask
    ) -> JoinedRows:
        """All stored rows of one side and these groups, less the dead."""
        side = self.side_of[wanted]
        horizon = self.horizons(given.watermarks, given.watermarks)[side]
        tables = []
        for run in runs[side]:
            if not (run.mine & groups).any():
                continue
            mask = (run.mine & groups)[given.routing.groups(run.segment.h)] & (run.segment.t >= horizon)
            if mask.any():
                tables.append(run.segment.table.filter(pa.array(mask)))
        if tables:
            return JoinedRows.of_stored(wanted, concat_sorted(tables, "_h", "_t"))
        return JoinedRows.nothing([JoinedRows.of_input(i, given.inputs[i]) for i in wanted])


def _count(observed: Json, node: Node, kept: int) -> None:
    """Add a node's work to what was seen."""
    work = observed.setdefault("work", {"probes": 0, "made": 0, "kept": 0})
    for name, more in (("probes", node.probes), ("made", node.made), ("kept", kept)):
        work[name] += more


def _together(tables: list[pa.Table]) -> pa.Table | None:
    return concat_sorted(tables, "_h", "_t") if tables else None


def _in_memory(table: pa.Table, groups: Mask, side: int) -> SortedRun:
    """Rows that are not stored yet as a run like any other."""
    t = column(table, "_t")
    t_min, t_max = time_range(t)
    ref = SegmentRef(
        name="", side=side, rows=table.num_rows, bytes=0, crc=0, t_min=t_min, t_max=t_max, first_epoch=0, last_epoch=0,
        live=(),
    )  # fmt: skip
    return SortedRun(
        ref, Segment(table=table, h=column(table, "_h"), t=t, offsets=np.zeros(0, dtype=np.int64)), groups, False
    )
