"""A stage over static DataFrames: the same operator, all rows at once, nothing kept."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fluxen.arrays import MAX_TIME, MIN_TIME
from fluxen.operators.base import Operator, SiteInput, SiteOutput
from fluxen.site.wire import IN, Wire, decode, rechunk
from fluxen.spark.plan.base import StagePlan
from fluxen.spark.route import marked_site_expression, marking
from fluxen.state.routing import MAX_PARTITIONS, Routing
from fluxen.state.sorted_run import memory_run


@dataclass(frozen=True, slots=True)
class StaticTask:
    """The function mapInArrow runs: one site's rows in, all their results out."""

    operator: Operator
    wire: Wire
    routing: Routing

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        site, inputs = decode(self.wire, batches)
        if site is None:  # there is not one row
            return
        watermarks = (MIN_TIME,) * self.operator.inputs
        given = SiteInput(
            inputs=inputs,
            runs=[[] for _ in range(self.operator.sides)],
            watermarks=watermarks,
            emitted=watermarks,
            late_before=watermarks,
            routing=self.routing,
        )
        output = yield from self._results(given)
        if self.operator.flushes:  # all rows are there: what waits for others need not
            none = np.zeros(0, dtype=np.int64)
            runs = [[] if table is None else [memory_run(table, self.routing)] for table in output.state]
            ended = (MAX_TIME,) * self.operator.inputs
            yield from self._results(
                replace(given, inputs=[rows.take(none) for rows in inputs], runs=runs, watermarks=ended)
            )

    def _results(self, given: SiteInput) -> Generator[pa.RecordBatch, None, SiteOutput]:
        results = self.operator.process(given)
        while True:
            try:
                yield from rechunk(next(results))
            except StopIteration as end:
                output: SiteOutput = end.value
                return output


def run_static(inputs: Sequence[DataFrame], plan: StagePlan) -> DataFrame:
    """The stage over all rows of static inputs at once, without a checkpoint."""
    spark = inputs[0].sparkSession
    sites = min(int(spark.conf.get("spark.sql.shuffle.partitions", "200") or 200), MAX_PARTITIONS)
    routing = Routing.even(partitions=sites, sites=sites)
    rows = plan.prepare(plan.project(inputs), True)
    routed = rows.withColumn(IN, marking(sites)).repartition(sites, F.expr(marked_site_expression(routing)))
    return routed.mapInArrow(StaticTask(plan.stage.operator, plan.wire, routing), plan.schema)
