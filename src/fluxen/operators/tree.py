"""The join as a tree: inner nodes that keep what they found, so that later rows need not find it again.

Each node joins its children symmetrically with the delta expansion of `fluxen.operators.join`: a combination is made by
its last new child. Children are inputs or other nodes; a node's results are the parent's new rows and, unless it is the
root, state with segments like any other. A node of all inputs is the m-way join, so every plan between that and binary
trees is one and the same operator (`fluxen.state.trees` has the shapes).

A row of an intermediate state carries the event time of each input it combines, and as its own time the earliest of
them: it is dead once no input outside can still send a row that all of its parts may meet. Plans change only between
batches. A site that finds groups whose state was built for another tree keeps the states both trees share, discards
those its own tree lacks and recomputes, bottom-up, those it needs (Zhu and Rundensteiner, sections 4.1 and 4.2).

In the sender's half of a move by parallel track (`fluxen.operators.tracks`) rows are old or new, a combination is new
if all its parts are, and the root drops what is new: the receiver finds that by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from fluxen.operators.base import SiteBatch
from fluxen.operators.columns import concat_sorted, sort_order
from fluxen.operators.join import Join
from fluxen.operators.node import Node, Rows
from fluxen.operators.observe import observe
from fluxen.state.runs import Run
from fluxen.state.segment import Segment, SegmentRef, column, time_range
from fluxen.state.trees import Tree, intermediates, left_deep, members, nodes, read
from fluxen.typing import MIN_TIME, Json, Mask


@dataclass(frozen=True, kw_only=True)
class TreeJoin(Join):
    """A join that runs as a tree, one per site and chosen while it runs."""

    initial: str = ""
    """tree of every site at the start; empty for left-deep in the order of the inputs"""

    # generations on disk owe results between inputs, not between nodes: groups of a tree stay in memory
    owed = None  # type: ignore[assignment]

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

    def identity(self) -> Json:
        return {"operator": "join", "plan": "tree", **self.described}

    def horizons(self, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
        """A combination is dead once every input outside it has moved beyond what one of its parts may meet.

        Stated for the earliest part, which is the time a stored combination goes by.
        """
        return tuple(
            max(
                MIN_TIME,
                min(following[k] + min(self.reach[k][j] for j in found) for k in range(self.inputs) if k not in found),
            )
            for found in self.sets
        )

    def process(self, batch: SiteBatch) -> Iterator[pa.Table]:
        tree = read(batch.tree) if batch.tree else self.start
        runs, stored = self._settled(batch, tree)
        fresh = [rows.take(sort_order(rows.h, None, rows.t)) for rows in batch.drop_late()]
        found: dict[tuple[int, ...], Rows] = {}
        for i, rows in enumerate(fresh):
            if len(rows.h):
                stored[i].append(rows.with_keys())
            found[i,] = Rows.of_input(i, rows, new=batch.since is not None)
        if batch.since is None:
            batch.observed.update(observe(fresh, runs, self.reach, batch.routing))
        for node in nodes(tree):
            joined = self._node(batch, node, [found[members(child)] for child in node], runs)
            if node is tree:
                yield from self._results(batch, joined)
                _count(batch, joined, 0)
            else:
                made = Rows.concat(list(joined.rows()), found, members(node))
                found[members(node)] = made
                _count(batch, joined, len(made.h))
                if len(made.h):
                    stored[self.side_of[members(node)]].append(made.stored())
        batch.state = [_together(tables) for tables in stored]

    def _node(self, batch: SiteBatch, node: tuple[Tree, ...], new: list[Rows], runs: Sequence[list[Run]]) -> Node:
        sides = [self.side_of[members(child)] for child in node]
        return Node(new, [runs[side] for side in sides], self.reach, batch.routing, batch.since)

    def _results(self, batch: SiteBatch, root: Node) -> Iterator[pa.Table]:
        for h, children, ids in root.combinations(drop_new=batch.since is not None):
            batch.count_out(batch.routing.groups(h))
            columns = []
            for out in self.output:
                at = next(n for n, child in enumerate(children) if out.side in child.members)
                if out.column is None:
                    columns.append(pa.array(children[at].times[out.side][ids[at]]).view(out.time_type))
                else:
                    values = children[at].table.column(f"{out.side}.{out.column}")
                    columns.append(values.take(pa.array(ids[at])))
            yield pa.table(columns, names=[out.name for out in self.output])

    # ---- states of other trees

    def _settled(self, batch: SiteBatch, tree: Tree) -> tuple[list[list[Run]], list[list[pa.Table]]]:
        """The runs to work with, and the rows to store, once all groups' states fit this site's tree."""
        runs = [list(side) for side in batch.runs]
        stored: list[list[pa.Table]] = [[] for _ in self.sets]
        if batch.since is not None:
            return runs, stored  # the sender's half keeps the tree it had
        needed = intermediates(tree)
        for side, found in enumerate(self.sets):
            if len(found) > 1 and found not in needed:
                runs[side] = []
                batch.discard.append(side)
        for node in nodes(tree):
            groups = self._missing(batch, members(node)) if node is not tree else None
            if groups is None or not groups.any():
                continue
            new = [self._of_groups(batch, runs, members(child), groups) for child in node]
            joined = self._node(batch, node, new, [[] for _ in self.sets])
            rows = Rows.concat(list(joined.rows()), {rows.members: rows for rows in new}, members(node))
            batch.observed["recomputed"] = batch.observed.get("recomputed", 0) + len(rows.h)
            _count(batch, joined, len(rows.h))
            if len(rows.h):
                side, table = self.side_of[members(node)], rows.stored()
                stored[side].append(table)
                runs[side].append(_in_memory(table, groups, side))
        return runs, stored

    def _missing(self, batch: SiteBatch, wanted: tuple[int, ...]) -> Mask:
        """Groups that came with the state of a tree without this node."""
        missing = np.zeros(batch.routing.size, dtype=np.bool_)
        for text, groups in batch.unlike:
            if wanted not in intermediates(read(text)):
                missing |= groups
        return missing

    def _of_groups(self, batch: SiteBatch, runs: Sequence[list[Run]], wanted: tuple[int, ...], groups: Mask) -> Rows:
        """All stored rows of one side and these groups, less the dead."""
        side = self.side_of[wanted]
        horizon = self.horizons(batch.watermarks, batch.watermarks)[side]
        tables = []
        for run in runs[side]:
            mask = (run.mine & groups)[batch.routing.groups(run.segment.h)] & (run.segment.t >= horizon)
            if mask.any():
                tables.append(run.segment.table.filter(pa.array(mask)))
        if tables:
            return Rows.of_stored(wanted, concat_sorted(tables, "_h", "_t"))
        return Rows.nothing([Rows.of_input(i, batch.inputs[i]) for i in wanted])


def _count(batch: SiteBatch, node: Node, kept: int) -> None:
    """Add a node's work to what the batch took."""
    work = batch.observed.setdefault("work", {"probes": 0, "made": 0, "kept": 0})
    for name, more in (("probes", node.probes), ("made", node.made), ("kept", kept)):
        work[name] += more


def _together(tables: list[pa.Table]) -> pa.Table | None:
    return concat_sorted(tables, "_h", "_t") if tables else None


def _in_memory(table: pa.Table, groups: Mask, side: int) -> Run:
    """Rows that are not stored yet as a run like any other."""
    t = column(table, "_t")
    t_min, t_max = time_range(t)
    ref = SegmentRef(
        name="", side=side, rows=table.num_rows, bytes=0, crc=0, t_min=t_min, t_max=t_max, first_epoch=0, last_epoch=0,
        live=(),
    )  # fmt: skip
    return Run(
        ref, Segment(table=table, h=column(table, "_h"), t=t, offsets=np.zeros(0, dtype=np.int64)), groups, False
    )
