"""One site's share of one micro-batch: load state, run the operator, yield results, write segments and the record.

The work is the same whether a Spark task (`fluxen.spark.task`) or a process of its own (`fluxen.local`) does it. It
reads only what the last committed epoch refers to and writes only files of its own, so it may run any number of times,
at once or after a crash. The record is written last (`fluxen.site.report`): a site whose results were not read to the
end leaves none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from fluxen.operators.base import Input, SiteInput, SiteOutput, drained
from fluxen.site.backlog import Backlog
from fluxen.site.context import SiteContext
from fluxen.site.copy_ahead import copy_ahead
from fluxen.site.generations import Generations
from fluxen.site.report import PieceTotals, ShareReport, reported
from fluxen.site.shares import Share, division, shares
from fluxen.site.state_writer import StateWriter
from fluxen.site.updates import LastOfKeys
from fluxen.state.epoch import SEGMENTS, StageState
from fluxen.state.record import write_record
from fluxen.state.sorted_run import SortedRun, memory_run, open_runs, visible


class _Clock:
    """Seconds per activity."""

    def __init__(self, now: Callable[[], float]) -> None:
        activities = ("wait", "load", "operator", "emit", "write", "merge", "cleanup", "pack", "ahead")
        self.seconds = dict.fromkeys(activities, 0.0)
        self._now = now
        self._last = now()

    def spent(self, activity: str) -> None:
        now = self._now()
        self.seconds[activity] += now - self._last
        self._last = now

    def busy(self) -> float:
        """Time worked so far, the running operator included, without waiting for rows or for the reader of results."""
        self.spent("operator")
        return sum(value for name, value in self.seconds.items() if name not in ("wait", "emit"))

    def passing(self, tables: Iterable[pa.Table], activity: str) -> Generator[pa.Table, None, int]:
        """Pass results on, not counting the reader's time as the site's; returns their number of rows."""
        rows = 0
        for table in tables:
            self.spent(activity)
            rows += table.num_rows
            yield table
            self.spent("emit")
        self.spent(activity)
        return rows


def run_site(
    context: SiteContext,
    source: Callable[[], tuple[int | None, list[Input]]],
    attempt: str,
    where: tuple[str, str] = ("", ""),
) -> Iterator[pa.Table]:
    """Process the rows `source` gives (with the site's index) and yield results; then write the record.

    `where` is the host and the executor. A site that does not know which one it is leaves no record: nobody got a row
    in this batch.
    """
    clock = _Clock(context.clock)
    site, inputs = source()
    if site is None:
        return
    clock.spent("wait")
    if context.moment is not None:
        inputs = [replace(rows, t=np.full(len(rows.h), context.moment, dtype=np.int64)) for rows in inputs]
    done: list[ShareReport] = []
    for number, share in enumerate(shares(context.before, site, inputs, division(context))):
        task = ShareTask(replace(context, before=share.before), site, share, f"{attempt}{'s' * number}")
        done.append((yield from task.run(clock)))
    ahead_left = 0
    if context.before.arriving:
        ahead_left = copy_ahead(context, site, clock.busy())
        clock.spent("ahead")
    record = replace(
        reported(context, site, inputs, done),
        ahead_left=ahead_left,
        seconds={name: round(value, 6) for name, value in clock.seconds.items()},
        host=where[0],
        executor=where[1],
    )
    write_record(context.store, record, attempt)
    _evict(context)


def _evict(context: SiteContext) -> None:
    """Forget copies of segments that no later batch of this stage will read."""
    if context.store.local:
        return
    named = {ref.name for ref in (*context.before.segments, *context.before.buffer)}

    def useless(name: str) -> bool:
        epoch, stage = name.split("-")[:2]
        whole = f"{SEGMENTS}/{name.split('.')[0]}.arrow"  # of a copy that is not finished, too
        return int(epoch) < context.epoch and int(stage) == context.stage and whole not in named

    context.store.evict(SEGMENTS, useless)


class ShareTask:
    """One share of the site's work; `context` has the share's own view of the stage."""

    def __init__(self, context: SiteContext, site: int, share: Share, attempt: str) -> None:
        self.context, self.site, self.share, self.attempt = context, site, share, attempt
        self.operator = context.operator
        self.generations = Generations(context, site, attempt)

    def run(self, clock: _Clock) -> Generator[pa.Table, None, ShareReport]:
        rows_owed = 0
        if self.operator.spills:
            rows_owed = yield from clock.passing(self.generations.owed(self.operator), "cleanup")
        writer = StateWriter(self.context, self.site, self.attempt, self._runs(), self.share.old_until_epoch)
        writer.added.extend(self.generations.restored)
        work = Backlog(self.context, self.site, self.share.inputs)
        totals = PieceTotals(self.operator.sides, self.operator.inputs, self.context.before.routing)
        swapped_bytes = _swapped(self.context.before, writer.runs)
        clock.spent("load")
        pieces = self._pieces(work, self._first(writer.runs, swapped_bytes), totals, clock.busy)
        rows_out = yield from clock.passing(pieces, "operator")
        writer.drop(totals.dropped_sides)
        writer.append(totals.state)
        writer.keep(work)
        clock.spent("write")
        if self.context.frugal:
            writer.reopen()  # release the pages the operator has touched before others are
        self.generations.pack()
        clock.spent("pack")
        writer.merge()
        clock.spent("merge")
        return ShareReport(
            share=self.share,
            totals=totals,
            backlog=work,
            runs=writer.runs,
            added=[*self.generations.added, *writer.added],
            consumed=[*self.generations.consumed, *writer.consumed],
            rows_out=rows_out,
            rows_owed=rows_owed,
            swapped_bytes=swapped_bytes,
        )

    def _runs(self) -> list[list[SortedRun]]:
        """The state of each side that this batch sees."""
        before, store = self.context.before, self.context.store
        horizons = self.operator.horizons(before.watermarks, before.watermarks)
        runs = []
        for side in range(self.operator.sides):
            refs = visible([ref for ref in before.segments if ref.side == side], before.routing, self.site)
            active = open_runs(store, refs, before.routing, self.site, self.generations.hidden)
            back = self.generations.unspill(side, horizons[side])
            runs.append(active + open_runs(store, back, before.routing, self.site))
        return runs

    def _first(self, runs: Sequence[Sequence[SortedRun]], swapped_bytes: int) -> SiteInput:
        """What the first piece finds; its rows are still to come."""
        before = self.context.before
        return SiteInput(
            inputs=(),
            runs=[list(side) for side in runs],
            watermarks=before.watermarks,
            emitted=before.emitted,
            late_before=before.late_before,
            routing=before.routing,
            swapped_bytes=swapped_bytes,
            tree=self.share.tree,
            foreign_trees=self.share.foreign_trees,
            old_until_epoch=self.share.old_until_epoch,
            piece_bytes=self.context.piece_bytes,
        )

    def _pieces(
        self, work: Backlog, given: SiteInput, totals: PieceTotals, busy: Callable[[], float]
    ) -> Iterator[pa.Table]:
        """The results of piece after piece: to the operator each is a batch of its own.

        Updates are held back where a key may change again in a later piece.
        """
        output: SiteOutput | None = None
        key = self.operator.result_key
        updates = LastOfKeys(key) if key and len(work.arrivals) > 1 else None
        for piece in work.pieces(busy):
            if output is not None:
                given = _following(given, output)
            given = replace(given, inputs=piece.inputs(), late_before=work.late_before[piece.arrival])
            results = self.operator.process(given)
            if updates is None:
                output = yield from results
            else:
                tables, output = drained(results)
                updates.add(tables)
            totals.add(given, output, self.context.epoch - piece.arrival)
        if updates is not None:
            yield from updates.tables()


def _following(given: SiteInput, output: SiteOutput) -> SiteInput:
    """What the next piece finds: the state as this one has left it, and the windows closed that were to be closed."""
    runs = [[] if side in output.dropped_sides else list(held) for side, held in enumerate(given.runs)]
    for side, table in enumerate(output.state):
        if table is not None and table.num_rows:
            runs[side].append(memory_run(table, given.routing))
    return replace(given, runs=runs, emitted=given.watermarks, swapped_bytes=0, foreign_trees=())


def _swapped(before: StageState, runs: Sequence[Sequence[SortedRun]]) -> int:
    """State of groups that come back from disk for this batch."""
    if before.residence is None or not before.residence.back.any():
        return 0
    back = before.residence.sized(before.routing.size).back
    total = 0.0
    for run in (run for side in runs for run in side):
        total += run.rows_per_group(before.routing)[back].sum() * (run.ref.bytes / max(run.ref.rows, 1))
    return int(total)
