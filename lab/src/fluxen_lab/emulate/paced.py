"""Operators that take their time: a site's service time emulated by waiting.

A site that waits needs no processor, so many sites run on few cores and still show what a slow one does to a stage.
Experiments and benchmarks put `Paced` around the operators of a query (`paced`); nothing in the engine knows about it.

>>> load = SlowSites(sites=(1,), slowdown=2.0)
>>> load.factor(site=0, now=0), load.factor(site=1, now=0)
(1.0, 2.0)
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, Protocol

from fluxen.arrays import MIN_TIME
from fluxen.operators.base import Results, SiteInput, drained
from fluxen.operators.wrapped import Wrapped
from fluxen_lab.emulate.wrapped import wrapped

__all__ = ["Load", "Paced", "Rotating", "SlowExecutor", "SlowSites", "paced"]

SLICE = 0.1
"""Seconds of work after which a site looks again how slow it is."""


class Load(Protocol):
    """How many times longer than usual a row takes."""

    def factor(self, site: int, now: int) -> float:
        """At `site`, for rows up to the event time `now` (in microseconds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSites:
    """Some sites are slower from an event time on: the rows themselves say when, so a replay slows at the same rows."""

    sites: tuple[int, ...] = ()
    slowdown: float = 1.0
    since: int = MIN_TIME

    def factor(self, site: int, now: int) -> float:
        return self.slowdown if site in self.sites and now >= self.since else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowExecutor:
    """The executor that is first to create the file `claim` is slower, whatever site it serves."""

    claim: str
    slowdown: float

    def factor(self, site: int, now: int) -> float:
        # the daemon that forks Python workers is one per executor
        executor = str(os.getppid())
        try:
            with open(self.claim, "x", encoding="ascii") as file:
                file.write(executor)
            return self.slowdown
        except FileExistsError:
            with open(self.claim, encoding="ascii") as file:
                return self.slowdown if file.read() == executor else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotating:
    """One site after the other is slower for so many seconds of the wall clock."""

    sites: int
    slowdown: float
    seconds: float

    def factor(self, site: int, now: int) -> float:
        return self.slowdown if int(time.time() / self.seconds) % self.sites == site else 1.0


@dataclass(frozen=True, kw_only=True)
class Paced(Wrapped):
    """An operator whose rows take `seconds` each, times what the load says; time it really takes is part of that."""

    seconds: float
    load: Load
    per_byte: float = 0.0
    """seconds to read a byte of state back from disk, where groups take turns in memory"""

    def process(self, given: SiteInput) -> Results:
        started = time.perf_counter()
        results, output = drained(self.operator.process(given))
        self._take_time(given, time.perf_counter() - started)
        yield from results
        return output

    def _take_time(self, given: SiteInput, taken: float) -> None:
        """Wait as long as the rows should take, less what has been `taken`."""
        left = given.swapped_bytes * self.per_byte - taken
        came = [rows for rows in given.inputs if len(rows.h)]
        work = sum(rows.rows for rows in came) * self.seconds
        if came:
            site = int(given.routing.sites_of(given.routing.groups(came[0].h[:1]))[0])
            now = max(int(rows.t.max()) for rows in came)
            slices = max(1, round(work / SLICE))
            for _ in range(slices):
                left += work / slices * self.load.factor(site, now)
                if left > 0:
                    time.sleep(left)
                    left = 0.0
        elif left > 0:
            time.sleep(left)


def paced(query: Any, seconds: float, load: Load | None = None, per_byte: float = 0.0) -> Any:
    """A query whose first stage takes `seconds` per row at every site, and longer where the load says so."""
    return wrapped(
        query,
        lambda inner: Paced(operator=inner, seconds=seconds, load=load or SlowSites(), per_byte=per_byte),
    )
