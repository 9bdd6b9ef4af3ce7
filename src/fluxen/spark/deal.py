"""Rows of keys that are dealt over several groups get their members' hashes, in the JVM (`fluxen.state.families`).

A dealt input's row goes to the member that a hash of its content names: a task that runs again deals the same way,
whatever order rows come in. Every other input's row comes out once per member. Without such keys nothing is added to
the plan.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from fluxen.site.wire import IN
from fluxen.spark.plan.layout import hashable_columns, quoted
from fluxen.state.families import Family
from fluxen.state.routing import Routing
from fluxen.state.segment import H

__all__ = ["dealt"]

_SEED = 5871781006564002453
"""Prefix of the rows' hash: any constant, for ever the same, that no other hash of these columns begins with."""


def dealt(rows: DataFrame, routing: Routing, inputs: int) -> DataFrame:
    """Rows in wire layout with their members' hashes; `inputs` tells rows of an input from all others."""
    if not routing.families:
        return rows
    content = [quoted(name) for name in hashable_columns(rows) if name not in (IN, H)]
    hashed = f"xxhash64({_SEED}L, {', '.join(content)})"
    cases = " ".join(
        f"when {H} = cast('{family.h}' as bigint) then {_members(family, hashed)}" for family in routing.families
    )
    exploded = f"explode(case when {IN} < 0 or {IN} >= {inputs} then array({H}) {cases} else array({H}) end) as {H}"
    return rows.selectExpr(*(exploded if name == H else quoted(name) for name in rows.columns))


def _members(family: Family, hashed: str) -> str:
    every = f"cast(split('{','.join(map(str, family.members))}', ',') as array<bigint>)"
    return f"if({IN} = {family.dealt}, array({every}[cast(pmod({hashed}, {len(family.members)}L) as int)]), {every})"
