"""fluxen: adaptive stateful streaming for PySpark.

The public names are loaded when first used, so that a Python worker that only runs a site does not import the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "session": "fluxen.spark.session",
    "join": "fluxen.spark.words",
    "aggregate": "fluxen.spark.words",
    "distinct": "fluxen.spark.words",
    "top": "fluxen.spark.words",
    "union": "fluxen.spark.words",
    "stateful": "fluxen.spark.words",
    "query": "fluxen.spark.words",
    "explain": "fluxen.spark.words",
    "Query": "fluxen.spark.query",
    "Run": "fluxen.spark.run",
    **dict.fromkeys(
        [
            "count",
            "sum",
            "avg",
            "min",
            "max",
            "stddev",
            "stddev_pop",
            "variance",
            "var_pop",
            "first",
            "last",
            "min_by",
            "max_by",
            "collect_list",
            "collect_set",
            "bool_and",
            "bool_or",
        ],
        "fluxen.operators.aggregate.functions",
    ),
    "Operator": "fluxen.operators.base",
    "Optimizer": "fluxen.control.plans.optimizer",
    **dict.fromkeys(
        [
            "Policy",
            "Auto",
            "Static",
            "Random",
            "FluxLoad",
            "FluxMemory",
            "FluxHybrid",
            "LocalDisk",
            "LazyDisk",
            "ActiveDisk",
            "ForecastDisk",
            "RiverDQ",
        ],
        "fluxen.policies",
    ),
    **dict.fromkeys(
        ["Partitioner", "UniformHash", "ConsistentHash", "Scan", "Redist", "Readj", "Slotted"],
        "fluxen.partitioning",
    ),
    **dict.fromkeys(["Listener", "JsonFormatter", "add_listener", "remove_listener"], "fluxen.engine.listeners"),
    "FluxenError": "fluxen.errors",
}

if TYPE_CHECKING:
    from fluxen.control.plans.optimizer import Optimizer as Optimizer
    from fluxen.engine.listeners import JsonFormatter as JsonFormatter
    from fluxen.engine.listeners import Listener as Listener
    from fluxen.engine.listeners import add_listener as add_listener
    from fluxen.engine.listeners import remove_listener as remove_listener
    from fluxen.errors import FluxenError as FluxenError
    from fluxen.operators.aggregate.functions import avg as avg
    from fluxen.operators.aggregate.functions import bool_and as bool_and
    from fluxen.operators.aggregate.functions import bool_or as bool_or
    from fluxen.operators.aggregate.functions import collect_list as collect_list
    from fluxen.operators.aggregate.functions import collect_set as collect_set
    from fluxen.operators.aggregate.functions import count as count
    from fluxen.operators.aggregate.functions import first as first
    from fluxen.operators.aggregate.functions import last as last
    from fluxen.operators.aggregate.functions import max as max
    from fluxen.operators.aggregate.functions import max_by as max_by
    from fluxen.operators.aggregate.functions import min as min
    from fluxen.operators.aggregate.functions import min_by as min_by
    from fluxen.operators.aggregate.functions import stddev as stddev
    from fluxen.operators.aggregate.functions import stddev_pop as stddev_pop
    from fluxen.operators.aggregate.functions import sum as sum
    from fluxen.operators.aggregate.functions import var_pop as var_pop
    from fluxen.operators.aggregate.functions import variance as variance
    from fluxen.operators.base import Operator as Operator
    from fluxen.partitioning import ConsistentHash as ConsistentHash
    from fluxen.partitioning import Partitioner as Partitioner
    from fluxen.partitioning import Readj as Readj
    from fluxen.partitioning import Redist as Redist
    from fluxen.partitioning import Scan as Scan
    from fluxen.partitioning import Slotted as Slotted
    from fluxen.partitioning import UniformHash as UniformHash
    from fluxen.policies import ActiveDisk as ActiveDisk
    from fluxen.policies import Auto as Auto
    from fluxen.policies import FluxHybrid as FluxHybrid
    from fluxen.policies import FluxLoad as FluxLoad
    from fluxen.policies import FluxMemory as FluxMemory
    from fluxen.policies import ForecastDisk as ForecastDisk
    from fluxen.policies import LazyDisk as LazyDisk
    from fluxen.policies import LocalDisk as LocalDisk
    from fluxen.policies import Policy as Policy
    from fluxen.policies import Random as Random
    from fluxen.policies import RiverDQ as RiverDQ
    from fluxen.policies import Static as Static
    from fluxen.spark.query import Query as Query
    from fluxen.spark.run import Run as Run
    from fluxen.spark.session import session as session
    from fluxen.spark.words import aggregate as aggregate
    from fluxen.spark.words import distinct as distinct
    from fluxen.spark.words import explain as explain
    from fluxen.spark.words import join as join
    from fluxen.spark.words import query as query
    from fluxen.spark.words import stateful as stateful
    from fluxen.spark.words import top as top
    from fluxen.spark.words import union as union

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'fluxen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
