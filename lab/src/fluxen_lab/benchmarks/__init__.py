"""Measurements against Spark's own operators, behind `fluxen bench` (commands/bench.py).

adapt.py, aggregate.py, join.py, growth.py, kafka.py, latency.py, move.py, overflow.py, query.py, replan.py and skew.py
each hold one benchmark, the folder nexmark/ another; rows come from `fluxen_lab.datagen`. runner.py runs each engine in
a process of its own, turns.py two engines by turns, oracle.py and compare.py check the results, report.py shapes the
JSON. Only the folder spark/ imports pyspark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluxen_lab.benchmarks import adapt, aggregate, growth, join, kafka, latency, move, overflow, query, replan, skew
from fluxen_lab.benchmarks.context import Context, Options
from fluxen_lab.benchmarks.nexmark import bench as nexmark

__all__ = ["BENCHES", "SEARCHABLE", "Context", "Options"]

BENCHES: dict[str, Callable[[Context], dict[str, Any]]] = {
    "adapt": adapt.run,
    "aggregate": aggregate.run,
    "growth": growth.run,
    "join": join.run,
    "kafka": kafka.run,
    "latency": latency.run,
    "memory": overflow.run,
    "move": move.run,
    "nexmark": nexmark.run,
    "query": query.run,
    "replan": replan.run,
    "skew": skew.run,
}
SEARCHABLE = frozenset({"aggregate", "join", "query"})
