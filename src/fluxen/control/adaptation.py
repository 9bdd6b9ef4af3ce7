"""One stage's adaptation at a batch boundary: records in, the next epoch's routing and the events out.

Brings together the manager with its policy (`fluxen.control.manager`), the partitioning functions
(`fluxen.control.keys.repartition`) and what users ask for by hand. Still no I/O and no clock: the runtimes call `after`
when a batch's records are in and commit what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fluxen.arrays import Floats, Json
from fluxen.control.actions import Action
from fluxen.control.guards import Limits
from fluxen.control.keys.repartition import Repartitioner
from fluxen.control.manager import Manager
from fluxen.control.memory.rotation import Memory, capacity_of, take_turns, with_disk
from fluxen.control.memory.spilling import cleanup, observed, spill, unspill
from fluxen.control.moves import copying as ahead
from fluxen.control.moves import dealing
from fluxen.control.moves.relocation import Relocations
from fluxen.control.moves.rerouting import repartitioned, with_routing
from fluxen.control.moves.sizes import moved_bytes, padded
from fluxen.control.plans.replanning import StagePlans
from fluxen.control.stats import collect, per_group
from fluxen.operators.base import Operator
from fluxen.partitioning import Partitioner, UniformHash
from fluxen.policies import LocalDisk, Policy, Static, Stats
from fluxen.policies.base import (
    Cleanup,
    Merge,
    Move,
    Repartition,
    Replan,
    Rescale,
    Spill,
    Split,
    Suggestion,
    Traits,
    Unspill,
    decode,
    encode,
)
from fluxen.state.epoch import StageState
from fluxen.state.generations import overdue
from fluxen.state.record import SiteRecord
from fluxen.state.routing import Routing

KEPT = 200
"""Log entries that a stage's manager keeps in memory."""


