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
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import draw, steady
from fluxen_lab.figures.flux.on_spark import SITES, Measured, stage

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
        short = [int(SHORT * need) if site == SITE else size for site, size in enumerate(enough)]
        settings |= {
            "memory_per_site": enough,
            "changed": (START, {"memory_per_site": short}),
            # a quarter of the memory, which a batch may swap, in about the time its rows take
            "seconds_per_byte": ample.busy[-1] / (short[SITE] / 4),
        }
        static = spark.run("static", batches[: 2 * count // 3], Static(), Filled(), **settings)
        moved = spark.run("memory policy", batches, FluxMemory(groups_per_move=1, guarded=False), Filled(), **settings)
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


def claims(rows: list[Row]) -> list[Claim]:
    unloaded = rows[0]["unloaded"]
    before = [row[name] for row in rows if row["batch"] < START for name in ("static", "memory")]
    pressed = [row for row in rows if row["static"] is not None]
    static = steady(pressed, "static", _SETTLED) / unloaded
    memory = steady(rows, "memory", _SETTLED) / unloaded
    latency = {
        name: round(steady(found, f"{name}_latency_s", _SETTLED) / rows[0]["unloaded_latency_s"], 2)
        for name, found in (("static", pressed), ("memory", rows))
    }
    return [
        Claim(
            claim="with memory for its state every site works at the unloaded rate",
            holds=min(before) >= 0.85 * unloaded,
            measured=round(min(before) / unloaded, 3),
            paper="the unloaded rate until memory is taken away",
        ),
        Claim(claim="static stays slow", holds=static <= 0.75, measured=round(static, 3), paper="a much reduced rate"),
        Claim(
            claim="the memory policy recovers the unloaded throughput",
            holds=memory >= 0.85,
            measured={"of_unloaded": round(memory, 3), "groups_moved": rows[-1]["offloaded"]},
            paper="reaches the unloaded case",
        ),
        Claim(
            claim="rows wait for groups on disk under static; with the memory policy none does in the end",
            holds=pressed[-1]["static_waiting"] > 0 and rows[-1]["memory_waiting"] == 0,
            measured={"latency_of_unloaded": latency, "static_waiting": pressed[-1]["static_waiting"]},
            paper="latency up by orders of magnitude, and back to the in-memory latency",
        ),
        Claim(
            claim="every row has its result, spooled or not",
            holds=rows[0]["missing"] == 0,
            measured=rows[0]["missing"],
            paper="no row is lost",
        ),
    ]


FIGURE = Figure(
    name="flux/9-spark", title="Throughput during memory balancing, on Spark", run=run, plot=plot, claims=claims
)
