"""The manager: asks the policy, guards the invariants, keeps the log. No I/O, no clock.

The policies are in `fluxen.policies`, the checks in `fluxen.control.guards`. A runtime (`fluxen.spark` or `fluxen.sim`)
calls `step` once per micro-batch with fresh statistics, carries the returned actions out as part of the next epoch and
calls `finish` for each. `snapshot` goes into the epoch; a manager restored from it goes on as if it had never stopped.

Guarantee: at any time every site takes part in at most one unfinished action, and in one move that takes several
batches (`wait`); every suggestion ends up in the log exactly once, as an action or as a refusal with its reason.

>>> from fluxen.policies.base import Move, Stats
>>> class Once:
...     def suggest(self, stats, now):
...         return [Move(pgs=(0,), donor=0, receiver=1, why="example")]
...     def snapshot(self): return {}
...     def restore(self, state): pass
>>> manager = Manager(policy=Once())
>>> stats = Stats.build(sites=2, placement=[0, 0, 1], bytes=[100, 0, 0])
>>> [action] = manager.step(stats, now=1.0)
>>> manager.step(stats, now=2.0)
()
>>> manager.finish(action.id, now=2.5).duration
1.5
>>> [event.outcome for event in manager.events]
['done', 'refused']
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fluxen.control.actions import Action
from fluxen.control.events import Event
from fluxen.control.guards import Busy, Limits, refuse, size_of, touches
from fluxen.errors import CheckpointError, ConfigError
from fluxen.policies.base import Move, Policy, Stats, Suggestion, decode, describe, encode

__all__ = ["Manager"]

VERSION = 1


def _kind_of_refusal(suggestion: Suggestion, reason: str) -> tuple[object, ...]:
    """What makes two refusals one entry: other groups or other numbers in the reason do not make another one."""
    return suggestion.kind, touches(suggestion), re.sub(r"\d+", "#", reason)


class Manager:
    """Guards one stage's adaptations. `kept` bounds how many log entries stay in memory."""

    def __init__(self, *, policy: Policy, limits: Limits | None = None, kept: int = 10_000) -> None:
        if kept < 1:
            raise ConfigError(f"manager: kept must be at least 1 log entry, got {kept}")
        self.policy = policy
        self.limits = limits or Limits()
        self._next_id = 1
        self._next_refusal = -1  # refusals count down: whether one repeats depends on the log, action ids must not
        self._running: dict[int, Action] = {}
        self._busy = Busy()
        self.hold = ""
        """why no move may begin now, although its sites are free; empty if they may"""
        self._kept = kept
        self._log: deque[Event] = deque(maxlen=kept)  # ended adaptations, oldest first
        self._refusals: dict[Any, Event] = {}  # by `_kind_of_refusal`: the entry that counts it
        self._fresh: list[Event] = []  # of both, not handed out by new_events yet

    @property
    def running(self) -> tuple[Action, ...]:
        """Actions handed out and not finished."""
        return tuple(self._running.values())

    @property
    def events(self) -> tuple[Event, ...]:
        """The log in order of time: what ended, what was refused, and what is still running."""
        running = [self._event(action, outcome="running") for action in self._running.values()]
        return tuple(
            sorted([*self._log, *self._refusals.values(), *running], key=lambda event: (event.when, abs(event.id)))
        )

    def new_events(self) -> tuple[Event, ...]:
        """Entries that became final since the last call: store them with the epoch, the snapshot leaves them out.

        A refusal that repeats keeps its id; its later entry, with the higher count, replaces the earlier one. There is
        one whenever the count has doubled.
        """
        fresh, self._fresh = tuple(self._fresh), []
        return fresh

    def step(self, stats: Stats, now: float) -> tuple[Action, ...]:
        """Ask the policy about this micro-batch and return what the next epoch has to carry out."""
        self._wake(now)
        return self.submit(self.policy.suggest(self.marked(stats), now), stats, now)

    def submit(self, suggestions: Sequence[Suggestion], stats: Stats, now: float) -> tuple[Action, ...]:
        """Guard suggestions from anywhere: the policy, or a user's `rescale` and `cleanup`."""
        stats = self.marked(stats)
        accepted: list[Action] = []
        for suggestion in suggestions:
            held = self.hold if isinstance(suggestion, Move) else ""
            reason = held or refuse(suggestion, stats, self._busy, self.limits, now)
            if reason:
                self._refused(suggestion, reason, now)
                continue
            action = Action(id=self._take_id(), suggestion=suggestion, started=now, bytes=size_of(suggestion, stats))
            self._start(action)
            accepted.append(action)
        return tuple(accepted)

    def wait(self, action_id: int) -> None:
        """A move takes several batches, for its copy or its parallel track: meanwhile its sites may spill others."""
        for site in touches(self._running[action_id].suggestion) or ():
            self._busy.sites.pop(site, None)
            self._busy.copying[site] = action_id

    def finish(
        self, action_id: int, now: float, *, bytes: int | None = None, duration: float | None = None, error: str = ""
    ) -> Event:
        """Report that an action was carried out, or why not; frees its sites and starts their cool-down."""
        action = self._running.pop(action_id, None)
        if action is None:
            raise ConfigError(
                f"manager: action {action_id} is not running; finish each action once, by the id step gave"
            )
        self._release(action)
        self._rest(action, now)
        event = self._event(
            action if bytes is None else replace(action, bytes=bytes),
            outcome="failed" if error else "done",
            reason=error,
            duration=now - action.started if duration is None else duration,
        )
        self._log.append(event)
        self._fresh.append(event)
        return event

    def note(self, suggestion: Suggestion, now: float, *, bytes: int = 0, duration: float = 0.0) -> None:
        """Log what the engine does by itself, because results depend on it: nothing to guard."""
        action = Action(id=self._take_id(), suggestion=suggestion, started=now - duration, bytes=bytes)
        event = self._event(action, outcome="done", duration=duration)
        self._log.append(event)
        self._fresh.append(event)

    def log_step(self, *, kind: str, what: str, why: str, now: float, detail: Mapping[str, Any]) -> Event:
        """Log one step of an adaptation that takes several."""
        event = Event(
            id=self._take_id(), when=now, last=now, kind=kind, what=what, why=why, outcome="done", detail=dict(detail)
        )
        self._log.append(event)
        self._fresh.append(event)
        return event

    def snapshot(self) -> dict[str, Any]:
        """Everything the next step depends on, JSON-able. The log is left out: see `new_events`."""
        return {
            "version": VERSION,
            "next_id": self._next_id,
            "next_refusal": self._next_refusal,
            "running": [action.to_dict() for action in self._running.values()],
            "copying": sorted(set(self._busy.copying.values())),
            "site_rest": sorted(self._busy.site_rest.items()),
            "group_rest": sorted(self._busy.group_rest.items()),
            "policy": self.policy.snapshot(),
        }

    def restore(self, state: Mapping[str, Any], events: Iterable[Event] = ()) -> None:
        """Go on from a snapshot; `events` are the stored log entries, for `events` only."""
        if state.get("version") != VERSION:
            raise CheckpointError(
                f"manager: the stored state has version {state.get('version')}, this fluxen reads version {VERSION}; "
                "use the fluxen that wrote it or start from a new checkpoint"
            )
        self._next_id = int(state["next_id"])
        self._next_refusal = int(state["next_refusal"])
        self._running.clear()
        self._busy = Busy(
            site_rest={int(site): end for site, end in state["site_rest"]},
            group_rest={int(pg): end for pg, end in state["group_rest"]},
        )
        for data in state["running"]:
            self._start(Action.from_dict(data))
        for action_id in state.get("copying", ()):
            self.wait(int(action_id))
        self._fresh.clear()
        self._log.clear()
        self._refusals.clear()
        for event in {event.id: event for event in events}.values():  # the later entry of an id replaces the earlier
            if event.outcome == "refused":
                self._refusals[_kind_of_refusal(decode(event.detail), event.reason)] = event
            else:
                self._log.append(event)
        self.policy.restore(state["policy"])

    def marked(self, stats: Stats) -> Stats:
        """The statistics with groups under way marked, which is how a policy learns that its moves go on."""
        moving = stats.moving.copy()
        for action in self._running.values():
            if isinstance(action.suggestion, Move):
                for pg in action.suggestion.pgs:
                    if (row := stats.index(pg)) >= 0:
                        moving[row] = True
        return replace(stats, moving=moving)

    def _start(self, action: Action) -> None:
        self._running[action.id] = action
        sites = touches(action.suggestion)
        if sites is None:
            self._busy.everything = action.id
        else:
            self._busy.sites.update((site, action.id) for site in sites)

    def _release(self, action: Action) -> None:
        sites = touches(action.suggestion)
        if sites is None:
            self._busy.everything = None
        else:
            for site in sites:
                for held in (self._busy.sites, self._busy.copying):
                    if held.get(site) == action.id:
                        del held[site]

    def _rest(self, action: Action, now: float) -> None:
        if self.limits.site_cooldown > 0:
            for site in touches(action.suggestion) or ():
                self._busy.site_rest[site] = now + self.limits.site_cooldown
        if self.limits.group_cooldown > 0 and isinstance(action.suggestion, Move):
            for pg in action.suggestion.pgs:
                self._busy.group_rest[pg] = now + self.limits.group_cooldown

    def _wake(self, now: float) -> None:
        for rest in (self._busy.site_rest, self._busy.group_rest):
            for key in [key for key, end in rest.items() if end <= now]:
                del rest[key]

    def _take_id(self) -> int:
        taken, self._next_id = self._next_id, self._next_id + 1
        return taken

    def _refused(self, suggestion: Suggestion, reason: str, now: float) -> None:
        key = _kind_of_refusal(suggestion, reason)
        known = self._refusals.pop(key, None)
        event = Event(
            id=self._next_refusal if known is None else known.id,
            when=now if known is None else known.when,
            last=now,
            kind=suggestion.kind,
            what=describe(suggestion),
            why=suggestion.why,
            outcome="refused",
            reason=reason,
            count=1 if known is None else known.count + 1,
            detail=encode(suggestion),
        )
        self._next_refusal -= known is None
        self._refusals[key] = event  # at the end: the oldest are forgotten first
        if len(self._refusals) > self._kept:
            del self._refusals[next(iter(self._refusals))]
        if event.count & (event.count - 1) == 0:  # told at 1, 2, 4, 8: one that repeats for ever is soon told rarely
            self._fresh.append(event)

    @staticmethod
    def _event(action: Action, *, outcome: Any, reason: str = "", duration: float = 0.0) -> Event:
        suggestion = action.suggestion
        return Event(
            id=action.id,
            when=action.started,
            last=action.started + duration,
            kind=suggestion.kind,
            what=describe(suggestion),
            why=suggestion.why,
            outcome=outcome,
            reason=reason,
            duration=duration,
            bytes=action.bytes,
            detail=encode(suggestion),
        )