class Adaptation:
    """Adapts one stage."""

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        partitioner: Partitioner | None = None,
        memory: Memory | None = None,
        limits: Limits | None = None,
        operator: Operator | None = None,
        planning: StagePlans | None = None,
        remote: bool = False,
        guarded: bool = True,
    ) -> None:
        """`guarded`: a new partitioning function must be worth what it moves; without, as in the paper."""
        self.spillable = operator is not None and operator.spills
        limited = memory is not None and self.spillable
        # groups of all other operators take turns in memory
        self.rotates = memory is not None and operator is not None and not self.spillable
        limits = limits or Limits(rotation=self.rotates, generations=operator is None or self.spillable)
        if operator is not None:
            limits = replace(limits, deals=operator.deals, whole=operator.whole, divisible=operator.divisible)
        # events go to the checkpoint's log; what the manager itself keeps serves to count refusals that repeat
        self.manager = Manager(policy=policy or (LocalDisk() if limited else Static()), limits=limits, kept=KEPT)
        # a policy that knows nothing of disks does not excuse a site from its memory
        self.manager.policy.begin(
            Traits(
                spills=limited,
                rotates=self.rotates,
                isolates=partitioner is None and operator is not None and operator.divisible,
                deals=partitioner is None and bool(operator and operator.deals),
            )
        )
        self.overflow = LocalDisk() if limited and not self.manager.policy.spills else None
        self.relocations = Relocations()
        self.operator = operator
        self.repartitioner: Repartitioner | None = None
        if partitioner is not None:
            self.repartitioner = Repartitioner(
                partitioner, operator=operator, guarded=guarded, keys_only=self.manager.policy.relocates
            )
        # keys that are more than a site should do are dealt by the same rules beside a policy that looks at keys itself
        self._deals = partitioner is None and self.manager.policy.deals and bool(operator and operator.deals)
        self.sharing = self.repartitioner
        self.memory = memory
        self._held: Floats = np.zeros(0)
        self._rescale: Rescale | None = None  # asked for while other adaptations were under way
        self.planning = planning
        self.remote = remote

    @property
    def asks_for_keys(self) -> bool:
        """Whether sites should name their heaviest keys in the next batch."""
        return self.manager.policy.asks_for_keys or (self._deals and self.sharing is not None)

    def forget_rescale(self) -> None:
        """A restart has said how many sites there are: what was asked for before does not count any more."""
        self._rescale, self.manager.hold = None, ""

    def first(self, routing: Routing) -> Routing:
        """The routing of a query that has seen no rows."""
        return routing if self.repartitioner is None else self.repartitioner.first(routing)

    def resumed(self, state: StageState, sites: int) -> StageState:
        """The stage after a restart with another number of sites.

        Groups keep their keys: an interrupted batch may have decided what of which group waits (`state.decision`).
        """
        if self.repartitioner is None:
            return with_routing(state, state.routing.rescaled(sites))
        return with_routing(state, self.repartitioner.rescaled(state.routing, sites, isolate=False))

    def after(
        self,
        state: StageState,
        records: Sequence[SiteRecord],
        now: float,
        requests: Sequence[Suggestion] = (),
        *,
        seconds: float = 0.0,
        waited: float = 0.0,
        epoch: int = 0,
    ) -> StageState:
        """The stage as the next batch finds it; the last one, of this `epoch`, took `seconds` in all.

        Before it nothing was done for the seconds it `waited`.
        """
        if self.spillable and self.memory is not None:
            size = state.routing.size
            state = observed(state, per_group(records, "rows_in", size), per_group(records, "rows_out", size), now)
        stats = self._stats(state, records, seconds, waited)
        self._held = stats.bytes
        began = state.routing
        self._follow_keys(began, records)
        self.relocations.finish(records, now)
        if self.planning is not None:
            self.planning.observe(state, records)
            self.planning.conclude(state, records, self.manager, now)
            requests = [*requests, *self.planning.suggestions(state, now)]
        requests = self._in_turn(requests)
        asked, copying = ahead.under_way(self.manager.running, state), list[Action]()
        actions = self._decided(requests, stats, now)
        for action in actions:
            if isinstance(action.suggestion, Spill | Unspill | Cleanup) and self.spillable:
                state = self._to_or_from_disk(action, state, epoch, now)
                continue
            if isinstance(action.suggestion, Split | Merge):
                state = self._dealt(action, state, now)
                continue
            planned = self._planned(action, state, stats, records, epoch, now)
            if planned is None and self._copied(action, stats):
                copying.append(action)  # the group stays where it is until its receiver has a copy
                self.manager.wait(action.id)
                planned = state
            state = planned or with_routing(state, self._carry_out(action, state.routing, stats, now))
        for action in asked:
            if ahead.possible(action, state) and not ahead.arrived(action, records, now):
                copying.append(action)
            else:
                state = self._arrived(action, state, stats, now)
        anew = any(isinstance(one.suggestion, Rescale | Repartition | Split | Merge) for one in actions)
        following = replace(self._cleaned_in_time(state, now), arriving=ahead.pairs(copying))
        following = self._placed_anew(following, stats, now, settled=not anew and not copying)
        if self.sharing is not None:
            self.sharing.adopt(began, following.routing)
        if not self.rotates or self.memory is None:
            return replace(following, residence=None)
        return take_turns(following, records, self.memory, epoch)

    def _arrived(self, action: Action, state: StageState, stats: Stats, now: float) -> StageState:
        """The stage with a group at its receiver, which has a copy of it."""
        if not ahead.possible(action, state):
            self.manager.finish(action.id, now, error="a restart has changed the sites meanwhile")
            return state
        if not self._fits(action, stats):
            self.manager.finish(action.id, now, error="the receiver has no memory left for them")
            return state
        return with_routing(state, self._carry_out(action, state.routing, stats, now))

    def _placed_anew(self, state: StageState, stats: Stats, now: float, *, settled: bool) -> StageState:
        """The stage with what the partitioner asks for, if nothing else is under way."""
        if self.sharing is not None and settled and not state.tracks:
            split = self._shared_out(state, stats, now)
            state = self._rebalance(state, stats, now) if split is state and self.repartitioner is not None else split
        return dealing.tidied(state) if state.routing.retired else state

    def _decided(self, requests: Sequence[Suggestion], stats: Stats, now: float) -> list[Action]:
        """What users and the policy ask for, as far as it may be done; what the policy notes goes to the log."""
        actions = [*self.manager.submit(requests, stats, now), *self.manager.step(stats, now)]
        for note in self.manager.policy.notes():
            self.manager.log_step(kind=note.kind, what=note.what, why=note.why, now=now, detail=note.detail)
        if self.overflow is not None:
            actions += self.manager.submit(self.overflow.suggest(self.manager.marked(stats), now), stats, now)
        return actions

    def _stats(self, state: StageState, records: Sequence[SiteRecord], seconds: float, waited: float) -> Stats:
        capacity = None if self.memory is None else capacity_of(self.memory, state.routing.sites)
        stats = collect(state, records, seconds=seconds, waited=waited, capacity=capacity)
        return stats if state.residence is None else with_disk(stats, state.residence)

    def _in_turn(self, requests: Sequence[Suggestion]) -> list[Suggestion]:
        """The requests to submit now. A rescale waits until every move has ended, and no move begins meanwhile.

        Of several the newest counts.
        """
        asked = [request for request in requests if isinstance(request, Rescale)]
        self._rescale = asked[-1] if asked else self._rescale
        others: list[Suggestion] = [request for request in requests if not isinstance(request, Rescale)]
        due = self._rescale
        if due is None:
            return others
        if self.manager.running:
            self.manager.hold = f"a rescale to {due.sites} sites waits for the moves under way"
            return others
        self._rescale, self.manager.hold = None, ""
        return [due, *others]  # in front, so that nothing can begin before it

    def _copied(self, action: Action, stats: Stats) -> bool:
        """Whether the receiver copies what the groups need ahead of the move; generations on disk are none of it."""
        held = stats.bytes if self.spillable else np.asarray(stats.bytes + stats.spilled)
        return self.remote and ahead.large(action, held)

    def _fits(self, action: Action, stats: Stats) -> bool:
        """Whether a receiver still has memory for what it was promised while it copied; others may take turns."""
        move = action.suggestion
        assert isinstance(move, Move)
        size = sum(float(stats.bytes[stats.index(pg)]) for pg in move.pgs)
        return not self.spillable or stats.site_bytes[move.receiver] + size <= stats.capacity[move.receiver]

    def _planned(
        self,
        action: Action,
        state: StageState,
        stats: Stats,
        records: Sequence[SiteRecord],
        epoch: int,
        now: float,
    ) -> StageState | None:
        """What concerns plans: another tree for a site, or a move that depends on them. None for anything else."""
        if self.planning is None:
            return None
        if isinstance(action.suggestion, Replan):
            error = self.planning.why_not(state, action.suggestion)
            self.manager.finish(action.id, now, error=error)
            return state if error else self.planning.replanned(state, action.suggestion, now)
        if isinstance(action.suggestion, Move):
            copied = self._copied(action, stats)
            return self.planning.move(
                state, action, self.manager, epoch=epoch, now=now, stats=stats, records=records, copied=copied
            )
        return None

    def _to_or_from_disk(self, action: Action, state: StageState, epoch: int, now: float) -> StageState:
        suggestion = action.suggestion
        held = padded(self._held, state.routing.size)
        match suggestion:
            case Spill():
                state = spill(state, suggestion.pgs, epoch, held)
            case Unspill():
                state = unspill(state, suggestion.pgs)
            case Cleanup():
                state = cleanup(state, suggestion.pgs, held)
        self.manager.finish(action.id, now)
        return state

    def _dealt(self, action: Action, state: StageState, now: float) -> StageState:
        """A key dealt over several sites, or together again."""
        asked = action.suggestion
        assert isinstance(asked, Split | Merge)
        assert self.operator is not None
        state, error = dealing.carried_out(state, self.operator, asked)
        self.manager.finish(action.id, now, error=error)
        return state

    def _shared_out(self, state: StageState, stats: Stats, now: float) -> StageState:
        assert self.sharing is not None
        proposal = self.sharing.shared_out(state)
        if proposal is None:
            return state
        actions = self.manager.submit([proposal], stats, now)
        self.sharing.splitting.answered(done=bool(actions))
        for action in actions:
            state = self._dealt(action, state, now)
        return state

    def _follow_keys(self, routing: Routing, records: Sequence[SiteRecord]) -> None:
        """What keys cost is followed for a partitioner, while the policy wants them named, and while one is dealt."""
        if self._deals:
            if not routing.families and not self.manager.policy.asks_for_keys:
                self.sharing = None
            elif self.sharing is None:
                self.sharing = Repartitioner(UniformHash(), operator=self.operator)
        if self.sharing is not None:
            self.sharing.observe(routing, records)

    def _cleaned_in_time(self, state: StageState, now: float) -> StageState:
        """Rows beyond their window that still owe results: the next epoch produces them, and they can go."""
        if self.operator is None or not any(ref.kind == "generation" for ref in state.segments):
            return state
        horizons = self.operator.horizons(state.emitted, state.watermarks)
        late = overdue(state.segments, horizons, state.routing.size)
        late[list(state.unspilling)] = False
        held = padded(self._held, state.routing.size)
        for site in range(state.routing.sites):
            groups = np.flatnonzero(late & state.routing.owned(site))
            if len(groups):
                pgs = tuple(int(group) for group in groups)
                why = "their window has closed and they owe results"
                self.manager.note(Cleanup(site=site, pgs=pgs, why=why), now, bytes=int(held[groups].sum()))
        return cleanup(state, np.flatnonzero(late).tolist(), held)

    def _carry_out(self, action: Action, routing: Routing, stats: Stats, now: float) -> Routing:
        suggestion = action.suggestion
        if isinstance(suggestion, Move):
            following = routing.moved(np.array(suggestion.pgs, dtype=np.int32), suggestion.receiver)
        elif isinstance(suggestion, Rescale) and suggestion.sites <= routing.partitions:
            rescaled = routing.rescaled if self.repartitioner is None else partial(self.repartitioner.rescaled, routing)
            following = rescaled(suggestion.sites)
        elif isinstance(suggestion, Repartition):
            following = repartitioned(routing, suggestion)
        else:
            few = f"there are {routing.partitions} partitions, which cannot be spread over more sites"
            what = f"{suggestion.kind} is not available for this operator"
            self.manager.finish(action.id, now, error=few if isinstance(suggestion, Rescale) else what)
            return routing
        size = self._moved(routing, following, stats)
        self.manager.finish(action.id, now, bytes=size)
        if isinstance(suggestion, Move):
            self.relocations.start(suggestion, size, now)
        return following

    def _rebalance(self, state: StageState, stats: Stats, now: float) -> StageState:
        assert self.repartitioner is not None
        routing = state.routing
        proposal = self.repartitioner.proposed(state, stats.capacity)
        if proposal is None:
            return state
        for action in self.manager.submit([proposal.suggestion(routing)], stats, now):
            self.manager.finish(action.id, now, bytes=self._moved(routing, proposal.routing, stats))
            return with_routing(state, proposal.routing)
        return state

    def _moved(self, before: Routing, after: Routing, stats: Stats) -> int:
        fresh = after.explicit[~np.isin(after.explicit, before.explicit)]
        held = np.zeros(len(fresh)) if self.sharing is None else self.sharing.hot.bytes(fresh)
        return moved_bytes(before, after, stats.bytes + stats.spilled, dict(zip(fresh.tolist(), held.tolist())))

    def events(self) -> list[Json]:
        """What became final since the last call."""
        return [event.to_dict() for event in (*self.manager.new_events(), *self.relocations.new_events())]

    def snapshot(self) -> Json:
        repartitioner = None if self.sharing is None else self.sharing.snapshot()
        policy = type(self.manager.policy).__name__
        planning = None if self.planning is None else self.planning.snapshot()
        return {
            "policy": policy,
            "manager": self.manager.snapshot(),
            "repartitioner": repartitioner,
            "overflow": None if self.overflow is None else self.overflow.snapshot(),
            "relocations": self.relocations.snapshot(),
            "planning": planning,
            "rescale": None if self._rescale is None else encode(self._rescale),
        }

    def restore(self, state: Json) -> None:
        if not state:
            return
        policy, manager = self.manager.policy, state["manager"]
        if state.get("policy", type(policy).__name__) != type(policy).__name__:
            # another policy begins anew, among what is under way
            manager = {**manager, "policy": policy.snapshot()}
        self.manager.restore(manager)
        self.relocations.restore(state.get("relocations", []))
        waiting = None if state.get("rescale") is None else decode(state["rescale"])
        self._rescale = waiting if isinstance(waiting, Rescale) else None
        if self.overflow is not None and state.get("overflow"):
            self.overflow.restore(state["overflow"])
        if self._deals and state["repartitioner"] is not None:
            self.sharing = Repartitioner(UniformHash(), operator=self.operator)
        if self.sharing is not None and state["repartitioner"] is not None:
            self.sharing.restore(state["repartitioner"])
        if self.planning is not None and state.get("planning") is not None:
            self.planning.restore(state["planning"])
