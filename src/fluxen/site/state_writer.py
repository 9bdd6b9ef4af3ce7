"""What a site leaves behind of a micro-batch: new segments, rows that wait, and merged runs where they are many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from fluxen.arrays import Ints, Mask
from fluxen.site.backlog import Backlog
from fluxen.site.context import SiteContext
from fluxen.site.copy_ahead import merge_limit
from fluxen.state.epoch import segment_name
from fluxen.state.generations import chosen, on_disk
from fluxen.state.routing import mask_of, ranges
from fluxen.state.segment import H, SegmentKind, SegmentRef, T, column, open_segment, write_segment
from fluxen.state.sorted_run import FAN_IN, SortedRun, due, open_runs, young

SQUEEZED = 0.75
"""Share of a run's rows that must be the site's own, while other groups are on disk, for it to stay as it is."""


class StateWriter:
    """Appends the batch's new state rows and merges runs that have become too many."""

    def __init__(
        self,
        context: SiteContext,
        site: int,
        attempt: str,
        runs: list[list[SortedRun]],
        old_until_epoch: Ints | None = None,
    ) -> None:
        self.context, self.site, self.attempt = context, site, attempt
        self._old_until = None if old_until_epoch is None else int(old_until_epoch.max())
        self.runs = runs
        """the state of each side, as far as it is written"""
        self.added: list[SegmentRef] = []
        self.consumed: list[tuple[str, tuple[tuple[int, int], ...]]] = []
        self.owned = context.before.routing.owned(site)
        self._count = 0

    def drop(self, sides: Iterable[int]) -> None:
        """Forget all that is stored of these sides."""
        for side in sides:
            self.consumed += [(run.ref.id, ranges(run.mine)) for run in self.runs[side]]
            self.runs[side] = []

    def append(self, state: list[list[pa.Table]]) -> None:
        horizons = self._horizons()
        for side, tables in enumerate(state):
            if len(tables) > 1:
                tables = [self._compact(side, tables, horizons[side])]
            if tables and tables[0].num_rows:
                self._add(side, tables[0], (self.context.epoch, self.context.epoch))

    def reopen(self) -> None:
        """Map the runs anew: none of their pages count as this process's until it reads them again."""
        for side in self.runs:
            side[:] = [replace(run, segment=open_segment(self.context.store, run.ref)) for run in side]

    def keep(self, work: Backlog) -> None:
        """Put rows that wait into the buffer, and forget those that no longer do."""
        self.consumed += work.consumed()
        for number, table, groups in work.kept():
            span = (self.context.epoch, self.context.epoch)
            self.added.append(self._write(number, table, span, groups, kind="buffer"))

    def _horizons(self) -> tuple[int, ...]:
        """Per side: older rows are dead, unless they owe results to a generation on disk."""
        before = self.context.before
        return self.context.operator.horizons(before.watermarks, before.watermarks)

    @cached_property
    def _owing(self) -> tuple[tuple[int, ...], Mask] | None:
        """The oldest rows that state out of the batch's sight can meet, per side, and the groups with such state."""
        before, operator = self.context.before, self.context.operator
        if not operator.spills:
            return None
        size = before.routing.size
        cleaning = chosen(before.cleaning, size) & self.owned
        unseen = [  # generations on disk, and active state that becomes one in this batch
            ref
            for ref in before.segments
            if (mask_of(ref.live, size) & (self.owned if ref.kind == "generation" else cleaning)).any()
        ]
        return (operator.needed_since(unseen), on_disk(unseen, size) | cleaning) if unseen else None

    def _compact(self, side: int, tables: list[pa.Table], horizon: int) -> pa.Table:
        """The rows in one table, without those that are dead and owe nothing."""
        if self._owing is None:
            return self.context.operator.compact(side, tables, horizon)
        since, owing = self._owing
        routing = self.context.before.routing
        kept = []
        for table in tables:
            old = column(table, T) < horizon
            if old.any():
                table = table.filter(pa.array(~old | owing[routing.groups(column(table, H))]))
            kept.append(table)
        return self.context.operator.compact(side, kept, min(horizon, since[side]))

    def merge(self) -> None:
        self._forget_empty()
        horizons = self._horizons()
        limit = merge_limit(self.context.before, self.site, self.context.merge_limit)
        for side in range(self.context.operator.sides):
            runs = young(self._mergeable(side), horizons[side])
            count = due([self._size(run) for run in runs], limit)
            if count:
                self._merge(side, runs[-count:], horizons[side])
            if self._owing is not None:
                self._squeeze(side, horizons[side])
            if self.context.operator.shadows:
                self._renew(side, horizons[side], limit)

    def _forget_empty(self) -> None:
        """Let go of views of files without a row of their key: only a site finds out."""
        for side in self.runs:
            empty = [run for run in side if run.ref.read_as is not None and len(run.segment.h) == 0]
            self.consumed += [(run.ref.id, ranges(run.mine)) for run in empty]
            side[:] = [run for run in side if run not in empty]

    def _renew(self, side: int, horizon: int, limit: int) -> None:
        """Rewrite groups of runs too large to be merged as a whole, where more rows are outdated than count.

        A group is rewritten from all runs of earlier batches at once, when at least half of its rows may be outdated:
        state stays within about twice what counts, and a row is rewritten about once more.
        """
        fresh = {ref.name for ref in self.added}
        runs = [run for run in self._mergeable(side) if run.ref.name not in fresh]
        if sum(self._size(run)[1] for run in runs) <= limit:
            return  # `due` takes care of them
        for groups in self._outdated(runs, limit):
            names = {run.ref.id for run in runs}
            self._rewrite(side, [run for run in self.runs[side] if run.ref.id in names], groups, horizon)

    def _outdated(self, runs: list[SortedRun], limit: int) -> Iterator[Mask]:
        """Groups to rewrite, as many at a time as `limit` bytes hold."""
        routing = self.context.before.routing
        counts = np.array([run.rows_per_group(routing) for run in runs])
        total, several = counts.sum(axis=0), (counts > 0).sum(axis=0) >= FAN_IN
        row_bytes = max(run.ref.bytes / max(run.ref.rows, 1) for run in runs)
        size = total * row_bytes
        piece = np.zeros(routing.size, dtype=np.bool_)
        for group in np.flatnonzero(several & (total >= 2 * counts.max(axis=0))).tolist():
            if piece.any() and size[piece].sum() + size[group] > limit:
                yield piece
                piece = np.zeros(routing.size, dtype=np.bool_)
            piece[group] = True
        if piece.any():
            yield piece

    def _rewrite(self, side: int, runs: list[SortedRun], groups: Mask, horizon: int) -> None:
        """These groups' rows of all these runs in one new run; of the others each run keeps what it has."""
        parts = [replace(run, mine=run.mine & groups, whole=False) for run in runs if (run.mine & groups).any()]
        merged = self._compact(side, [part.rows(self.context.before.routing) for part in parts], horizon)
        self.consumed += [(part.ref.id, ranges(part.mine)) for part in parts]
        names = {part.ref.id for part in parts}
        left = [
            replace(run, mine=run.mine & ~groups, whole=False) if run.ref.id in names else run
            for run in self.runs[side]
        ]
        self.runs[side] = [run for run in left if run.mine.any()]
        if merged.num_rows:
            span = (min(part.ref.first_epoch for part in parts), max(part.ref.last_epoch for part in parts))
            self._keep(self._write(side, merged, span, ranges(groups & self.owned)))

    def _size(self, run: SortedRun) -> tuple[int, int]:
        """Rows and bytes of a run that are this site's own."""
        rows = int(run.rows_per_group(self.context.before.routing).sum())
        return rows, run.ref.bytes * rows // max(run.ref.rows, 1)

    def _squeeze(self, side: int, horizon: int) -> None:
        """Rewrite runs most of whose rows went to disk: they would be mapped for the few that stay."""
        chosen: list[SortedRun] = []
        total = 0
        for run in list(self.runs[side]):
            rows, size = self._size(run)
            if rows >= SQUEEZED * run.ref.rows:
                continue
            if chosen and total + size > self.context.merge_limit:
                self._merge(side, chosen, horizon)
                chosen, total = [], 0
            chosen.append(run)
            total += size
        if chosen:
            self._merge(side, chosen, horizon)

    def _mergeable(self, side: int) -> list[SortedRun]:
        if self._old_until is None:
            return self.runs[side]
        # old and new rows of a group that moves by parallel track must stay apart
        return [run for run in self.runs[side] if run.ref.first_epoch > self._old_until]

    def _merge(self, side: int, runs: list[SortedRun], horizon: int) -> None:
        tables = [run.rows(self.context.before.routing) for run in runs]
        merged = self._compact(side, tables, horizon)
        fresh = {ref.name for ref in self.added}
        self.added = [ref for ref in self.added if ref.name not in {run.ref.name for run in runs}]
        for run in runs:
            if run.ref.name in fresh:
                self.context.store.delete(run.ref.name)
            else:
                self.consumed.append((run.ref.id, ranges(run.mine)))
        self.runs[side] = [run for run in self.runs[side] if run not in runs]
        if merged.num_rows:
            span = (min(run.ref.first_epoch for run in runs), max(run.ref.last_epoch for run in runs))
            self._add(side, merged, span)

    def _add(self, side: int, table: pa.Table, epochs: tuple[int, int]) -> None:
        live = self.owned
        if self._owing is not None:  # a group must not seem to have rows of two generations because its neighbours do
            live = np.zeros(len(self.owned), dtype=np.bool_)
            live[self.context.before.routing.groups(column(table, H))] = True
        self._keep(self._write(side, table, epochs, ranges(live)))

    def _keep(self, ref: SegmentRef) -> None:
        self.added.append(ref)
        self.runs[ref.side].extend(open_runs(self.context.store, [ref], self.context.before.routing, self.site))

    def _write(
        self,
        side: int,
        table: pa.Table,
        epochs: tuple[int, int],
        live: tuple[tuple[int, int], ...],
        kind: SegmentKind = "state",
    ) -> SegmentRef:
        self._count += 1
        return write_segment(
            self.context.store,
            segment_name(
                epoch=self.context.epoch,
                stage=self.context.stage,
                site=self.site,
                side=side,
                attempt=f"{self.attempt}{self._count}",
            ),
            table,
            side=side,
            kind=kind,
            partitions=self.context.before.routing.partitions,
            epochs=epochs,
            live=live,
        )
