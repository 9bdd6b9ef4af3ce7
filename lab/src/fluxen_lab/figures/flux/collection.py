"""Flux Figure 8: the minimum collection time under an 80/20 workload, set by hand and self-tuned (section 5.4)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fluxen.policies import FluxLoad, Static
from fluxen.policies.base import Policy
from fluxen.sim.load import PERTURBED, CpuLoad
from fluxen.sim.simulator import Scenario
from fluxen_lab.figures.claim import Claim, Numbers, above, at_least, below, between
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import CLUSTER, NO_LOAD, PAPER, draw, simulate

__all__ = ["FIGURE"]

TIMES = (0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
LOADED = 8


def run(options: RunOptions) -> list[Row]:
    rows: list[Row] = []
    for setting in ("static", *options.params.get("times", TIMES), "auto"):
        row: Row = {"setting": str(setting), "min_collection": None if isinstance(setting, str) else setting}
        for name in ("unloaded", "loaded"):
            scenario = _scenario(options, loaded=name == "loaded")
            label = f"{setting}, {name}, seed {options.seed}"
            row[name] = simulate(options, label, scenario, _policy(options, setting)).mean
        rows.append(row)
    return rows


def _policy(options: RunOptions, setting: Any) -> Policy:
    if setting == "static":
        return Static()
    collection = options.params.get("collection", {}).get(setting, setting)
    return options.policy("balanced", FluxLoad(min_collection=collection, **PAPER))


def _scenario(options: RunOptions, *, loaded: bool) -> Scenario:
    """80/20 keys; if loaded, eight sites are perturbed, the one with the most popular group among them."""
    seconds, left = (float(options.params.get(*name)) for name in (("seconds", 60.0), ("left", PERTURBED)))
    scenario = Scenario(keys="self-similar", seconds=seconds, step=8e-3, report=0.016, seed=options.seed)
    if not loaded:
        return scenario
    shares = np.bincount(scenario.placement(), weights=scenario.shares())
    hot = int(shares.argmax())
    others = np.random.default_rng([options.seed, 8]).permutation(np.delete(np.arange(32), hot))[: LOADED - 1]
    return replace(scenario, loads=(CpuLoad(sites=(hot, *(int(site) for site in others)), share=left),))


def plot(rows: list[Row], path: Path) -> None:
    flat = {row["setting"]: row for row in rows}
    points: list[Row] = [
        {
            **row,
            "static": flat["static"]["unloaded"],
            "static_loaded": flat["static"]["loaded"],
            "auto": flat["auto"]["unloaded"],
            "auto_loaded": flat["auto"]["loaded"],
        }
        for row in rows
        if row["min_collection"] is not None
    ]
    draw(
        points,
        path,
        x="min_collection",
        lines={
            "unloaded": "balanced",
            "loaded": f"balanced, {LOADED} sites loaded",
            "auto": "self-tuned",
            "auto_loaded": f"self-tuned, {LOADED} sites loaded",
            "static": "static",
            "static_loaded": f"static, {LOADED} sites loaded",
        },
        title="Minimum collection time under an 80/20 workload",
        xlabel="minimum collection time (s)",
        ylabel="tuples/s, mean of the run",
        log=("x",),
    )


def numbers(rows: list[Row]) -> Numbers:
    flat = {row["setting"]: row for row in rows}
    sweep = [row for row in rows if row["min_collection"] is not None]
    static = flat["static"]["unloaded"]
    needed = {name: _first_above(sweep, name, static) for name in ("unloaded", "loaded")}
    both = needed["unloaded"], needed["loaded"]
    found: dict[str, float | None] = {
        "shortest_of_static": sweep[0]["unloaded"] / static,
        "best_of_static": max(row["unloaded"] for row in sweep) / static,
        "needed_s": both[0],
        "needed_loaded_s": both[1],
        "needed_loaded_over_unloaded": None if None in both else both[1] / both[0],  # type: ignore[operator]
    }
    for name in ("unloaded", "loaded"):
        found[f"tuned_{name}_of_best"] = flat["auto"][name] / max(row[name] for row in sweep)
        found[f"tuned_{name}_of_static"] = flat["auto"][name] / flat["static"][name]
    return found


def _first_above(sweep: list[Row], column: str, level: float) -> float | None:
    """The shortest collection time with a throughput above the level."""
    return next((float(row["min_collection"]) for row in sweep if row[column] > level), None)


STATIC = "load balancing replaced by Static"
SHORT = "the self-tuned time is the shortest"
LONG = "every time is the longest"
FIGURE = Figure(
    name="flux/8",
    title="Varying the minimum collection time",
    run=run,
    plot=plot,
    by=("setting",),
    numbers=numbers,
    claims=(
        Claim(
            claim="too short a minimum collection time makes the policy thrash, far below static",
            paper="about half of static",
            bands={"shortest_of_static": between(0.25, 0.75)},
            mutation=LONG,
        ),
        Claim(
            claim="a longer one beats static",
            paper="outperforms static",
            bands={"best_of_static": above(1)},
            mutation=STATIC,
        ),
        Claim(
            claim="the perturbed case beats unperturbed static at a shorter collection time",
            paper="a smaller one is needed",
            bands={"needed_loaded_over_unloaded": below(1)},
            shown=("needed_s", "needed_loaded_s"),
            mutation=NO_LOAD,
        ),
        Claim(
            claim="tuning itself, the policy beats static in both cases and has no cliff",
            paper="future work",
            bands={
                "tuned_unloaded_of_best": at_least(0.85),
                "tuned_loaded_of_best": at_least(0.85),
                "tuned_unloaded_of_static": above(1),
                "tuned_loaded_of_static": above(1),
            },
            mutation=SHORT,
        ),
    ),
    mutations={
        LONG: {"collection": dict.fromkeys(TIMES, TIMES[-1])},
        STATIC: {"policies": {"balanced": Static}},
        NO_LOAD: {"left": 1.0},
        SHORT: {"collection": {"auto": TIMES[0]}},
    },
    seeds=5,
    place="simulator",
    emulated=CLUSTER,
)
