"""How one epoch leads to the next: pure transitions, no I/O, no clock.

`advance` folds the commit records of a batch into the epoch they started from. The runtimes around it read the records
and commit the result (`fluxen.spark.run`, `fluxen.testing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fluxen.control.balance import finish_tracks
from fluxen.operators.aggregate import Tumbling
from fluxen.operators.base import Operator
from fluxen.operators.tree import TreeJoin
from fluxen.state import generations
from fluxen.state.epoch import Epoch, StageState
from fluxen.state.record import CommitRecord
from fluxen.state.routing import Routing, mask_of, ranges
from fluxen.state.segment import SegmentRef
from fluxen.state.trees import Trees
from fluxen.typing import MIN_TIME, Json

REPEATS_RARELY = 0.5
"""Distinct keys per row above which combining rows before the shuffle costs more than it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stateful stage of a query as the coordinator knows it."""

    operator: Operator
    lateness: tuple[int, ...]
    """per input, in microseconds"""


def first_epoch(stages: Sequence[Stage], routings: Sequence[Routing]) -> Epoch:
    """The state before anything has been processed."""
    states = []
    for stage, routing in zip(stages, routings):
        before = (MIN_TIME,) * stage.operator.inputs
        trees = Trees.start(stage.operator.start, routing) if isinstance(stage.operator, TreeJoin) else None
        states.append(StageState(routing=routing, watermarks=before, emitted=before, trees=trees))
    return Epoch(number=-1, batch=-1, stages=tuple(states))


def expected(epoch: Epoch) -> list[tuple[int, int]]:
    """The (stage, site) pairs whose records make the next epoch complete."""
    return [(number, site) for number, stage in enumerate(epoch.stages) for site in range(stage.routing.sites)]


def advance(
    epoch: Epoch, stages: Sequence[Stage], records: Mapping[tuple[int, int], CommitRecord], *, batch: int
) -> Epoch:
    """The epoch after `epoch`, given one record per site."""
    states = []
    for number, (stage, before) in enumerate(zip(stages, epoch.stages)):
        mine = [records[number, site] for site in range(before.routing.sites)]
        states.append(_advance_stage(stage, before, mine, epoch.number + 1))
    return Epoch(
        number=epoch.number + 1,
        batch=batch,
        stages=tuple(states),
        control=epoch.control,
        stats=_summary(epoch, records),
    )


def rested(epoch: Epoch, *, batch: int) -> Epoch:
    """The epoch after `epoch` when a batch had no rows and no site ran: whatever is due stays due."""
    none = {"rows_in": 0, "late": 0}
    idle = none | {"rows_out": 0, "rows_owed": 0, "delays": [], "busy_seconds": 0.0, "idle_seconds": 0.0, "seconds": {}}
    stages = [
        {
            "sites": [site | idle for site in stage["sites"]],
            "sides": [side | none | {"distinct": 0} for side in stage["sides"]],
            "groups": {
                name: values if name == "bytes" else [0] * len(values) for name, values in stage["groups"].items()
            },
        }
        for stage in epoch.stats.get("stages", [])
    ]
    return replace(epoch, number=epoch.number + 1, batch=batch, stats={"stages": stages})


def _advance_stage(stage: Stage, before: StageState, records: Sequence[CommitRecord], epoch: int) -> StageState:
    inputs = range(stage.operator.inputs)
    frontier = tuple(max([before.late_before[i], *_seen(records, i, stage.lateness[i])]) for i in inputs)
    # rows that wait hold the watermark back: what they need must not expire, their windows must not close
    watermarks = tuple(max(before.watermarks[i], min([frontier[i], *_waiting(records, i)])) for i in inputs)
    horizons = stage.operator.horizons(before.watermarks, watermarks)
    sides = stage.operator.sides
    added = [ref for record in records for ref in record.added]
    segments = _alive(before, records, [ref for ref in added if ref.side < sides], horizons, epoch)
    buffer = (*_left(before.buffer, records, before.routing.size), *(ref for ref in added if ref.side >= sides))
    late = {**dict(before.waiting), epoch: before.late_before}
    after = replace(
        before,
        segments=segments,
        watermarks=watermarks,
        emitted=before.watermarks,
        cleaning=(),
        unspilling=(),
        trees=None if before.trees is None else before.trees.settled(before.routing),
        buffer=buffer,
        frontier=() if frontier == watermarks else frontier,
        waiting=tuple((arrival, late[arrival]) for arrival in sorted({ref.first_epoch for ref in buffer})),
    )
    return finish_tracks(after, stage.operator.inputs)


def _seen(records: Sequence[CommitRecord], side: int, lateness: int) -> list[int]:
    times = [record.sides[side].max_time for record in records]
    return [time - lateness for time in times if time is not None]


def _waiting(records: Sequence[CommitRecord], side: int) -> list[int]:
    """The oldest event time in each site's skew buffer."""
    times = [record.sides[side].waiting_since for record in records]
    return [time for time in times if time is not None]


