"""`python -m fluxen_lab.benchmarks.spark.routing`: rows a core sends to their sites per second, by the number of
isolated keys.

Hash, group and site of every row in generated code, nothing else: the alternatives take turns in one JVM, so the rates
compare with each other whatever else the machine does. For comparison, the same table as a literal map, which Spark
searches from its beginning for every row unless it is large.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from pyspark.sql import SparkSession

from fluxen.spark.route import site_expression
from fluxen.state.routing import Routing

ROWS, ROUNDS = 4_000_000, 7
_PARTITIONS, _SITES = 256, 8


def routing(keys: int, seed: int = 1) -> Routing:
    """A table with so many isolated keys."""
    rng = np.random.default_rng(seed)
    table = Routing.even(partitions=_PARTITIONS, sites=_SITES)
    for h in rng.integers(-(2**63), 2**63 - 1, keys).tolist():
        table = table.isolated(h, int(rng.integers(_SITES)))
    return table


def as_map(table: Routing) -> str:
    """The lookup that is compared with."""
    keys, sites = (
        ",".join(map(str, c)) for c in (table.explicit.tolist(), table.table[table.explicit_groups].tolist())
    )
    found = f"map_from_arrays(cast(split('{keys}', ',') as array<bigint>), cast(split('{sites}', ',') as array<int>))"
    return (
        f"coalesce(try_element_at({found}, _h), {site_expression(Routing.even(partitions=_PARTITIONS, sites=_SITES))})"
    )


def main() -> None:
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.range(0, ROWS, 1, 1).selectExpr("xxhash64(id) as _h")
    ways: dict[str, Callable[[], str]] = {
        "no isolated keys": lambda: site_expression(routing(0)),
        "100": lambda: site_expression(routing(100)),
        "1,000": lambda: site_expression(routing(1000)),
        "100, as a map": lambda: as_map(routing(100)),
        "900, as a map": lambda: as_map(routing(900)),
        "1,000, as a map": lambda: as_map(routing(1000)),
    }
    frames = {name: rows.selectExpr(f"{make()} as site") for name, make in ways.items()}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS + 1):
        for name, frame in frames.items():
            started = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            if turn:  # the first compiles
                taken[name].append(time.perf_counter() - started)
    base = median(taken["no isolated keys"])
    for name, seconds in taken.items():
        each = median(seconds)
        sys.stdout.write(f"{name:>18}  {ROWS / each / 1e6:6.2f} million rows/s  {each / base:5.2f}x the time\n")
    spark.stop()


if __name__ == "__main__":
    main()
