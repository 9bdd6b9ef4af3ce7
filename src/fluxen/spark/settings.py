"""How a query runs where Spark is: its options, and what the executors have, as the loop's settings."""

from __future__ import annotations

import uuid
from dataclasses import replace

from fluxen.engine.checks import check_sites
from fluxen.engine.loop import Clocks, Settings, event_time
from fluxen.engine.options import AdaptOptions
from fluxen.spark.memory import per_site
from fluxen.spark.query import Query

__all__ = ["cores", "settings", "with_memory"]


def with_memory(query: Query) -> AdaptOptions:
    """The query's options with what a site may hold, where the executors say that."""
    options, most = query.options, cores(query)
    operators = [plan.stage.operator for plan in query.plans]
    if not options.looks_for_memory or not any(operator.keeps("event time") for operator in operators):
        return options
    _, sites = options.bounds(most) or (0, options.first_sites(most))
    return replace(options, found=per_site(query.spark, sites))


def settings(query: Query, options: AdaptOptions, name: str) -> Settings:
    sites = options.first_sites(cores(query))
    whole = Settings(
        name=name,
        partitions=options.partitions,
        sites=sites,
        rescale_at_start=options.fixed_sites is not None,
        token=uuid.uuid4().hex[:8],
        clocks=Clocks() if options.clock == "wall" else Clocks(policies=event_time),
    )
    each = options.by_stage([plan.stage.operator for plan in query.plans])
    return replace(whole, stages=tuple(_of_stage(whole, own) for own in each))


def _of_stage(whole: Settings, own: AdaptOptions) -> Settings:
    check_sites(own, whole.sites)
    return replace(
        whole,
        placement=own.placement,
        track_heavy=own.partitioner is not None,
        recency=own.policy is not None and own.policy.recency,
        merge_limit=own.merge_limit,
        piece_bytes=own.piece_bytes,
        frugal=own.frugal,
        buffer=own.buffer,
    )


def cores(query: Query) -> int:
    """How many tasks Spark runs at once."""
    return int(query.spark.sparkContext.defaultParallelism)
