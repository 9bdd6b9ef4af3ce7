"""How long sites work on a batch when only the size of the skew buffer is given: as long as the others are expected to.

Flux's buffer knows no time: while one consumer lags, producers go on serving the others, and what is meant for the slow
one waits, until the buffer is full (section 4). In a micro-batch nobody is served while others wait; a batch ends when
its last site does. The same comes out if a site stops when the others are done and leaves the rest of its rows to the
next batch. A site cannot see the others while it works, so when they will be done is predicted from the last epoch:
what came to each site then, and what waits for it now, at the pace it had. The median over the other sites counts, so
one slow site does not excuse another.

The prediction is a function of the committed epoch, so all attempts of a batch have the same; the clock then decides
what waits, and `fluxen.state.decision` makes that the same for all attempts as well.
"""

from __future__ import annotations

import numpy as np

from fluxen.arrays import Floats, Json
from fluxen.state.epoch import Epoch

__all__ = ["LEAST", "SLACK", "budgets"]

SLACK = 1.25
"""Time a site may take, in units of the others': batches scatter, and rows that wait for nothing cost a file."""
LEAST = 0.1
"""Seconds below which no site is stopped: a batch costs more than that anyway."""


def budgets(epoch: Epoch, stage: int) -> tuple[float, ...] | None:
    """Seconds each site may work on the batch after `epoch`; None if nothing is known about it."""
    stages = epoch.stats.get("stages", [])
    if not stages:
        return None
    expected = np.array([_expected(site) for site in stages[stage]["sites"]])
    if len(expected) != epoch.stages[stage].routing.sites or len(expected) < 2 or not expected.any():
        return None
    return tuple(_allowed(np.delete(expected, site)) for site in range(len(expected)))


def _allowed(others: Floats) -> float:
    """Seconds until the other sites are done; sites without rows wait for nothing, and alone there is no hurry."""
    others = others[others > 0]
    return max(SLACK * float(np.median(others)), LEAST) if len(others) else float("inf")


def _expected(site: Json) -> float:
    """Seconds for as many rows as came last time and those that wait, at the pace the site had."""
    processed = sum(rows for _, rows in site["delays"])
    return float(site["busy_seconds"] * (site["rows_in"] + site["waiting_rows"]) / processed) if processed else 0.0
