"""`fluxen bench aggregate`: last-ten averages and tumbling windows against Spark's own.

The queries are in spark/ours.py (fluxen), spark/last10.py and spark/native.py (Spark) and oracle.py (DuckDB).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fluxen_lab.benchmarks import oracle, report
from fluxen_lab.benchmarks.context import Context, Prepared
from fluxen_lab.benchmarks.job import Settings
from fluxen_lab.benchmarks.runner import WARM_UP_BATCHES
from fluxen_lab.benchmarks.settings import LIMIT_S, best_settings
from fluxen_lab.datagen.streams import write_warm_variant
from fluxen_lab.datagen.workloads import AGGREGATE

__all__ = ["run"]

_LAST10_LIMIT_S = 60.0
_LAST10_GRACE_S = 30.0
# the fastest provider for each; transformWithState runs on RocksDB only
_LAST10_BASELINES = {
    "transformWithState": Settings(provider="rocksdb"),
    "transformWithStateInPandas": Settings(provider="rocksdb"),
    "applyInPandasWithState": Settings(provider="hdfs"),
}


def run(context: Context) -> dict[str, Any]:
    prepared = context.prepare(AGGREGATE)
    tumbling, trials = _tumbling(context, prepared)
    last10 = _last10(context, prepared)
    return report.whole("aggregate", context.options, [last10, tumbling], settings_tried={"tumbling": trials})


def _last10(context: Context, prepared: Prepared) -> dict[str, Any]:
    columns = oracle.COLUMNS["last10"]
    warm = Prepared(workload=prepared.workload, data=context.work / "data" / "aggregate-warm")
    write_warm_variant(prepared.data / "rows", warm.data / "rows", WARM_UP_BATCHES)
    natives = []
    for query, settings in _LAST10_BASELINES.items():
        job = replace(context.job(warm, query), settings=settings, limit_s=_LAST10_LIMIT_S, grace_s=_LAST10_GRACE_S)
        natives.append(context.measure(warm, job, extra_batches=WARM_UP_BATCHES))
    ours = context.measure(prepared, context.job(prepared, "fluxen-last10"))
    context.oracle("last10", oracle.last10_sql(prepared.data))
    compared = context.verify(ours, prepared, "last10", oracle.our_columns("last10"), exact=False)
    # with the warm-up rows, for the runs that had them
    context.oracle("last10_warm", oracle.last10_sql(warm.data))
    checked = [(native, context.verify(native, warm, "last10_warm", columns, exact=False)) for native in natives]
    return report.part("last10", prepared.workload.rows, ours, compared, checked)


def _tumbling(context: Context, prepared: Prepared) -> tuple[dict[str, Any], list[dict[str, object]]]:
    columns = oracle.COLUMNS["tumbling"]
    settings, trials = best_settings(context, prepared, "tumbling", "native-tumbling")
    job = replace(context.job(prepared, "native-tumbling"), settings=settings, limit_s=LIMIT_S)
    natives = context.natives(prepared, job)
    ours = context.measure(prepared, context.rehearsed(prepared, context.job(prepared, "fluxen-tumbling")))
    context.oracle("tumbling", oracle.tumbling_sql(prepared.data))
    compared = context.verify(ours, prepared, "tumbling", oracle.our_columns("tumbling"), exact=False)
    checked = [(native, context.verify(native, prepared, "tumbling", columns, exact=False)) for native in natives]
    found = report.part("tumbling", prepared.workload.rows, ours, compared, checked)
    return found, [trial.as_json() for trial in trials]
