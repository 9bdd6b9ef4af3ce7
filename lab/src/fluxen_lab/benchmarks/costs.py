"""Unit costs of the join tree's kernels: `python -m fluxen_lab.benchmarks.costs` prints what `Costs` should hold.

Trees of three shapes run over streams of different rates and fan-outs, one site in this process and no Spark. Every
site reports its work (probes, combinations made and kept) and its seconds; the unit costs are the least-squares fit of
the one to the other, each run weighted by its own time so that large runs do not decide alone. The price of a moved row
is that of reading, checking and mapping stored segments for the first time. `fluxen.control.plans.optimizer` uses them.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from fluxen.arrays import Floats
from fluxen.operators.base import Input
from fluxen.state.segment import open_segment
from fluxen.testing import LocalEngine, join
from fluxen_lab.datagen.hashing import xxhash64
from fluxen_lab.datagen.streams import StreamSpec, batch_table

__all__ = ["Trial", "fit", "main", "trials"]

TREES = ("((0 1) 2)", "(0 (1 2))", "(0 1 2)")
RATES = ((1.0, 1.0, 1.0), (1.0, 0.1, 0.1), (0.1, 1.0, 1.0), (1.0, 1.0, 0.1))
PARTNERS = (0.3, 1.0, 3.0)
"""rows of the fastest other stream that a row finds in its window"""
ROWS, BATCHES, WARM_UP = 20_000, 8, 2
_SECOND = 1_000_000
_SCHEMA = pa.schema(
    [("key", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("value", pa.float64()), ("text", pa.string())]
)
_UNITS = ("rows", "probes", "made", "kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The steady batches of one tree over one set of streams."""

    seconds: float
    work: dict[str, int]
    read_seconds: float
    """of all stored segments, for the first time"""
    stored_rows: int


def trials(rows: int = ROWS) -> Iterator[Trial]:
    """Every tree over every set of streams; `rows` of the fastest stream in a batch."""
    for tree, rates, partners in itertools.product(TREES, RATES, PARTNERS):
        with tempfile.TemporaryDirectory() as directory:
            yield _trial(directory, tree, rates, partners, rows)


def _trial(directory: str, tree: str, rates: tuple[float, ...], partners: float, rows: int) -> Trial:
    # a window of one batch to either side: a row finds twice a batch's rows of its key
    keys = max(1, round(2 * rows / partners))
    stage = join(
        dict.fromkeys("abc", _SCHEMA), "key", "ts", within="1 second", plan="tree", tree=tree,
    )  # fmt: skip
    bench = LocalEngine([replace(stage, encode=_encode)], directory, sites=1, partitions=16)
    streams = [
        StreamSpec(
            name=name, rows=round(rows * rate) * BATCHES, keys=keys, skew=0.0, span_us=BATCHES * _SECOND, text=True,
            seed=number,
        )
        for number, (name, rate) in enumerate(zip("abc", rates))
    ]  # fmt: skip
    seconds, work = 0.0, dict.fromkeys(_UNITS, 0)
    for number in range(BATCHES):
        bench.step(number, [batch_table(stream, number, BATCHES) for stream in streams])
        (site,) = bench.epoch.stats["stages"][0]["sites"]
        if number >= WARM_UP:
            seconds += sum(site["seconds"][name] for name in ("operator", "write", "merge"))
            for name, more in (site["work"] | {"rows": site["rows_in"]}).items():
                work[name] += more
    read, stored = _read(bench)
    return Trial(seconds=seconds, work=work, read_seconds=read, stored_rows=stored)


def _encode(number: int, table: pa.Table) -> Input:
    stored = table.select(["key", "value", "text"] if number == 0 else ["value", "text"])
    times = table.column("ts").cast(pa.int64()).to_numpy()
    return Input(xxhash64(table.column("key").to_numpy()), None, times, stored)


def _read(bench: LocalEngine) -> tuple[float, int]:
    """Seconds to open all segments as a process does that has not seen them, and their rows."""
    refs = bench.epoch.stages[0].segments
    for ref in refs:
        os.utime(bench.store.path(ref.name))  # another modification time is another file, to be checked again
    started = time.perf_counter()
    for ref in refs:
        open_segment(bench.store, ref)
    return time.perf_counter() - started, sum(ref.rows for ref in refs)


def fit(found: list[Trial]) -> dict[str, float]:
    """Microseconds per row, probe, combination made and kept, and per stored row read; and how well they explain."""
    seconds = np.array([trial.seconds for trial in found])
    counts: Floats = np.array([[1.0, *(trial.work[name] for name in _UNITS)] for trial in found])
    units, *_ = np.linalg.lstsq(counts / seconds[:, None], np.ones(len(found)), rcond=None)
    error = np.abs(counts @ units / seconds - 1)
    moved = sum(trial.read_seconds for trial in found) / sum(trial.stored_rows for trial in found)
    microseconds = {name: float(unit) * 1e6 for name, unit in zip(_UNITS, units[1:])}
    return microseconds | {"moved": moved * 1e6, "median_error": float(np.median(error))}


def main() -> int:
    found = list(trials())
    units = fit(found)
    costs = {name: units[unit] / units["probes"] for name, unit in _COSTS.items()}
    shown: dict[str, Any] = {
        "trials": len(found),
        "microseconds": {name: round(value, 4) for name, value in units.items() if name != "median_error"},
        "median_error": round(units["median_error"], 3),
        "costs": {name: round(value, 3) for name, value in costs.items()},
    }
    sys.stdout.write(json.dumps(shown) + "\n")
    return 0


_COSTS = {"probe": "probes", "make": "made", "keep": "kept", "move": "moved"}

if __name__ == "__main__":
    sys.exit(main())
