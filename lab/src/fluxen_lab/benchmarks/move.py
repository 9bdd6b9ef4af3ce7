"""`fluxen bench move`: what a move of a 100 MB group costs the batches around it.

Two executors, each with its own copies of a checkpoint that is read at a limited bandwidth
(`fluxen_lab.emulate.distant`). After some batches one group moves: with its state copied ahead, with everything fetched
at the switch, and for comparison on a disk that both executors share. The query is in spark/move.py, the rows
are made in datagen/filled.py.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from fluxen_lab.benchmarks import report
from fluxen_lab.benchmarks.compare import Column
from fluxen_lab.benchmarks.context import Context, Prepared
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.datagen.filled import FILLING, MOVE

__all__ = ["ASKED", "cost", "run"]

ASKED = FILLING + 6
"""The batch after which the group is to move."""
_SETTLED = FILLING + 2
"""The first batch that counts: the one after the filling reads what was filled for the first time."""
_AFTER = 3
"""Batches after the switch that still count as part of the migration."""
_CLUSTER = "local-cluster[2,1,1024]"
_COLUMNS = (
    Column(name="key", kind="int"),
    Column(name="a_value", kind="float"),
    Column(name="a_text", kind="text"),
    Column(name="b_value", kind="float"),
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
