"""How many random cases property tests try: `make check` a tenth, `make test` a quarter, but all of those on Spark,
`make hunt` ten times as many."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

HUNT = float(os.environ.get("FLUXEN_HUNT", "1"))


def examples(count: int, *, least: int = 1, **options: Any) -> settings:
    """So many random cases, times FLUXEN_HUNT; never fewer than `least`."""
    usual = {"deadline": None, "suppress_health_check": list(HealthCheck)}
    return settings(max_examples=max(least, round(count * HUNT)), **{**usual, **options})
