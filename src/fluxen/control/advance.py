"""How one epoch leads to the next: pure transitions, no I/O, no clock.

`advance` folds the site records of a batch into the epoch they started from. `fluxen.engine.loop` reads the records and
commits the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from fluxen.arrays import MAX_TIME, MIN_TIME, Json
from fluxen.control import watermarks as marks
from fluxen.control.moves.parallel_track import finish_tracks
from fluxen.control.stage import Stage
from fluxen.control.stats import per_group
from fluxen.operators.base import Operator
from fluxen.state import generations
from fluxen.state.epoch import Epoch, StageState
from fluxen.state.history import GroupHistory
from fluxen.state.record import SiteRecord
from fluxen.state.routing import Routing, mask_of, ranges
from fluxen.state.segment import SegmentRef
from fluxen.state.trees import Trees

REPEATS_RARELY = 0.5
"""Distinct keys per row above which combining rows before the shuffle costs more than it saves."""


Seen = Mapping[tuple[int, int], "int | None"]
"""By (stage, input): the latest event time among a source's rows, of which some may not have come to the sites."""
NOTHING_SEEN: Seen = MappingProxyType({})


def first_epoch(stages: Sequence[Stage], routings: Sequence[Routing]) -> Epoch:
    """The state before anything has been processed."""
    states = []
    for stage, routing in zip(stages, routings):
        before = (MIN_TIME,) * stage.operator.inputs
        plans = stage.operator.plans
        trees = None if plans is None else Trees.start(plans.start, routing)
        states.append(StageState(routing=routing, watermarks=before, emitted=before, trees=trees))
    return Epoch(number=-1, batch=-1, stages=tuple(states))


def expected(epoch: Epoch) -> list[tuple[int, int]]:
    """The (stage, site) pairs whose records make the next epoch complete."""
    return [(number, site) for number, stage in enumerate(epoch.stages) for site in range(stage.routing.sites)]


def advance(
    epoch: Epoch,
    stages: Sequence[Stage],
    records: Mapping[tuple[int, int], SiteRecord],
    *,
    batch: int,
    seen: Seen = NOTHING_SEEN,
    elapsed: float = 0.0,
    moment: int | None = None,
) -> Epoch:
    """The epoch after `epoch`, given one record per site.

    `elapsed` is the seconds since the last epoch of this run; `moment` the time of all its rows where stages go by it.
    """
    states: list[StageState] = []
    results: list[Mapping[str, int]] = []
    for number, (stage, before) in enumerate(zip(stages, epoch.stages)):
        mine = [records[number, site] for site in range(before.routing.sites)]
        bounds = _bounds(stage, results)
        heard = _heard(stage, mine, _seen_by(stage, number, seen))
        if stage.on_arrival and moment is not None:  # no row to come is older, of inputs that are silent neither
            heard = [(moment, rows) for _, rows in heard]
        states.append(_advance_stage(stage, before, mine, epoch.number + 1, heard, _Ahead(bounds, elapsed)))
        results.append(marks.results(stage.operator, states[-1]) if number + 1 < len(stages) else {})
    return Epoch(
        number=epoch.number + 1,
        batch=batch,
        stages=tuple(states),
        control=epoch.control,
        stats=_summary(epoch, records),
    )


def rested(
    epoch: Epoch, stages: Sequence[Stage], *, batch: int, seen: Seen = NOTHING_SEEN, elapsed: float = 0.0
) -> Epoch:
    """The epoch after `epoch` when no row came to a site and none ran: whatever is due stays due.

    Rows of a source that never reached the sites still move the watermarks.
    """
    none = {"rows_in": 0, "late": 0}
    idle = none | {"rows_out": 0, "rows_owed": 0, "delays": [], "busy_seconds": 0.0, "idle_seconds": 0.0, "seconds": {}}
    shown = [
        {
            "sites": [site | idle for site in stage["sites"]],
            "sides": [side | none | {"distinct": 0} for side in stage["sides"]],
            "groups": {
                name: values if name == "bytes" else [0] * len(values) for name, values in stage["groups"].items()
            },
        }
        for stage in epoch.stats.get("stages", [])
    ]
    states: list[StageState] = []
    results: list[Mapping[str, int]] = []
    for number, (stage, before) in enumerate(zip(stages, epoch.stages)):
        heard = _heard(stage, (), _seen_by(stage, number, seen))
        states.append(_moved(stage, before, heard, _Ahead(_bounds(stage, results), elapsed)))
        results.append(marks.results(stage.operator, states[-1]) if number + 1 < len(stages) else {})
    return replace(epoch, number=epoch.number + 1, batch=batch, stages=tuple(states), stats={"stages": shown})


def _moved(stage: Stage, before: StageState, heard: Heard, ahead: _Ahead) -> StageState:
    """The stage with its inputs further on, and nothing else done."""
    frontier, quiet = _frontier(stage, before, heard, ahead)
    watermarks = before.watermarks if before.buffer else frontier
    return replace(before, watermarks=watermarks, frontier=() if frontier == watermarks else frontier, quiet=quiet)


