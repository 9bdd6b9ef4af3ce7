"""Sites that take their time: service emulated by waiting, and the clock that adds it up.

Two cores would hide what nine machines show, so every probe, combination and stored row costs a site a fixed time,
which it waits. What is counted is the engine's real work (`fluxen.operators.join.tree`). Waiting is shorter than the
service it stands for by `SPEED`, so that minutes of the paper's experiments take seconds here; policies see the busy
times.

On the emulated clock a batch can start when its rows have arrived and the batch before is done, and lasts as long as
its slowest site. Moved rows, which this engine does not copy on one host, cost the receiver what a fetch would.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from fluxen.arrays import Json
from fluxen.control.plans.optimizer import Costs
from fluxen.operators.base import Results, SiteInput
from fluxen.operators.wrapped import Wrapped

__all__ = ["COSTS", "SPEED", "Done", "Served", "clock", "units"]

COSTS = Costs(probe=1.0, make=1.0, keep=1.0, move=1.0)
SPEED = 500.0
"""Emulated seconds per second of waiting."""


def units(work: Json) -> float:
    """Work in probes."""
    return float(COSTS.probe * work["probes"] + COSTS.make * work["made"] + COSTS.keep * work["kept"])


@dataclass(frozen=True, kw_only=True)
class Served(Wrapped):
    """A join tree whose sites need `service` seconds per probe."""

    service: float = 0.0

    def process(self, given: SiteInput) -> Results:
        output = yield from self.operator.process(given)
        if self.service and "work" in output.observed:
            time.sleep(units(output.observed["work"]) * self.service / SPEED)
        return output


@dataclass(slots=True, kw_only=True)
class Done:
    """A batch on the emulated clock."""

    arrived: float
    finished: float
    rows: int
    results: int
    state_rows: int
    busy: list[float] = field(default_factory=list)
    """seconds of service per site"""


def clock(batches: Sequence[Json], moved: dict[tuple[int, int], float], service: float, step: float) -> list[Done]:
    """When each batch is done; `moved` are the rows a site fetches at the start of a batch."""
    done: list[Done] = []
    now = 0.0
    for number, batch in enumerate(batches):
        busy = [
            service * (units(site["work"]) + COSTS.move * moved.get((number, site["site"]), 0.0))
            for site in batch["sites"]
        ]
        arrived = (number + 1) * step
        now = max(now, arrived) + max(busy)
        done.append(
            Done(
                arrived=arrived,
                finished=now,
                rows=batch["rows_in"],
                results=batch["results"],
                state_rows=batch["state_rows"],
                busy=busy,
            )
        )
    return done
