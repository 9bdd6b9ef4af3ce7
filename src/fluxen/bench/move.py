"""`fluxen bench move`: what a move of a 100 MB group costs the batches around it.

Two executors, each with its own copies of a checkpoint that is read at a limited bandwidth (`fluxen.testing.distant`).
After some batches one group moves: with its state copied ahead, with everything fetched at the switch, and for
comparison on a disk that both executors share. The query is in spark/move.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from fluxen.bench import report
from fluxen.bench.compare import Column
from fluxen.bench.context import Context, Prepared
from fluxen.bench.data import START_US, Ints, StreamSpec, hex_strings, write_tables
from fluxen.bench.replan import spark_hash
from fluxen.bench.runner import Measured
from fluxen.bench.workloads import Workload
from fluxen.state.routing import base_group

__all__ = ["ASKED", "FILLING", "MOVE", "PARTITIONS", "Filled", "cost", "run"]

PARTITIONS = 4
FILLING = 4
"""Batches that fill the state; they are not measured."""
ASKED = FILLING + 6
"""The batch after which the group is to move."""
_SETTLED = FILLING + 2
"""The first batch that counts: the one after the filling reads what was filled for the first time."""
_AFTER = 3
"""Batches after the switch that still count as part of the migration."""
_KEPT = (0.625, 0.125, 0.125, 0.125)
"""Share of the state in each group; the first two begin at one site, the others at the other."""
_PROBED = (0.2, 0.4, 0.2, 0.2)
"""Share of a batch's rows: the busier site has three fifths of them before the move and after it."""
_CLUSTER = "local-cluster[2,1,1024]"
_SECOND = 1_000_000
_COLUMNS = (
    Column(name="key", kind="int"),
    Column(name="a_value", kind="float"),
    Column(name="a_text", kind="text"),
    Column(name="b_value", kind="float"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled(Workload):
    """Some batches of rows that stay in the state, most of them in group 0, then small batches that probe it."""

    text: int
    """characters of a row's payload"""

    def write(self, directory: Path) -> None:
        kept, probing = self.streams
        keys = self._keys(kept)
        write_tables(self._kept(kept, keys), directory / kept.name)
        write_tables(self._probing(probing, keys), directory / probing.name)

    def _keys(self, spec: StreamSpec) -> Ints:
        """One key per row, so many of each group."""
        every = np.arange(8 * spec.rows, dtype=np.int64)
        group = base_group(spark_hash(every), PARTITIONS)
        chosen = [every[group == number][: round(share * spec.rows)] for number, share in enumerate(_KEPT)]
        return np.random.default_rng(spec.seed).permutation(np.concatenate(chosen))

    def _kept(self, spec: StreamSpec, keys: Ints) -> Iterator[pa.Table]:
        parts = np.array_split(keys, FILLING)
        for batch in range(self.batches):
            rng = np.random.default_rng([spec.seed, batch])
            yield _table(parts[batch] if batch < FILLING else keys[:0], batch, rng, self.text)

    def _probing(self, spec: StreamSpec, keys: Ints) -> Iterator[pa.Table]:
        group = base_group(spark_hash(keys), PARTITIONS)
        each = spec.rows // (self.batches - FILLING)
        for batch in range(self.batches):
            rng = np.random.default_rng([spec.seed, batch])
            asked = [rng.choice(keys[group == number], round(share * each)) for number, share in enumerate(_PROBED)]
            yield _table(np.concatenate(asked) if batch >= FILLING else keys[:0], batch, rng, text=8)


def _table(keys: Ints, batch: int, rng: np.random.Generator, text: int) -> pa.Table:
    times = START_US + batch * _SECOND + np.arange(len(keys))
    return pa.table(
        {
            "key": pa.array(keys),
            "ts": pa.array(times, type=pa.timestamp("us", tz="UTC")),
            "value": pa.array(rng.integers(0, 1 << 20, len(keys), dtype=np.int64) / 64.0),
            "text": hex_strings(rng, len(keys), text),
        }
    )


def _spec(name: str, rows: int, seed: int) -> StreamSpec:
    return StreamSpec(name=name, rows=rows, keys=rows, skew=0.0, span_us=_SECOND, text=True, seed=seed)


# rows of about 1 KB, 160,000 of them, 100,000 in group 0
MOVE = Filled(
    name="move",
    streams=(_spec("a", 160_000, 91), _spec("b", 36 * 1_200, 92)),
    batches=FILLING + 36,
    text=1_000,
)


def run(context: Context) -> dict[str, Any]:
    prepared = context.prepare(MOVE)
    a, b = (f"read_parquet('{prepared.data / name}/*.parquet')" for name in "ab")
    columns = "key, a.value AS a_value, a.text AS a_text, b.value AS b_value"
    context.oracle("matches", f"SELECT {columns} FROM {a} a JOIN {b} b USING (key)")
    parts = [_part(context, prepared, name) for name in ("ahead", "at-once", "shared")]
    ahead, at_once, shared = ({name: part[name] for name in _FIELDS} for part in parts)
    return report.whole(
        "move",
        context.options,
        parts,
        **ahead,
        at_once=at_once,
        shared=shared,
    )


_FIELDS = ("median", "slowest", "ratio", "added_of_median", "bytes", "move_seconds", "move_batches")


def _part(context: Context, prepared: Prepared, name: str) -> dict[str, Any]:
    job = replace(context.job(prepared, f"fluxen-move-{name}"), master=_CLUSTER, sink="parquet")
    measured = context.measure(prepared, job)
    compared = context.verify(measured, prepared, "matches", _COLUMNS, exact=True)
    found = report.part(name, prepared.workload.rows, measured, compared, []) | cost(measured)
    if found["ratio"] is not None:
        context.say(f"  slowest batch of the move {found['slowest']} s, {found['ratio']} times the median")
    seconds = [round(batch.seconds, 3) for batch in measured.batches]
    return found | {"seconds_of_batches": seconds, "sites": measured.outcome.state.get("sites", [])}


def cost(measured: Measured) -> dict[str, Any]:
    """The batches of the migration beside the median of all measured ones; None where no move was carried out."""
    seconds = {batch.number: batch.seconds for batch in measured.batches if batch.number >= _SETTLED}
    moves = measured.outcome.state.get("moves", [])
    if not moves or not seconds:
        return dict.fromkeys(_FIELDS)
    (move,) = moves
    switched = move["batch"]
    middle = median(seconds.values())
    slowest = max(value for number, value in seconds.items() if ASKED < number <= switched + _AFTER)
    return {
        "median": round(middle, 3),
        "slowest": round(slowest, 3),
        "ratio": round(slowest / middle, 3),
        "added_of_median": round((slowest - middle) / middle, 3),
        "bytes": move["bytes"],
        "move_seconds": round(move["seconds"], 3),
        "move_batches": switched - ASKED,
    }
