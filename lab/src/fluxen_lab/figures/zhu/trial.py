"""One run of the paper's query on Spark under one setting, and what it did on the emulated clock."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fluxen.arrays import Ints, Json
from fluxen.control.plans.optimizer import Optimizer
from fluxen.control.plans.replanning import MoveProtocol
from fluxen.policies.static import Static
from fluxen.state.routing import Routing
from fluxen_lab.datagen.zhu import PARTITIONS, Workload, at_sites
from fluxen_lab.emulate.served import COSTS, Done, Served, clock
from fluxen_lab.emulate.wrapped import wrapped
from fluxen_lab.figures.figure import RunOptions
from fluxen_lab.figures.zhu.policy import MostToLeast

__all__ = ["SERVED", "UNCOUNTED", "Setting", "Trial", "mutated", "play", "play_all"]

SERVED = "the service time of sites, by waiting a 500th of it and adding it up on a clock of its own"
"""What stands for something else in these figures."""
UNCOUNTED = "the results of one batch are not counted"
"""A mutation: what an adaptation that loses results would look like."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One curve of a figure. `balance` None never moves a group, `replan` False keeps the first tree."""

    name: str
    workload: Workload
    window: float
    service: float
    keys: int
    """keys per site: fewer keys join more"""
    sites: int = 4
    balance: MoveProtocol | None = None
    balance_from: float = 30.0
    moves: int = 100
    replan: bool = False
    replan_sites: tuple[int, ...] | None = None
    """the sites that may re-plan, None for all"""
    inverted: bool = False
    """whether load moves to the site that has the most"""
    uncounted: bool = False
    """whether the results of the batch that has most are left out"""


class _Only(Optimizer):
    """An optimizer that some sites do not have."""

    sites: tuple[int, ...] | None = None

    def suggest(self, site: int, tree: str, now: float) -> Any:
        return super().suggest(site, tree, now) if self.sites is None or site in self.sites else None


@dataclass(frozen=True, kw_only=True)
class Trial:
    setting: Setting
    done: list[Done]
    events: list[Json]

    @property
    def results(self) -> int:
        results = [batch.results for batch in self.done]
        return sum(results) - (max(results) if self.setting.uncounted else 0)

    def output(self, second: float) -> float:
        """Results by then, a batch under way counting by the share of its service that has passed."""
        total, before = 0.0, 0.0
        for batch in self.done:
            start = max(before, batch.arrived)
            if second <= start:
                break
            total += batch.results * min(1.0, (second - start) / max(batch.finished - start, 1e-9))
            before = batch.finished
        return total

    def tuples(self, second: float) -> int:
        """State rows, and rows that have arrived and wait."""
        finished = [batch for batch in self.done if batch.finished <= second]
        waiting = sum(batch.rows for batch in self.done if batch.arrived <= second < batch.finished)
        return waiting + (finished[-1].state_rows if finished else 0)

    def moves(self) -> list[Json]:
        return [event for event in self.events if event["kind"] == "move" and event["outcome"] == "done"]

    def lengths(self) -> list[float]:
        """Seconds from the first to the last step of each move, in event time."""
        return [event["duration"] for event in self.moves()]


def play_all(settings: Sequence[Setting], options: RunOptions, *, at_once: int = 1) -> dict[str, Trial]:
    """All settings on one Spark, a few at a time: most of their time is waiting."""
    from fluxen.spark.session import session

    spark = session("fluxen-zhu", master="local[4]", spark__ui__enabled="false")
    spark.sparkContext.setLogLevel("ERROR")

    def one(setting: Setting) -> Trial:
        trial = play(spark, setting)
        options.progress(f"{setting.name}: {len(trial.done)} batches, {len(trial.moves())} moves")
        return trial

    with ThreadPoolExecutor(at_once) as pool:
        trials = list(pool.map(one, settings))
    return {trial.setting.name: trial for trial in trials}


def play(spark: Any, setting: Setting) -> Trial:
    """Run the query over all rows, one micro-batch per step."""
    from fluxen.testing.streams import feeds

    tables = setting.workload.tables(at_sites(_sites_of(spark, setting.sites), setting.sites, setting.keys))
    with tempfile.TemporaryDirectory(prefix="fluxen-zhu-") as directory:
        streams = feeds(spark, tables, Path(directory) / "input")
        query = _query(streams, setting)
        writer = query.writeStream.foreachBatch(
            lambda results, _: results.write.format("noop").mode("overwrite").save()
        )
        run = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
        run.awaitTermination()
        epochs, events = run.epochs, run.events
    batches = [
        {
            "rows_in": epoch["rows_in"],
            "results": epoch["results"],
            "state_rows": epoch["state_rows"],
            "sites": epoch["stages"][0]["sites"],
        }
        for epoch in epochs
        if epoch["batch"] is not None
    ]
    done = clock(batches, _fetched(events), setting.service, setting.workload.step)
    return Trial(setting=setting, done=done, events=events)


def _query(streams: dict[str, Any], setting: Setting) -> Any:
    from fluxen.spark.words import join

    span = f"{int(setting.window * 1e6)} microseconds"
    # the paper's joins are binary, each with its own window: A with B, and B with C
    between = {("b", "a"): (f"-{span}", span), ("c", "b"): (f"-{span}", span)}
    query = join(streams, on="k", time="ts", between=between, plan="tree")
    optimizer = _Only(costs=COSTS, cooldown=5.0)
    optimizer.sites = setting.replan_sites if setting.replan else ()
    policy = Static() if setting.balance is None else _balancing(setting)
    return wrapped(query, lambda inner: Served(operator=inner, service=setting.service)).adapt(
        sites=setting.sites,
        partitions=PARTITIONS,
        policy=policy,
        clock="event",
        move_protocol=setting.balance or "auto",
        replan=optimizer,
    )


def _balancing(setting: Setting) -> MostToLeast:
    return MostToLeast(start=setting.balance_from, moves=setting.moves, inverted=setting.inverted)


def mutated(settings: Sequence[Setting], options: RunOptions) -> list[Setting]:
    """The settings with what a mutation changes of them, by name; "" stands for all that adapt."""
    changes = options.params.get("settings", {})
    found = []
    for setting in settings:
        adapts = setting.balance is not None or setting.replan
        change = {**(changes.get("", {}) if adapts else {}), **changes.get(setting.name, {})}
        found.append(replace(setting, **change))
    return found


def _fetched(events: list[Json]) -> dict[tuple[int, int], float]:
    """(batch, site) -> rows of groups that came with their state."""
    fetched: dict[tuple[int, int], float] = {}
    for event in events:
        detail = event["detail"]
        if event["kind"] == "mslb" and detail["message"] == "SendPartitions":
            at = (event["epoch"] + 1, detail["receiver"])
            fetched[at] = fetched.get(at, 0.0) + detail["rows"]
    return fetched


def _sites_of(spark: Any, sites: int) -> Any:
    """Key -> site by the engine's own hash."""
    from fluxen.spark.plan.layout import key_hashes

    routing = Routing.even(partitions=PARTITIONS, sites=sites)

    def where(keys: Ints) -> Ints:
        frame = spark.range(int(keys[0]), int(keys[-1]) + 1, 1, 1)
        hashed = frame.select(*key_hashes(frame, ["id"], nulls=False)).toArrow().column(0).to_numpy()
        return np.asarray(routing.sites_of(routing.groups(hashed)), dtype=np.int64)

    return where
