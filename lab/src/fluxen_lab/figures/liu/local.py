"""The same runs without Spark, in one process: what tests of the figures use, where minutes would be too long.

Rows, hashes, routing, policies and the event clock are those of the run on Spark, so results, memory, spills and
relocations come out the same; times do not.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fluxen import testing
from fluxen.control.adaptation import Adaptation
from fluxen.control.memory.spilling import owes
from fluxen.operators.base import Input
from fluxen.policies.base import Policy
from fluxen.state.epoch import StageState
from fluxen.state.record import read_records
from fluxen_lab.datagen.hashing import xxhash64
from fluxen_lab.datagen.liu import STREAMS, Workload

__all__ = ["run"]

_SCHEMA = pa.schema([("key", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("text", pa.string())])


def run(
    workload: Workload, *, sites: int, memory: int | None, policy: Policy | None, placement: Sequence[float] | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What `Run.epochs` and `Run.events` would say."""
    made = testing.join(dict.fromkeys(STREAMS, _SCHEMA), "key", "ts")
    stage = replace(made, encode=_encode)
    adaptation = Adaptation(policy=copy.deepcopy(policy), memory=memory, operator=stage.stage.operator)
    epochs: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        bench = testing.LocalEngine([stage], directory, sites=sites, partitions=workload.partitions)
        if placement is not None:
            state = bench.epoch.stages[0]
            bench.epoch = replace(bench.epoch, stages=(replace(state, routing=state.routing.shared(placement)),))

        def adapt(number: int, state: StageState, epoch: int) -> StageState:
            found = read_records(bench.store, epoch)
            records = [found[number, site] for site in range(state.routing.sites)]
            now = max(state.watermarks) / 1e6
            return adaptation.after(state, records, now, epoch=epoch)

        tables = workload.tables()
        for batch in range(workload.batches):
            bench.step(batch, [tables[name][batch] for name in STREAMS], change=adapt)
            epochs.append(_shown(bench, batch))
            events += adaptation.events()
        if owes(bench.epoch):
            bench.cleanup()
            epochs.append(_shown(bench, None))
    return epochs, events


def _encode(number: int, table: pa.Table) -> Input:
    stored = table.select(["key", "text"] if number == 0 else ["text"])
    times = table.column("ts").cast(pa.int64()).to_numpy()
    return Input(xxhash64(table.column("key").to_numpy()), None, times, stored)


def _shown(bench: testing.LocalEngine, batch: int | None) -> dict[str, Any]:
    stages = bench.epoch.stats["stages"]
    history = bench.epoch.stages[0].history
    return {
        "batch": batch,
        "stages": stages,
        "results": sum(site["rows_out"] for site in stages[0]["sites"]),
        "spilled_bytes": 0 if history is None else int(history.spilled.sum()),
        "seconds": {},
    }
