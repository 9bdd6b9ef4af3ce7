"""Flux Figure 9 on Spark: one of eight sites loses memory it needs for its state (section 6.2).

The simulated figure with the paper's parameters is in `fluxen_lab.figures.flux.memory`. Here a first batch fills the
state, and all sites have ample memory for it; some batches later one has memory for little more than half of its own.
Reading a group back from disk is emulated by waiting, as service time is, at a bandwidth at which a batch's swaps take
about as long as its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fluxen.policies import FluxMemory, Static
from fluxen_lab.datagen.flux import SECOND, filling, uniform
from fluxen_lab.figures.claim import Claim, Numbers, above, at_least, at_most, exactly
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import draw, steady
from fluxen_lab.figures.flux.on_spark import SITES, UNCOUNTED, WAITING, Measured, stage

__all__ = ["FIGURE"]

SITE = 0
GROUPS = 16
"""Partition groups per site."""
START = 4
"""The batch from which on a site lacks memory: the query is stopped before it and continued with the new limit."""
SHORT, AMPLE = 0.6, 1.75
"""Memory of the pressed site and of the others, in units of the state that the first batch leaves at a site."""
_SETTLED = 3
"""Batches at the end over which a level is taken."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The first batch, which fills the state, takes no time."""

    def factor(self, site: int, now: int) -> float:
        return 1.0 if now >= SECOND else 0.0


def run(options: RunOptions) -> list[Row]:
    count = int(options.params.get("batches", 16))
    keys = int(options.params.get("keys", 200_000))
    size = int(options.params.get("rows", 6_000))
    batches = [filling(keys), *uniform(count, size, options.seed, keys=keys)[1:]]
    settings: dict[str, Any] = {"partitions": SITES * GROUPS}
    with stage(options) as spark:
        ample = spark.run("ample memory", batches[:3], Static(), Filled(), **settings)
        need = max(site["state_bytes"] for site in ample.sites[0])
        enough = [int(AMPLE * need)] * SITES
        left = options.params.get("short", SHORT)
        short = [int(left * need) if site == SITE else size for site, size in enumerate(enough)]
        settings |= {
            "memory_per_site": enough,
            "changed": (options.params.get("start", START), {"memory_per_site": short}),
            # a quarter of the memory, which a batch may swap, in about the time its rows take
            "seconds_per_byte": ample.busy[-1] / (short[SITE] / 4),
        }
        static = spark.run("static", batches[: 2 * count // 3], Static(), Filled(), **settings)
        policy = options.policy("memory", FluxMemory(groups_per_move=1, guarded=False))
        moved = spark.run("memory policy", batches, policy, Filled(), **settings)
    given = moved.offloaded(SITE)
    fed = sum(table.num_rows for table in batches[: static.batches]) + sum(table.num_rows for table in batches)
    return [
        {
            "batch": i,
            "unloaded": float(np.mean(ample.rates[1:])),
            "unloaded_latency_s": float(np.mean(ample.latency[1:])),
            "static": static.rates[i] if i < static.batches else None,
            "memory": moved.rates[i],
            "static_latency_s": static.latency[i] if i < static.batches else None,
            "memory_latency_s": moved.latency[i],
            "static_waiting": _waiting(static, i) if i < static.batches else None,
            "memory_waiting": _waiting(moved, i),
            "offloaded": given[i],
            "missing": fed - static.results - moved.results,
        }
        for i in range(1, count)
    ]


def _waiting(measured: Measured, batch: int) -> int:
    return int(sum(site["waiting_rows"] for site in measured.sites[batch]))


plot = partial(
    draw,
    x="batch",
    lines={"unloaded": "ample memory", "memory": "memory policy", "static": "static"},
    title=f"One of {SITES} sites loses memory before batch {START}, on Spark",
    xlabel="batch",
    ylabel="rows/s",
)


def numbers(rows: list[Row]) -> Numbers:
    unloaded = rows[0]["unloaded"]
    before = [row[name] for row in rows if row["batch"] < START for name in ("static", "memory")]
    pressed = [row for row in rows if row["static"] is not None]
    latency = {"static": pressed, "memory": rows}
    return {
        "least_before": min(before) / unloaded,
        "static_of_unloaded": steady(pressed, "static", _SETTLED) / unloaded,
        "memory_of_unloaded": steady(rows, "memory", _SETTLED) / unloaded,
        "offloaded": rows[-1]["offloaded"],
        "static_waiting": pressed[-1]["static_waiting"],
        "memory_waiting": rows[-1]["memory_waiting"],
        **{
            f"{name}_latency": steady(found, f"{name}_latency_s", _SETTLED) / rows[0]["unloaded_latency_s"]
            for name, found in latency.items()
        },
        "missing": rows[0]["missing"],
    }


NOT_TAKEN = "no memory is taken away"
STATIC = "the memory policy replaced by Static"
EARLY = "memory is short from the second batch on"
FIGURE = Figure(
    name="flux/9-spark",
    title="Throughput during memory balancing, on Spark",
    run=run,
    plot=plot,
    by=("batch",),
    numbers=numbers,
    claims=(
        Claim(
            claim="with memory for its state every site works at the unloaded rate",
            paper="the unloaded rate until memory is taken away",
            bands={"least_before": at_least(0.85)},
            mutation=EARLY,
        ),
        Claim(
            claim="static stays slow",
            paper="a much reduced rate",
            bands={"static_of_unloaded": at_most(0.75)},
            mutation=NOT_TAKEN,
        ),
        Claim(
            claim="the memory policy recovers the unloaded throughput",
            paper="reaches the unloaded case",
            bands={"memory_of_unloaded": at_least(0.85)},
            shown=("offloaded",),
            mutation=STATIC,
        ),
        Claim(
            claim="rows wait for groups on disk under static; with the memory policy none does in the end",
            paper="latency up by orders of magnitude, and back to the in-memory latency",
            bands={"static_waiting": above(0), "memory_waiting": exactly(0)},
            shown=("static_latency", "memory_latency"),
            mutation=STATIC,
            each_seed=True,
        ),
        Claim(
            claim="every row has its result, spooled or not",
            paper="no row is lost",
            bands={"missing": exactly(0)},
            mutation=UNCOUNTED,
            each_seed=True,
        ),
    ),
    mutations={
        NOT_TAKEN: {"short": AMPLE},
        STATIC: {"policies": {"memory": Static}},
        EARLY: {"start": 1},
        UNCOUNTED: {"uncounted": 1},
    },
    seeds=3,
    place="Spark",
    emulated=f"{WAITING}; reading state back from disk likewise, at a bandwidth set to the time a batch's rows take",
)
