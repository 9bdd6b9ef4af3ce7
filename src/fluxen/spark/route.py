"""Rows to sites, in the JVM: partition group and site as Spark SQL expressions, and each site on one executor.

The Python half of the same functions is `fluxen.state.routing`; the layout of rows is `fluxen.spark.plan.layout`.
The routing table enters a query as a literal array, which Spark passes to generated code by reference: a new table is
new data, not new code.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as st

from fluxen.arrays import Groups, Ints
from fluxen.site.wire import IN
from fluxen.state.epoch import StageState
from fluxen.state.lookup import TAG, CollisionFree
from fluxen.state.routing import Routing
from fluxen.state.segment import H

SITE = "_site"
_WITHIN_PARTITION = 2**33 - 1
"""Bits of `monotonically_increasing_id` that count the rows of a partition."""
ANCHORS = 4
"""Numbers of sites for which blocks are kept: stages may differ while one of them waits for its rescale."""


def group_expression(routing: Routing) -> str:
    """SQL of `Routing.groups`."""
    return _isolated(routing, routing.explicit_groups, _base(routing))


def site_expression(routing: Routing) -> str:
    """SQL of `Routing.sites_of(groups)`, as the value that Spark's hash partitioning sends to that site's partition."""
    values = np.array(site_values(routing.sites), dtype=np.int64)[routing.table]
    ordinary = f"{_literal(values[: routing.partitions].tolist())}[{_base(routing)}]"
    return _isolated(routing, values[routing.explicit_groups], ordinary)


def _base(routing: Routing) -> str:
    return f"cast(shiftright((shiftright({H}, 32) + 2147483648L) * {routing.partitions}L, 32) as int)"


def _isolated(routing: Routing, values: Groups | Ints, otherwise: str) -> str:
    """SQL of the value of a key that has a group of its own, and of `otherwise` for all other keys.

    A few array elements per row however many such keys there are (`fluxen.state.lookup`).
    """
    if len(routing.explicit) == 0:
        return otherwise
    table = CollisionFree.of(routing.explicit)
    bucket = f"{H} & {len(table.shifts) - 1}L"
    bits = f"shiftrightunsigned({H}, {_literal(table.shifts.tolist())}[{bucket}])"
    slot = f"({bits} ^ {_literal(table.flips.tolist())}[{bucket}]) & {len(table.keys) - 1}L"
    of_slot = values[np.searchsorted(routing.explicit, table.keys)]
    likely = f"{_literal(table.tags.tolist())}[{slot}] = cast(shiftrightunsigned({H}, {TAG}) as int)"
    found = f"{_literal(table.keys.tolist(), 'bigint')}[{slot}] = {H}"
    return f"if({likely} and {found}, {_literal(of_slot.tolist())}[{slot}], {otherwise})"


def marked_site_expression(routing: Routing) -> str:
    """The same where there are marker rows among the others: those name their site themselves."""
    named = f"element_at({_literal(site_values(routing.sites))}, -{IN})"
    return f"if({IN} < 0, {named}, {site_expression(routing)})"


def _literal(numbers: Iterable[int], kind: str = "int") -> str:
    """An array that generated code refers to as data."""
    return f"cast(split('{','.join(map(str, numbers))}', ',') as array<{kind}>)"


def sites_expression(state: StageState) -> str:
    """As `site_expression`, giving a row once for each site it goes to while groups move by parallel track.

    A copy's partition says where else its rows go; a site that gets a row of a key no copy covers leaves it alone.
    """
    routing = state.routing
    owner = marked_site_expression(routing)
    base = _base(routing)
    layers: list[list[int]] = []
    for track in state.tracks:
        layer = next((layer for layer in layers if layer[track.partition] < 0), None)
        if layer is None:
            layer = [-1] * routing.partitions
            layers.append(layer)
        layer[track.partition] = site_values(routing.sites)[int(routing.table[track.group])]
    others = [f"element_at({_literal(layer)}, {base} + 1)" for layer in layers]
    everywhere = f"filter(array_distinct(array({', '.join([owner, *others])})), s -> s >= 0)"
    return f"explode(if({IN} < 0, array({owner}), {everywhere}))"


def markers(spark: SparkSession, sites: int, schema: st.StructType) -> DataFrame:
    """One row per site that names it; `schema` is the wire layout's."""
    filled = {IN: F.col("id"), H: F.lit(0)}
    columns = [filled.get(column.name, F.lit(None)).cast(column.dataType).alias(column.name) for column in schema]
    return spark.range(-sites, 0, 1, 1).select(*columns)


def marking(sites: int) -> Column:
    """`_in` of rows with marker rows among them: in front of each partition that has rows, one per site.

    Much cheaper to plan and run than a union with `markers`, but a batch without a single row gets none.
    """
    first = f"(monotonically_increasing_id() & {_WITHIN_PARTITION}L) = 0L"
    return F.expr(f"explode(if({first}, concat(array({IN}), sequence(-{sites}, -1)), array({IN})))")


@lru_cache(maxsize=16)
def site_values(sites: int) -> list[int]:
    """Integers v such that Spark puts v into partition i of `sites`: pmod(hash(v), sites) = i."""
    found: dict[int, int] = {}
    value = 0
    while len(found) < sites:
        found.setdefault(_murmur3(value) % sites, value)
        value += 1
    return [found[site] for site in range(sites)]


def _murmur3(value: int) -> int:
    """Spark's hash() of an int: 32-bit Murmur3 with seed 42, as a signed number."""

    def rotate(x: int, by: int) -> int:
        return ((x << by) | (x >> (32 - by))) & 0xFFFFFFFF

    k = rotate(value * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    h = (rotate(42 ^ k, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    h = (h ^ (h >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - 2**32 if h >= 2**31 else h


class Pins:
    """Keeps each site on one executor.

    A tiny cached DataFrame with one row per site is joined to every batch; the join's tasks run where the cached
    block is. When an executor is lost its sites move to a survivor; a fresh set of blocks spreads them again.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        master = spark.sparkContext.master
        self.needed = not (master.startswith("local[") or master == "local")
        self._anchors: dict[int, DataFrame] = {}
        self._site = "", F.lit(None)
        self._executors: frozenset[str] = frozenset()

    def route(self, df: DataFrame, site: str, sites: int) -> DataFrame:
        """`df` in as many partitions as there are sites, each row in that of `site`, a SQL expression."""
        if not self.needed:
            if site != self._site[0]:  # parsed once per routing table
                self._site = site, F.expr(site)
            return df.repartition(sites, self._site[1])
        named = df if site == SITE else df.selectExpr("*", f"{site} as {SITE}")
        return named.join(self._anchor(sites).hint("shuffle_hash"), SITE)

    def _anchor(self, sites: int) -> DataFrame:
        executors = self.executors()
        if executors != self._executors:
            self.release()
            self._executors = executors
        if sites not in self._anchors:
            rows = [(value,) for value in site_values(sites)]
            anchor = self.spark.createDataFrame(rows, f"{SITE} int").repartition(sites, SITE).persist()
            anchor.count()
            for earlier in list(self._anchors)[: 1 - ANCHORS]:  # a rescale leaves blocks that are no longer used
                self._anchors.pop(earlier).unpersist()
            self._anchors[sites] = anchor
        return self._anchors[sites]

    def executors(self) -> frozenset[str]:
        """The executors there are now, by address: one that replaces another within a batch is a change, too."""
        known: str = self.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keySet().mkString(",")
        return frozenset(known.split(","))

    def release(self) -> None:
        for anchor in self._anchors.values():
            anchor.unpersist()
        self._anchors.clear()