def _alive(
    before: StageState,
    records: Sequence[CommitRecord],
    added: Sequence[SegmentRef],
    horizons: tuple[int, ...],
    epoch: int,
) -> tuple[SegmentRef, ...]:
    """The segments that still count: old ones less what was merged away, plus new ones, less what has expired."""
    size = before.routing.size
    refs = _left(before.segments, records, size)
    if before.cleaning:
        label = generations.cleaned_label(epoch)
        refs = list(generations.relabeled(refs, generations.chosen(before.cleaning, size), label, active_only=False))
    return generations.expired([*refs, *added], horizons, size)


def _left(refs: Sequence[SegmentRef], records: Sequence[CommitRecord], size: int) -> list[SegmentRef]:
    """The segments less what the records have consumed of them."""
    consumed: dict[str, list[tuple[int, int]]] = {}
    for record in records:
        for name, live in record.consumed:
            consumed.setdefault(name, []).extend(live)
    kept = []
    for ref in refs:
        if ref.name in consumed:
            left = mask_of(ref.live, size) & ~mask_of(tuple(consumed[ref.name]), size)
            if not left.any():
                continue
            ref = replace(ref, live=ranges(left))
        kept.append(ref)
    return kept


def _summary(epoch: Epoch, records: Mapping[tuple[int, int], CommitRecord]) -> Json:
    """Per stage and site, what people want to see."""
    stages = []
    for number, stage in enumerate(epoch.stages):
        mine = [records[number, site] for site in range(stage.routing.sites)]
        busy = [busy_seconds(record) for record in mine]
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


def busy_seconds(record: CommitRecord) -> float:
    """Time a site worked: neither waiting for rows nor for whoever takes the results."""
    return sum(value for name, value in record.seconds.items() if name not in ("wait", "emit", "ahead"))


def _groups(stage: StageState, records: Sequence[CommitRecord]) -> Json:
    """Bytes and rows of every partition group, over all sites."""
    totals = {name: np.zeros(stage.routing.size, dtype=np.int64) for name in ("rows_in", "rows_out", "bytes")}
    for record in records:
        for name, total in totals.items():
            np.add.at(total, np.array(record.groups.group, dtype=np.int64), getattr(record.groups, name))
    return {name: total.tolist() for name, total in totals.items()}


def combining_pays(epoch: Epoch, stage: int) -> bool:
    """Whether Spark should combine rows of one key before they travel: not if the last batch's keys hardly repeated.

    Decided from the committed epoch alone, so that a batch that runs again adds its rows in the same order.
    """
    stages = epoch.stats.get("stages", [])
    if not stages:
        return True
    side = stages[stage]["sides"][0]
    return bool(side["distinct"] <= REPEATS_RARELY * side["rows_in"])


def flush_due(epoch: Epoch, stages: Sequence[Stage]) -> bool:
    """Whether an epoch without rows would do something: process rows that wait, or emit windows that are closed."""
    return any(
        state.waiting
        or (
            isinstance(stage.operator, Tumbling)
            and state.watermarks > state.emitted
            and any(ref.t_min <= state.watermarks[0] for ref in state.segments)
        )
        for stage, state in zip(stages, epoch.stages)
    )
