"""A stage over static DataFrames: the same operator, all rows at once, nothing kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fluxen.operators.base import Operator, SiteBatch
from fluxen.operators.site import rechunk
from fluxen.operators.wire import IN, Wire, decode
from fluxen.spark.split import marked_site_expression, marking
from fluxen.spark.stages import StagePlan
from fluxen.state.routing import MAX_PARTITIONS, Routing
from fluxen.typing import MIN_TIME


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
        batch = SiteBatch(
            inputs=inputs,
            runs=[[] for _ in range(self.operator.sides)],
            watermarks=watermarks,
            emitted=watermarks,
            routing=self.routing,
            late=[0] * self.operator.inputs,
            rows_out=np.zeros(self.routing.size, dtype=np.int64),
        )
        for table in self.operator.process(batch):
            yield from rechunk(table)


def run_static(inputs: Sequence[DataFrame], plan: StagePlan) -> DataFrame:
    spark = inputs[0].sparkSession
    sites = min(int(spark.conf.get("spark.sql.shuffle.partitions", "200") or 200), MAX_PARTITIONS)
    routing = Routing.even(partitions=sites, sites=sites)
    rows = plan.prepare(plan.project(inputs), True)
    routed = rows.withColumn(IN, marking(sites)).repartition(sites, F.expr(marked_site_expression(routing)))
    return routed.mapInArrow(StaticTask(plan.stage.operator, plan.wire, routing), plan.schema)
