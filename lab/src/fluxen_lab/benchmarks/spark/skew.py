"""The query of `fluxen bench skew` on two executors, one of which works at half speed.

Service time is emulated by waiting (`fluxen_lab.emulate.paced`), so two executors on a small machine differ by exactly
what they are told to. ../skew.py measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

import fluxen as fx
from fluxen.policies import Policy, Stats
from fluxen.policies.base import Move
from fluxen_lab.benchmarks.job import Job
from fluxen_lab.benchmarks.spark.sources import stream
from fluxen_lab.emulate.paced import SlowExecutor, paced

__all__ = ["QUERIES", "SECONDS_PER_ROW", "SLOWDOWN", "Ideal", "session"]

SECONDS_PER_ROW = 1e-3
SLOWDOWN = 2.0
_SITES, _PARTITIONS = 2, 64


def session(job: Job) -> SparkSession:
    return fx.session(
        master=job.master,
        spark__executor__memory="768m",
        spark__executor__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        spark__sql__shuffle__partitions=2,
    )


class Ideal(Policy):
    """Knows the speeds: after the first batch the slow site keeps the share of the groups it can serve in time."""

    def __init__(self, slowdown: float) -> None:
        self.slowdown = slowdown
        self.done = False

    def suggest(self, stats: Stats, now: float) -> Sequence[Move]:
        if self.done:
            return ()
        self.done = True
        slow = int(stats.busy.argmax())
        mine = stats.pg[stats.placement == slow]
        keeps = round(stats.groups / (1 + self.slowdown))
        pgs = tuple(int(pg) for pg in mine[keeps:])
        return (Move(pgs=pgs, donor=slow, receiver=1 - slow, why="the speeds are known"),)

    def snapshot(self) -> dict[str, Any]:
        return {"done": self.done}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.done = bool(state["done"])


def _query(policy: Callable[[], Policy]) -> Callable[[SparkSession, Job], Any]:
    def build(spark: SparkSession, job: Job) -> Any:
        rows = stream(spark, job.data, "rows", text=False)
        averages = fx.aggregate(rows, by=["key"], time="ts", mean=fx.avg("value"), last=10)
        load = SlowExecutor(claim=str(job.work / "slow-executor"), slowdown=SLOWDOWN)
        return paced(averages, SECONDS_PER_ROW, load).adapt(sites=_SITES, partitions=_PARTITIONS, policy=policy())

    return build


QUERIES: dict[str, Callable[[SparkSession, Job], Any]] = {
    "fluxen-skew-static": _query(fx.Static),
    "fluxen-skew-flux": _query(lambda: fx.FluxLoad(groups_per_move=4, guarded=False)),
    "fluxen-skew-ideal": _query(lambda: Ideal(SLOWDOWN)),
}
