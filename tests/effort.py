"""How many random cases property tests try: `make check` a tenth, `make test` a quarter of those without
Spark, `make hunt` ten times as many."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

HUNT = float(os.environ.get("FLUXEN_HUNT", "1"))


def examples(count: int, **options: Any) -> settings:
    """So many random cases, times FLUXEN_HUNT."""
    usual = {"deadline": None, "suppress_health_check": list(HealthCheck)}
    return settings(max_examples=max(1, round(count * HUNT)), **{**usual, **options})
