"""The query of `fluxen bench move`: a join whose state is far away, and a policy that moves one group at one moment.

Service time is emulated by waiting (`fluxen_lab.emulate.paced`), so that a batch has a length to compare with; what a
move adds is real but for the bandwidth. ../move.py measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

import fluxen as fx
from fluxen.policies import Policy, Stats
from fluxen.policies.base import Move
from fluxen_lab.benchmarks.job import Job
from fluxen_lab.benchmarks.move import ASKED
from fluxen_lab.benchmarks.spark.sources import stream
from fluxen_lab.datagen.filled import FILLING, PARTITIONS
from fluxen_lab.datagen.streams import START_US
from fluxen_lab.emulate.distant import distant
from fluxen_lab.emulate.paced import paced

__all__ = ["BYTES_PER_SECOND", "QUERIES", "Once", "state_of"]

BYTES_PER_SECOND = 40e6
_SECONDS_PER_ROW = 1.5e-3
_FILLED_US = START_US + FILLING * 1_000_000


@dataclass(frozen=True, slots=True)
class AfterFilling:
    """Rows that fill the state take no time of their own."""

    def factor(self, site: int, now: int) -> float:
        return 1.0 if now >= _FILLED_US else 0.0


class Once(Policy):
    """Moves group 0 to the other site after the batch `ASKED`, and nothing else ever."""

    def __init__(self) -> None:
        self.seen = 0

    def suggest(self, stats: Stats, now: float) -> Sequence[Move]:
        self.seen += 1
        if self.seen != ASKED + 1:
            return ()
        donor = int(stats.placement[stats.index(0)])
        return (Move(pgs=(0,), donor=donor, receiver=1 - donor, why="to see what it costs"),)

    def snapshot(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seen = int(state["seen"])


def _joined(spark: SparkSession, job: Job) -> Any:
    inputs = {name: stream(spark, job.data, name, text=True) for name in "ab"}
    joined = fx.join(inputs, on="key", time="ts", within=None)
    slow = paced(joined, _SECONDS_PER_ROW, AfterFilling())
    return slow.adapt(sites=2, partitions=PARTITIONS, policy=Once())


QUERIES: dict[str, Callable[[SparkSession, Job], Any]] = {
    "fluxen-move-ahead": lambda spark, job: distant(_joined(spark, job), BYTES_PER_SECOND),
    "fluxen-move-at-once": lambda spark, job: distant(_joined(spark, job), BYTES_PER_SECOND, ahead=False),
    "fluxen-move-shared": _joined,
}


def state_of(run: Any) -> dict[str, Any]:
    """The moves that were carried out, and what each site did with its time in each batch."""
    epochs = {epoch["epoch"]: epoch for epoch in run.epochs}
    moves = [event for event in run.events if event["kind"] == "move" and event["outcome"] == "done"]
    return {
        "moves": [
            {"batch": epochs[event["epoch"]]["batch"], "bytes": event["bytes"], "seconds": event["duration"]}
            for event in moves
        ],
        "sites": [[site["seconds"] for site in epoch["stages"][0]["sites"]] for epoch in run.epochs],
    }