Heard = list[tuple[int | None, bool]]
"""Per input of a stage: the latest event time of a batch, and whether it had a row at all."""


def _seen_by(stage: Stage, number: int, seen: Seen) -> list[int | None]:
    return [seen.get((number, side)) for side in range(stage.operator.inputs)]


def _heard(stage: Stage, records: Sequence[SiteRecord], seen: Sequence[int | None]) -> Heard:
    heard: Heard = []
    for side in range(stage.operator.inputs):
        times = [*(record.sides[side].max_time for record in records), seen[side]]
        known = [time for time in times if time is not None]
        heard.append((max(known, default=None), bool(known) or any(r.sides[side].rows_in for r in records)))
    return heard


class _Ahead(NamedTuple):
    """What tells how far a stage's inputs have come, besides their rows."""

    bounds: tuple[int | None, ...]
    """per input: a time that no result of the feeding stage will lie below; None where rows alone tell"""
    elapsed: float


def _bounds(stage: Stage, results: Sequence[Mapping[str, int]]) -> tuple[int | None, ...]:
    """The bounds of a stage's inputs, given what is known of the stages before it."""
    return tuple(None if feed.stage is None else results[feed.stage].get(feed.time or "") for feed in stage.inputs)


def _frontier(
    stage: Stage, before: StageState, heard: Heard, ahead: _Ahead
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """How far the inputs have come, waiting rows aside, and how long each has been quiet."""
    fed = [bound is not None for bound in ahead.bounds]
    # a stage that feeds an input says itself how far it is: silence says nothing
    quiet = marks.quiet(
        before.quiet, [rows or bound for (_, rows), bound in zip(heard, fed)], ahead.elapsed, stage.idle
    )
    frontier = marks.seen(before.late_before, [time for time, _ in heard], stage.lateness)
    frontier = marks.fed(before.late_before, frontier, ahead.bounds, stage.lateness)
    return marks.following(frontier, quiet, stage.idle), quiet


def _advance_stage(
    stage: Stage,
    before: StageState,
    records: Sequence[SiteRecord],
    epoch: int,
    heard: Heard,
    ahead: _Ahead,
) -> StageState:
    inputs = range(stage.operator.inputs)
    frontier, quiet = _frontier(stage, before, heard, ahead)
    added = [ref for record in records for ref in record.added]
    buffer = (*_left(before.buffer, records, before.routing.size), *(ref for ref in added if ref.kind == "buffer"))
    late = {**dict(before.waiting), epoch: before.late_before}
    waiting = tuple((arrival, late[arrival]) for arrival in sorted({ref.first_epoch for ref in buffer}))
    # rows that wait hold the watermark back: what they need must not expire, their windows must not close
    asked = [limits for _, limits in waiting] if stage.operator.by_arrival else []
    held = [[*_waiting(records, i), *(limits[i] for limits in asked)] for i in inputs]
    watermarks = tuple(max(before.watermarks[i], min([frontier[i], *held[i]])) for i in inputs)
    horizons = stage.operator.horizons(before.watermarks, watermarks)
    present = _present(before, records, [ref for ref in added if ref.kind != "buffer"], epoch)
    segments = _alive(stage.operator, before, present, horizons, generations.cleaned_label(epoch))
    after = replace(
        before,
        segments=segments,
        watermarks=watermarks,
        emitted=before.watermarks,
        cleaning=(),
        unspilling=(),
        trees=None if before.trees is None else before.trees.settled(before.routing),
        history=_left_on_disk(before, present, segments),
        buffer=buffer,
        frontier=() if frontier == watermarks else frontier,
        quiet=quiet,
        waiting=waiting,
    )
    return finish_tracks(after, stage.operator.inputs)


def _waiting(records: Sequence[SiteRecord], side: int) -> list[int]:
    """Just before the oldest event time in each site's skew buffer: a group may close at the time of its rows."""
    times = [record.sides[side].waiting_since for record in records]
    return [time - 1 for time in times if time is not None]


def _present(
    before: StageState, records: Sequence[SiteRecord], added: Sequence[SegmentRef], epoch: int
) -> list[SegmentRef]:
    """The segments after a batch, whatever their age: old ones less what was merged away, and new ones."""
    size = before.routing.size
    refs: Sequence[SegmentRef] = _left(before.segments, records, size)
    if before.cleaning:
        label, groups = generations.cleaned_label(epoch), generations.chosen(before.cleaning, size)
        refs = generations.relabeled(refs, groups, label, active_only=False)
    return [*refs, *added]


def _alive(
    operator: Operator, before: StageState, present: Sequence[SegmentRef], horizons: tuple[int, ...], label: int
) -> tuple[SegmentRef, ...]:
    """Those of the segments that still count: young enough to be met, or owing results."""
    size = before.routing.size
    if not operator.spills:
        return generations.expired(present, horizons, size)
    if before.cleaning:
        present = generations.settled(present, label, operator.horizons(before.watermarks, before.watermarks))
    return generations.expired(present, horizons, size, operator.meets)


def _left_on_disk(
    before: StageState, present: Sequence[SegmentRef], after: Sequence[SegmentRef]
) -> GroupHistory | None:
    """What the groups' history says about their bytes on disk, less those that have left it."""
    if before.history is None:
        return None
    size = before.routing.size
    return before.history.sized(size).left(generations.left_on_disk(present, after, size))


def _left(refs: Sequence[SegmentRef], records: Sequence[SiteRecord], size: int) -> list[SegmentRef]:
    """The segments less what the records have consumed of them."""
    consumed: dict[str, list[tuple[int, int]]] = {}
    for record in records:
        for name, live in record.consumed:
            consumed.setdefault(name, []).extend(live)
    kept = []
    for ref in refs:
        if ref.id in consumed:
            left = mask_of(ref.live, size) & ~mask_of(tuple(consumed[ref.id]), size)
            if not left.any():
                continue
            ref = replace(ref, live=ranges(left))
        kept.append(ref)
    return kept


def _summary(epoch: Epoch, records: Mapping[tuple[int, int], SiteRecord]) -> Json:
    """Per stage and site, what people want to see."""
    stages = []
    for number, stage in enumerate(epoch.stages):
        mine = [records[number, site] for site in range(stage.routing.sites)]
        busy = [record.busy_seconds for record in mine]
        slowest = max(busy, default=0.0)
        sites = [
            {
                "site": record.site,
                "host": record.host,
                "executor": record.executor,
                "rows_in": sum(side.rows_in for side in record.sides),
                "rows_out": record.rows_out,
                "rows_owed": record.rows_owed,
                "late": sum(side.late for side in record.sides),
                "state_rows": sum(side.state_rows for side in record.sides),
                "state_bytes": sum(side.state_bytes for side in record.sides),
                "waiting_rows": sum(side.waiting_rows for side in record.sides),
                "waiting_bytes": sum(side.waiting_bytes for side in record.sides),
                "swapped_bytes": record.swapped_bytes,
                "delays": record.delays,
                "busy_seconds": round(seconds, 4),
                "idle_seconds": round(slowest - seconds, 4),
                "seconds": record.seconds,
                **({"work": record.observed["work"]} if "work" in record.observed else {}),
            }
            for record, seconds in zip(mine, busy)
        ]
        sides = [
            {
                name: sum(getattr(record.sides[side], name) for record in mine)
                for name in ("rows_in", "distinct", "late", "state_rows", "state_bytes", "waiting_rows")
            }
            for side in range(len(mine[0].sides))
        ]
        stages.append({"sites": sites, "sides": sides, "groups": _groups(stage, mine)})
    return {"stages": stages}


def _groups(stage: StageState, records: Sequence[SiteRecord]) -> Json:
    """Bytes and rows of every partition group, over all sites."""
    columns = {name: per_group(records, name, stage.routing.size) for name in ("rows_in", "rows_out", "bytes")}
    return {name: column.astype(np.int64).tolist() for name, column in columns.items()}


def combining_pays(epoch: Epoch, stage: int) -> bool:
    """Whether Spark should combine rows of one key before they travel: not if the last batch's keys hardly repeated.

    Decided from the committed epoch alone, so that a batch that runs again adds its rows in the same order.
    """
    stages = epoch.stats.get("stages", [])
    if not stages:
        return True
    side = stages[stage]["sides"][0]
    return bool(side["distinct"] <= REPEATS_RARELY * side["rows_in"])


def arrival(epoch: Epoch, stages: Sequence[Stage], now: float) -> int | None:
    """The time of the next batch's rows where some stage goes by it, never before those of earlier batches."""
    states = [state for stage, state in zip(stages, epoch.stages) if stage.on_arrival]
    marks = [mark for state in states for mark in state.late_before if mark < MAX_TIME]
    return max([int(now * 1e6), *marks]) if states else None


def flush_due(epoch: Epoch, stages: Sequence[Stage]) -> bool:
    """Whether epochs without rows would do something: process rows that wait, or emit windows that are closed.

    A stage that emits moves the next one's watermark, so that one's windows may be closed only then.
    """
    results: list[Mapping[str, int]] = []
    for stage, state in zip(stages, epoch.stages):
        if state.waiting:
            return True
        state = replace(
            state, watermarks=marks.fed(state.watermarks, state.watermarks, _bounds(stage, results), stage.lateness)
        )
        if (
            stage.operator.flushes
            and state.watermarks > state.emitted
            and any(stage.operator.due(ref, state.emitted, state.watermarks) for ref in state.segments)
        ):
            return True
        results.append(marks.results(stage.operator, replace(state, emitted=state.watermarks)))
    return False


def idle_due(epoch: Epoch, stages: Sequence[Stage], elapsed: float) -> bool:
    """Whether an epoch without rows would release an input that has been idle for `elapsed` seconds more."""
    for stage, state in zip(stages, epoch.stages):
        fed = [feed.stage is not None for feed in stage.inputs]
        quiet = marks.quiet(state.quiet, fed, elapsed, stage.idle)
        if marks.following(state.late_before, quiet, stage.idle) != state.late_before:
            return True
    return False
