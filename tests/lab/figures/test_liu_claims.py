"""Claims of Liu's figures hold for runs like the papers', and fail when mutated: without an engine.

A stand-in for a trial: what does not fit into memory costs results, how many depends on what is pushed to disk, and
policies that relocate fill the memory of all sites. What the engine makes of it `test_liu` runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fluxen.policies import ActiveDisk, ForecastDisk, LazyDisk, LocalDisk, Random
from fluxen_lab.datagen.liu import Workload
from fluxen_lab.figures.figure import RunOptions, figure_names
from fluxen_lab.figures.liu import parallel, relocation, spill, strategies
from fluxen_lab.figures.liu.trial import Trial
from fluxen_lab.figures.reproduce import reproduce

TOTAL = 1_000_000
"""Results of a run with all state in memory."""


def cost(policy: Any, *, uneven: bool) -> float:
    """Share of the results that a share of the state on disk costs."""
    costs = {ForecastDisk: 0.0, ActiveDisk: 0.02, LazyDisk: 0.25}
    if type(policy) in costs:
        return costs[type(policy)]
    if not isinstance(policy, LocalDisk):
        return 1.0
    if policy._spiller.victims == "random":
        return 0.8 + 0.8 * policy._spiller.spill
    return (0.38 if policy._spiller.victims == "less-productive" else 1.2) * (2 if uneven else 1)


def fake(
    options: RunOptions,
    label: str,
    workload: Workload,
    *,
    sites: int = 1,
    memory: int | None = None,
    policy: Any = None,
    placement: Any = None,
) -> Trial:
    relocates = isinstance(policy, (ActiveDisk, ForecastDisk, LazyDisk))
    even = [1 / sites] * sites
    shares = even if relocates or placement is None else list(placement)
    room = [share if memory is None else min(share, memory / workload.state_bytes) for share in shares]
    out = 1 - sum(room)
    out = out if out > 1e-9 else 0.0
    results = round(TOTAL * (1 - out * cost(policy, uneven=placement is not None)))
    alternates = workload.weights is not None and sites == 2 and not relocates
    state = [int(share * workload.state_bytes) * (0.8 if alternates and i else 1) for i, share in enumerate(room)]
    busy = (2.0 if isinstance(policy, Random) else 1.0) / sites
    each = [{"state_bytes": held, "busy_seconds": busy, "seconds": {"cleanup": 0.0}} for held in state]
    longest = max(share - held for share, held in zip(shares, room))
    cleanup = [{"seconds": {"cleanup": longest}}] * sites
    spills = [{"kind": "spill", "outcome": "done"}] * (round(1 / max(policy._spiller.spill, 0.1)) + 1 if out else 0)
    moves = int(10 * policy._relocator.threshold + 90 / policy._relocator.gap) if isinstance(policy, LazyDisk) else 0
    epoch = {"spilled_bytes": 0, "stages": [{"sites": each}], "seconds": {}}
    return Trial(
        epochs=[{**epoch, "results": results if number == 9 else 0} for number in range(10)],
        cleanup=[{"results": TOTAL - results, "stages": [{"sites": cleanup}]}],
        events=spills + [{"kind": "relocation", "outcome": "done"}] * moves,
        seconds_per_batch=60.0,
    )


@pytest.mark.parametrize("name", [name for name in figure_names() if name.startswith("liu")])
def test_claims_hold_for_runs_like_the_papers_and_fail_when_mutated(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (parallel, relocation, spill, strategies):
        monkeypatch.setattr(module, "trial", fake)
    claims = reproduce(name, tmp_path, options=RunOptions(seeds=2), mutate=True)["claims"]
    assert [claim["claim"] for claim in claims if not claim["holds"]] == []
    assert [claim["claim"] for claim in claims if claim["holds_mutated"]] == []
