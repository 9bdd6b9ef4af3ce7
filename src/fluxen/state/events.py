"""The log of a query's adaptations in its checkpoint: bounded, however long the query runs.

An epoch with events writes `events/<epoch>.json`. When these hold `SMALL` entries they are rolled up into one file,
`events/<first epoch>-<last epoch>-<entries>.json`, to which the next ones are added until it has `ROLLED` entries;
beyond `MOST` entries or `MOST_BYTES` the oldest rolled files are deleted. A crash in the middle leaves files that a
rolled one covers, which readers pass over and the next roll deletes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fluxen.arrays import Json
from fluxen.errors import DamagedError
from fluxen.state.record import seal, unseal
from fluxen.state.store import Store

__all__ = ["EVENTS", "PROTOCOLS", "EventLog"]

EVENTS = "events"
PROTOCOLS = ("relocation", "mslb", "ptlb")
"""Kinds of entries that tell the steps of a move, which has an entry of its own."""
SMALL = 64
"""Entries in files of single epochs that are rolled up at a time."""
ROLLED = 1_000
"""Entries of a rolled file that nothing is added to any more."""
MOST = 10_000
"""Entries kept, about."""
MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, order=True)
class _File:
    first: int
    last: int
    entries: int
    """0 for the file of a single epoch, which nobody has counted"""
    name: str

    @staticmethod
    def of(name: str) -> _File:
        numbers = [int(part) for part in name.removesuffix(".json").split("-")]
        first, last, entries = (*numbers, numbers[0], 0)[:3] if len(numbers) == 1 else numbers
        return _File(first, last, entries, f"{EVENTS}/{name}")

    def covers(self, other: _File) -> bool:
        return self != other and self.entries > 0 and self.first <= other.first and other.last <= self.last


class EventLog:
    """The events of one checkpoint."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._rolled: dict[str, list[Json]] = {}  # contents of rolled files, which never change
        self._small: int | None = None  # entries in files of single epochs; None before they have been counted

    def note(self, epoch: int, events: list[Json]) -> None:
        """Keep an epoch's events; what an attempt of it before a crash has noted does not count."""
        if not events:
            return
        if self._small is None:
            self._small = self._waiting()
        if self._small >= SMALL:
            self._roll(epoch)
        self.store.replace(f"{EVENTS}/{epoch:010d}.json", seal({"events": events}))
        self._small += len(events)

    def read(self, damaged: Callable[[str, DamagedError], None] | None = None) -> list[Json]:
        """All events that are kept, oldest first; a damaged file is reported to `damaged`, or raised."""
        for _ in range(3):
            wrong: dict[str, DamagedError] = {}
            try:
                found = [event for file in self._current() for event in self._readable(file, wrong)]
            except FileNotFoundError:
                continue  # rolled up or deleted since they were listed
            for name, error in wrong.items():
                if damaged is None:
                    raise error
                damaged(name, error)
            return _newest(found)
        return []

    def _readable(self, file: _File, wrong: dict[str, DamagedError]) -> list[Json]:
        try:
            return self._content(file)
        except DamagedError as error:
            wrong[file.name] = error
            return []

    def _files(self) -> list[_File]:
        return sorted(_File.of(name) for name in self.store.list(EVENTS) if name.endswith(".json"))

    def _current(self) -> list[_File]:
        files = self._files()
        rolled = [file for file in files if file.entries]
        return [file for file in files if not any(other.covers(file) for other in rolled)]

    def _content(self, file: _File) -> list[Json]:
        if file.name in self._rolled:
            return self._rolled[file.name]
        found: list[Json] = unseal(self.store.read(file.name), self.store.path(file.name))["events"]
        if file.entries:
            self._rolled[file.name] = found
        return found

    def _roll(self, epoch: int) -> None:
        """Put what was noted before `epoch`, which is all committed, into a rolled file."""
        small = [file for file in self._current() if file.entries == 0 and file.last < epoch]
        rolled = [file for file in self._current() if file.entries]
        taken = [file for file in rolled[-1:] if file.entries < ROLLED] + small
        # the log does without half a file that a machine without power has left
        events = _newest([event for file in taken for event in self._readable(file, {})])
        if events:
            name = f"{taken[0].first:010d}-{taken[-1].last:010d}-{len(events):06d}.json"
            self.store.create(f"{EVENTS}/{name}", seal({"events": events}))
        self._forget()
        self._small = self._waiting()

    def _waiting(self) -> int:
        """Entries that have not been rolled up."""
        return sum(len(self._readable(file, {})) for file in self._current() if file.entries == 0)

    def _forget(self) -> None:
        """Delete what a rolled file covers, and the oldest rolled files beyond the bounds."""
        current = self._current()
        keep = {file.name for file in current}
        entries = size = 0
        for file in reversed([file for file in current if file.entries]):
            entries, size = entries + file.entries, size + self.store.size(file.name)
            if entries > max(MOST, file.entries) or size > max(MOST_BYTES, self.store.size(file.name)):
                keep.discard(file.name)
        for file in self._files():
            if file.name not in keep:
                self.store.delete(file.name)
        self._rolled = {name: events for name, events in self._rolled.items() if name in keep}


def _newest(events: list[Json]) -> list[Json]:
    """Of entries that tell of one refusal, the last, which has the highest count."""
    found: dict[Any, Json] = {}
    for number, event in enumerate(events):
        refused = event.get("outcome") == "refused"
        key = (event.get("stage"), event["id"], event["when"]) if refused else number
        found.pop(key, None)
        found[key] = event
    return list(found.values())
