"""Claims of the Flux figures on Spark hold for runs like the paper's, and fail when mutated: without Spark.

A stand-in for a stage on Spark: what a load does to a site is what the paper says, and a policy that balances is done
after two batches. What Spark makes of it `test_flux_spark` runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fluxen.policies import Static
from fluxen_lab.emulate.paced import Rotating
from fluxen_lab.figures.figure import RunOptions
from fluxen_lab.figures.flux import degradation_spark, memory_spark, perturbation_spark, transient_spark
from fluxen_lab.figures.flux.on_spark import GROUPS_PER_SITE, SITES, Measured
from fluxen_lab.figures.reproduce import reproduce

MODULES = {
    "flux/3-spark": transient_spark,
    "flux/6-spark": perturbation_spark,
    "flux/7-spark": degradation_spark,
    "flux/9-spark": memory_spark,
}
NEED = 1000
"""Bytes of state at a site."""


class Standing:
    """Stands in for `Stage`."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options

    def run(
        self,
        label: str,
        batches: list[Any],
        policy: Any,
        load: Any = None,
        changed: tuple[int, dict[str, Any]] | None = None,
        **settings: Any,
    ) -> Measured:
        rows = [table.num_rows for table in batches]
        sites = [self._sites(table, number, load, changed) for number, table in enumerate(batches)]
        pressed = [max(each) for each in sites]
        first = next((i for i, factor in enumerate(pressed) if factor > 1), len(rows))
        balances = not isinstance(policy, Static)
        buffered = isinstance(load, Rotating) and "skew_buffer" in settings
        # what is left once groups have moved, or rows wait while a slow site catches up
        shared = [SITES / sum(1 / factor for factor in each) for each in sites]
        factors = [shared[i] if buffered or (balances and i >= first + 2) else pressed[i] for i in range(len(rows))]
        waits = [buffered or factor > 1.5 for factor in factors]
        moved = ((first, GROUPS_PER_SITE // 2, 0, 1),) if balances and first < len(rows) else ()
        results = rows[self.options.params.get("uncounted", 0) :]
        return Measured(
            rows=tuple(rows),
            busy=tuple(count * 1e-3 / SITES * factor for count, factor in zip(rows, factors)),
            seconds=tuple(0.5 + count * 1e-3 / SITES * factor for count, factor in zip(rows, factors)),
            moves=moved,
            sites=tuple(({"state_bytes": NEED, "waiting_rows": int(wait)},) for wait in waits),
            latency=tuple(factors),
            batches=len(batches),
            results=sum(results),
        )

    def _sites(self, table: Any, batch: int, load: Any, changed: tuple[int, dict[str, Any]] | None) -> list[float]:
        """How many times longer than without load each site takes."""
        slow = 1.0
        if changed is not None:
            slow = 2.0 if batch >= changed[0] and min(changed[1]["memory_per_site"]) < NEED else 1.0
        elif isinstance(load, Rotating):
            slow = load.slowdown
        elif load is not None and not isinstance(load, memory_spark.Filled):
            now = max(table.column("ts").cast("int64").to_pylist())
            return [load.factor(site, now) for site in range(SITES)]
        return [slow] + [1.0] * (SITES - 1)


@pytest.mark.parametrize("name", MODULES)
def test_claims_hold_for_runs_like_the_papers_and_fail_when_mutated(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @contextmanager
    def stage(options: RunOptions) -> Iterator[Standing]:
        yield Standing(options)

    monkeypatch.setattr(MODULES[name], "stage", stage)
    claims = reproduce(name, tmp_path, options=RunOptions(seeds=1, params={"rows": 80}), mutate=True)["claims"]
    assert [claim["claim"] for claim in claims if not claim["holds"]] == []
    assert [claim["claim"] for claim in claims if claim["holds_mutated"]] == []
