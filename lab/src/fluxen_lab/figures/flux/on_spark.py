"""What the Flux figures on real Spark share: eight sites on however few cores there are, service time by waiting.

The query is the paper's windowed group-by (`fluxen.aggregate` with `last=`); `fluxen_lab.emulate.paced` makes its rows
take their time. A batch's rate is its rows over the time its slowest site was busy: the paper's system has no
micro-batches, so their fixed cost is left out of the claims. The rate of whole batches, fixed cost included, is in the
data as well."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fluxen.policies import Static
from fluxen.policies.base import Policy
from fluxen_lab.datagen.flux import uniform
from fluxen_lab.emulate.paced import Load, paced
from fluxen_lab.figures.figure import RunOptions

__all__ = ["GROUPS_PER_SITE", "SITES", "UNCOUNTED", "WAITING", "Measured", "Stage", "stage"]

SITES = 8
GROUPS_PER_SITE = 32
WAITING = "the time rows take at a site, and how much longer at a slow one, by waiting"
"""What stands for something else in these figures."""
UNCOUNTED = "the results of one batch are not counted"
"""A mutation: what a query that loses rows would look like."""
_SECONDS_PER_ROW = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run, batch by batch."""

    rows: tuple[int, ...]
    busy: tuple[float, ...]
    """seconds the slowest site was busy"""
    seconds: tuple[float, ...]
    """of the whole batch, as Spark reports it"""
    moves: tuple[tuple[int, int, int, int], ...]
    """(batch after which, groups, donor, receiver)"""
    sites: tuple[tuple[dict[str, Any], ...], ...]
    """what each site reported"""
    latency: tuple[float, ...]
    """mean seconds from the arrival of a row to its results"""
    batches: int
    results: int

    @property
    def rates(self) -> list[float]:
        return [rows / busy for rows, busy in zip(self.rows, self.busy)]

    @property
    def whole_rates(self) -> list[float]:
        return [rows / seconds for rows, seconds in zip(self.rows, self.seconds)]

    def offloaded(self, site: int) -> list[int]:
        """Per batch: groups the site has given away before it, minus those it was given."""
        net = np.zeros(len(self.rows), dtype=np.int64)
        for batch, groups, donor, receiver in self.moves:
            net[batch + 1 :] += groups * (int(donor == site) - int(receiver == site))
        return [int(n) for n in net]


class Stage:
    """A Spark session on which one stage runs again and again."""

    def __init__(self, spark: Any, options: RunOptions, directory: Path) -> None:
        self.spark, self.options, self.directory = spark, options, directory
        self._runs = 0

    def run(
        self,
        label: str,
        batches: list[pa.Table],
        policy: Policy,
        load: Load | None = None,
        seconds_per_row: float = _SECONDS_PER_ROW,
        seconds_per_byte: float = 0.0,
        changed: tuple[int, dict[str, Any]] | None = None,
        **adapt: Any,
    ) -> Measured:
        """Feed the batches through the windowed group-by and note what happened.

        From the batch `changed` names on the query runs with the settings it gives: it is stopped and started again.
        """
        import fluxen as fx
        from fluxen.testing import feed

        self.options.progress(f"running {label}")
        self._runs += 1
        place = self.directory / str(self._runs)
        settings = {"sites": SITES, "partitions": SITES * GROUPS_PER_SITE, "policy": policy, **adapt}
        epochs: list[dict[str, Any]] = []
        progress: dict[int, float] = {}
        results: list[int] = []
        for fed, more in ((len(batches), {}),) if changed is None else ((changed[0], {}), (len(batches), changed[1])):
            rows = feed(self.spark, batches[:fed], place / "input")
            averages = fx.aggregate(rows, by="key", time="ts", mean=fx.avg("value"), last=10)
            query = paced(averages, seconds_per_row, load, seconds_per_byte).adapt(**{**settings, **more})
            writer = query.writeStream.foreachBatch(lambda df, epoch: results.append(df.count()))
            writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
            run = writer.start()
            run.awaitTermination()
            for entry in run.recentProgress:
                progress[entry["batchId"]] = entry["durationMs"]["triggerExecution"] / 1e3
            epochs += run.epochs
        sites = [tuple(epoch["stages"][0]["sites"]) for epoch in epochs]
        return Measured(
            rows=tuple(epoch["rows_in"] for epoch in epochs),
            busy=tuple(max(site["busy_seconds"] for site in each) for each in sites),
            seconds=tuple(progress.get(epoch["batch"], sum(epoch["seconds"].values())) for epoch in epochs),
            moves=tuple(
                (event["epoch"], len(event["detail"]["pgs"]), event["detail"]["donor"], event["detail"]["receiver"])
                for event in run.events
                if event["kind"] == "move" and event["outcome"] == "done"
            ),
            sites=tuple(sites),
            latency=tuple(epoch["latency_seconds"] or 0.0 for epoch in epochs),
            batches=len(batches),
            results=sum(results[self.options.params.get("uncounted", 0) :]),
        )


@contextmanager
def stage(options: RunOptions) -> Iterator[Stage]:
    """A session with a core for every site: they wait most of the time."""
    from fluxen.spark.cli_session import quiet_session

    options.progress("starting Spark")
    with tempfile.TemporaryDirectory(prefix="fluxen-figure-") as directory:
        place = Path(directory)
        with quiet_session(
            place / "spark.log", app="fluxen-figure", master=f"local[{SITES}]", spark__sql__shuffle__partitions=2
        ) as spark:
            ready = Stage(spark, options, place)
            # the first batches of a JVM are slow whatever they do
            ready.run("a rehearsal", uniform(3, 800, options.seed), Static(), seconds_per_row=0.0)
            yield ready
