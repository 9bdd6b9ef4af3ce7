"""`fluxen bench skew`: two executors, one at half speed; what FluxLoad makes of it, beside doing nothing and the ideal.

The same rows under three policies (spark/skew.py): static keeps the even split, the ideal split is made after the first
batch by one who knows the speeds, FluxLoad has to find it. Rates are those of the batches after the tenth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fluxen_lab.benchmarks import oracle, report
from fluxen_lab.benchmarks.context import Context, Prepared
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.datagen.workloads import SKEW

__all__ = ["SETTLED", "run", "settled_rows_per_s"]

SETTLED = 10
"""Batches a policy has to settle; the rates are measured after them."""
_CLUSTER = "local-cluster[2,1,768]"
_NAMES = ("static", "flux", "ideal")


def run(context: Context) -> dict[str, Any]:
    prepared = context.prepare(SKEW)
    context.oracle("last10", oracle.last10_sql(prepared.data))
    runs = {name: _measure(context, prepared, name) for name in _NAMES}
    parts = []
    for name, measured in runs.items():
        compared = context.verify(measured, prepared, "last10", oracle.our_columns("last10"), exact=False)
        found = report.part(name, prepared.workload.rows, measured, compared, [])
        seconds = [round(batch.seconds, 3) for batch in measured.batches]
        parts.append(found | {"fluxen_rows_per_s": settled_rows_per_s(measured), "seconds_of_batches": seconds})
    rates = {name: settled_rows_per_s(measured) for name, measured in runs.items()}
    flux = next(part for part in parts if part["name"] == "flux")
    reached = rates["flux"] / rates["ideal"] if rates["flux"] and rates["ideal"] else None
    return report.whole(
        "skew",
        context.options,
        parts,
        **rates,
        fluxen_rows_per_s=rates["flux"],
        limiting_part="flux",
        batch_seconds=flux["batch_seconds"],
        flux_of_ideal=None if reached is None else round(reached, 3),
    )


def _measure(context: Context, prepared: Prepared, name: str) -> Measured:
    job = context.job(prepared, f"fluxen-skew-{name}")
    # results are few beside the time rows take: they are kept, and checked without another run
    return context.measure(prepared, replace(job, master=_CLUSTER, sink="parquet"))


def settled_rows_per_s(measured: Measured) -> int | None:
    """Rows over seconds of the batches after `SETTLED`; None for a run that ended before."""
    seconds = [batch.seconds for batch in measured.batches if batch.number >= SETTLED]
    return round(len(seconds) * measured.rows_per_batch / sum(seconds)) if seconds else None
