"""Flux Figure 8: the minimum collection time under an 80/20 workload, set by hand and self-tuned (section 5.4)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fluxen.policies import FluxLoad, Static
from fluxen.policies.base import Policy
from fluxen.sim.load import CpuLoad
from fluxen.sim.simulator import Scenario
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.flux.common import PAPER, draw, simulate

__all__ = ["FIGURE"]

TIMES = (0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
LOADED = 8


def run(options: RunOptions) -> list[Row]:
    times = options.params.get("times", TIMES)
    seeds = [options.seed + i for i in range(options.runs)]
    seconds = float(options.params.get("seconds", 60.0))
    rows: list[Row] = []
    for setting in ("static", *times, "auto"):
        row: Row = {"setting": str(setting), "min_collection": None if isinstance(setting, str) else setting}
        for loaded in (False, True):
            means = [_mean(options, setting, _scenario(seed, loaded, seconds)) for seed in seeds]
            row["loaded" if loaded else "unloaded"] = float(np.mean(means))
        rows.append(row)
    return rows


def _mean(options: RunOptions, setting: Any, scenario: Scenario) -> float:
    policy: Policy = Static() if setting == "static" else FluxLoad(min_collection=setting, **PAPER)
    where = f"{len(scenario.loads) * LOADED} sites loaded, seed {scenario.seed}"
    return simulate(options, f"{setting}, {where}", scenario, policy).mean


def _scenario(seed: int, loaded: bool, seconds: float) -> Scenario:
    """80/20 keys; if loaded, eight sites are perturbed, the one with the most popular group among them."""
    scenario = Scenario(keys="self-similar", seconds=seconds, step=8e-3, report=0.016, seed=seed)
    if not loaded:
        return scenario
    shares = np.bincount(scenario.placement(), weights=scenario.shares())
    hot = int(shares.argmax())
    others = np.random.default_rng([seed, 8]).permutation(np.delete(np.arange(32), hot))[: LOADED - 1]
    return replace(scenario, loads=(CpuLoad(sites=(hot, *(int(site) for site in others))),))


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


def claims(rows: list[Row]) -> list[Claim]:
    flat = {row["setting"]: row for row in rows}
    sweep = [row for row in rows if row["min_collection"] is not None]
    static = flat["static"]["unloaded"]
    worst = sweep[0]["unloaded"] / static
    best = max(row["unloaded"] for row in sweep) / static
    needed = {name: _first_above(sweep, name, static) for name in ("unloaded", "loaded")}
    tuned = {name: flat["auto"][name] / max(row[name] for row in sweep) for name in ("unloaded", "loaded")}
    over_static = {name: flat["auto"][name] / flat["static"][name] for name in ("unloaded", "loaded")}
    return [
        Claim(
            claim="too short a minimum collection time makes the policy thrash, far below static",
            holds=worst <= 0.75,
            measured=round(worst, 3),
            paper="about half of static",
        ),
        Claim(claim="a longer one beats static", holds=best > 1.0, measured=round(best, 3), paper="outperforms static"),
        Claim(
            claim="the perturbed case beats unperturbed static at a shorter collection time",
            holds=needed["loaded"] < needed["unloaded"] < np.inf,
            measured=needed,
            paper="a smaller one is needed",
        ),
        Claim(
            claim="tuning itself, the policy beats static in both cases and has no cliff",
            holds=min(tuned.values()) >= 0.85 and min(over_static.values()) > 1.0,
            measured={
                "of_best_setting": {k: round(v, 3) for k, v in tuned.items()},
                "of_static": {k: round(v, 3) for k, v in over_static.items()},
            },
            paper="future work",
        ),
    ]


def _first_above(sweep: list[Row], column: str, level: float) -> float:
    """The shortest collection time with a throughput above the level."""
    return next((float(row["min_collection"]) for row in sweep if row[column] > level), float("inf"))


FIGURE = Figure(name="flux/8", title="Varying the minimum collection time", run=run, plot=plot, claims=claims)
