"""One soak run in one process: `python -m fluxen_lab.benchmarks.soak.local QUERY BATCHES WORK`; samples go to
WORK/samples."""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path
from statistics import median

import fluxen.testing as ft
from fluxen import partitioning, policies
from fluxen.operators.aggregate import functions as fx
from fluxen_lab.benchmarks.soak.pace import Pace
from fluxen_lab.benchmarks.soak.queries import LAST, QUERIES, WINDOW, WITHIN, Soaked
from fluxen_lab.benchmarks.soak.samples import Sample, Size, checkpoint_size, compress, fill, resident_mb
from fluxen_lab.datagen.drift import SCHEMA, Drift

EVERY = 10
DRIFT = Drift(keys=200, rows=60, cycle=250)
STATE_BYTES = {"join": 55_000, "distinct": 5_200}
"""What a site of two holds of each form without a limit, about."""


def main(name: str, batches: int, work: Path) -> None:
    query = QUERIES[name]
    bench = _bench(query, work / "checkpoint")
    fill(work / "checkpoint")
    spent: list[float] = []
    sizes: list[Size] = []
    results = spilled = 0
    pace = Pace(work)
    with (work / "samples").open("w") as samples:
        for batch in range(batches):
            tables = [DRIFT.table(stream, batch) for stream in range(query.inputs)]
            started = time.process_time()
            results += bench.step(batch, tables).num_rows
            spent.append(time.process_time() - started)
            spilled += _on_disk(bench)
            sizes.append(checkpoint_size(work / "checkpoint"))
            if batch % EVERY == EVERY - 1:
                gc.collect()
                sample = Sample.of(
                    batch=batch,
                    size=Size.mean(sizes),
                    driver_mb=resident_mb(os.getpid()),
                    workers_mb=0.0,
                    batch_ms=median(spent) * 1e3 / pace.slower(),
                )
                samples.write(sample.line())
                samples.flush()
                spent.clear()
                sizes.clear()
    if query.memory is not None and spilled < batches // 2:
        sys.exit(f"something was on disk after {spilled} of {batches} batches only: memory was not tight")
    if query.form == "join" and query.inputs == 2:
        results += bench.cleanup().num_rows
        if results != (expected := DRIFT.pairs(batches, WITHIN)):
            sys.exit(f"{results:,} results instead of {expected:,}")


def _on_disk(bench: ft.LocalEngine) -> bool:
    stage = bench.epoch.stages[0]
    turns = stage.residence is not None and bool(stage.residence.on_disk.any())
    return turns or any(ref.kind == "generation" for ref in stage.segments)


def _bench(query: Soaked, checkpoint: Path) -> ft.LocalEngine:
    memory = None if query.memory is None else round(query.memory * STATE_BYTES[query.form])
    partitioner = None if query.partitioner is None else getattr(partitioning, query.partitioner)()
    return ft.LocalEngine(
        [_stage(query)],
        str(checkpoint),
        sites=2,
        partitions=32,
        memory=memory,
        policy=getattr(policies, query.policy),
        partitioner=partitioner,
    )


def _stage(query: Soaked) -> ft.LocalStage:
    if query.form in ("join", "tree"):
        inputs = {"abc"[number]: SCHEMA for number in range(query.inputs)}
        plan = "tree" if query.form == "tree" else "mjoin"
        return ft.join(inputs, "key", "ts", within=f"{WITHIN} seconds", plan=plan)
    if query.form == "distinct":
        return ft.distinct(SCHEMA, "key", "ts", within=f"{WITHIN} seconds")
    if query.form == "last":
        return ft.aggregate(SCHEMA, "key", "ts", last=LAST, mean=fx.avg("value"))
    return ft.aggregate(SCHEMA, "key", "ts", window=f"{WINDOW} seconds", n=fx.count(), total=fx.sum("value"))


if __name__ == "__main__":
    compress()
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
