"""One stage's adaptation at a batch boundary: records in, the next epoch's routing and the events out.

Brings together the manager with its policy (`fluxen.control.manager`), the partitioning functions
(`fluxen.control.repartition`) and what users ask for by hand. Still no I/O and no clock: the runtimes call `after` when
a batch's records are in and commit what comes back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluxen.control.actions import Action
from fluxen.control.coordinator import busy_seconds, with_routing
from fluxen.control.guards import Limits
from fluxen.control.manager import Manager
from fluxen.control.repartition import Repartitioner
from fluxen.control.stats import SiteRecord, collect
from fluxen.partitioning import Partitioner
from fluxen.policies import Policy, Static, Stats
from fluxen.policies.base import Move, Repartition, Rescale, Suggestion
from fluxen.state.epoch import StageState
from fluxen.state.record import CommitRecord
from fluxen.state.routing import Routing
from fluxen.typing import Json

NEGLIGIBLE = 0.05
"""Share of a batch's time below which even the slowest site's work is noise and counts as none."""


class Adaptation:
    """Adapts one stage."""

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        partitioner: Partitioner | None = None,
        memory: int | None = None,
        divisible: bool = True,
        limits: Limits | None = None,
    ) -> None:
        self.manager = Manager(policy=policy or Static(), limits=limits)
        self.repartitioner = None if partitioner is None else Repartitioner(partitioner, divisible=divisible)
        self.memory = memory

    def first(self, routing: Routing) -> Routing:
        """The routing of a query that has seen no rows."""
        return routing if self.repartitioner is None else self.repartitioner.build(routing, routing.sites)

    def after(
        self,
        state: StageState,
        records: Sequence[CommitRecord],
        now: float,
        requests: Sequence[Suggestion] = (),
        *,
        seconds: float = 0.0,
    ) -> StageState:
        """The stage as the next batch finds it; the last one took `seconds` in all."""
        stats = self._stats(state.routing, records, seconds)
        if self.repartitioner is not None:
            self.repartitioner.observe(state.routing, records)
        actions = [*self.manager.submit(requests, stats, now), *self.manager.step(stats, now)]
        routing = state.routing
        for action in actions:
            routing = self._carry_out(action, routing, stats, now)
        if self.repartitioner is not None and routing.sites == state.routing.sites and not actions:
            routing = self._rebalance(routing, stats, now)
        return with_routing(state, routing)

    def _carry_out(self, action: Action, routing: Routing, stats: Stats, now: float) -> Routing:
        suggestion = action.suggestion
        if isinstance(suggestion, Move):
            following = routing.moved(np.array(suggestion.pgs, dtype=np.int32), suggestion.receiver)
        elif isinstance(suggestion, Rescale):
            following = self._rescaled(routing, suggestion.sites)
        elif isinstance(suggestion, Repartition):
            following = _repartitioned(routing, suggestion)
        else:
            self.manager.finish(action.id, now, error=f"{suggestion.kind} is not available for this operator")
            return routing
        self.manager.finish(action.id, now, bytes=moved_bytes(routing, following, stats))
        return following

    def _rescaled(self, routing: Routing, sites: int) -> Routing:
        if self.repartitioner is not None:
            return self.repartitioner.build(routing, sites)
        return routing.rescaled(sites)

    def _rebalance(self, routing: Routing, stats: Stats, now: float) -> Routing:
        assert self.repartitioner is not None
        if not self.repartitioner.unbalanced(routing):
            return routing
        following = self.repartitioner.build(routing, routing.sites)
        changed = np.flatnonzero(following.table[: routing.size] != routing.table)
        fresh = following.explicit[following.explicit_groups >= routing.size]
        if len(changed) == 0 and len(fresh) == 0:
            return routing
        suggestion = Repartition(
            explicit=tuple((int(h), int(g)) for h, g in zip(following.explicit, following.explicit_groups)),
            placement=tuple((int(g), int(following.table[g])) for g in changed),
            why=f"rows per site differ by more than {self.repartitioner.alpha:g}",
        )
        for action in self.manager.submit([suggestion], stats, now):
            self.manager.finish(action.id, now, bytes=moved_bytes(routing, following, stats))
            return following
        return routing

    def _stats(self, routing: Routing, records: Sequence[CommitRecord], seconds: float) -> Stats:
        busy = [busy_seconds(record) for record in records]
        slowest = max(busy, default=0.0)
        if slowest < NEGLIGIBLE * seconds:
            busy, slowest = [0.0] * len(busy), 0.0
        reports = [
            SiteRecord(
                site=record.site,
                rows_in=sum(side.rows_in for side in record.sides),
                rows_out=record.rows_out,
                busy=seconds,
                idle=slowest - seconds,
                pg=record.groups.group,
                pg_rows_in=record.groups.rows_in,
                pg_rows_out=record.groups.rows_out,
                pg_bytes=record.groups.bytes,
            )
            for record, seconds in zip(records, busy)
        ]
        capacity = None if self.memory is None else np.full(routing.sites, float(self.memory))
        return collect(
            reports,
            sites=routing.sites,
            pg=np.arange(routing.size),
            placement=routing.table.astype(np.int64),
            seconds=slowest,
            capacity=capacity,
        )

    def events(self) -> list[Json]:
        """What became final since the last call."""
        return [event.to_dict() for event in self.manager.new_events()]

    def snapshot(self) -> Json:
        repartitioner = None if self.repartitioner is None else self.repartitioner.snapshot()
        policy = type(self.manager.policy).__name__
        return {"policy": policy, "manager": self.manager.snapshot(), "repartitioner": repartitioner}

    def restore(self, state: Json) -> None:
        if not state:
            return
        policy = type(self.manager.policy).__name__
        if state.get("policy", policy) == policy:
            self.manager.restore(state["manager"])
        if self.repartitioner is not None and state["repartitioner"] is not None:
            self.repartitioner.restore(state["repartitioner"])


def _repartitioned(routing: Routing, suggestion: Repartition) -> Routing:
    for h, _ in suggestion.explicit:
        if h not in routing.explicit:
            routing = routing.isolated(h, int(routing.sites_of(routing.groups(np.array([h])))[0]))
    for group, site in suggestion.placement:
        routing = routing.moved(np.array([group], dtype=np.int32), site)
    return routing


def moved_bytes(before: Routing, after: Routing, stats: Stats) -> int:
    """State whose site changes. A heavy key that leaves its group counts by its share of the group's rows."""
    changed = before.table != after.table[: before.size]
    return int(stats.bytes[: before.size][changed].sum())
