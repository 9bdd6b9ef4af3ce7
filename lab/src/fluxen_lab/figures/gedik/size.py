"""Figures 9 to 11: how many counters the sketch keeps and how many keys are mapped explicitly. Section 5.4.

The size of a lossy counter breathes: it grows within a window and falls at its end. Measured four times per window over
the last windows of the run's stream; reported are the mean and the maximum. Space-Saving with the same error is counted
beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fluxen.partitioning import Frequencies, Resources
from fluxen.partitioning.resources import heavy
from fluxen.sketches import LossyCounter, SpaceSaving
from fluxen_lab.datagen.gedik import stream
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.gedik.trial import Setting, mean, pick, values_of
from fluxen_lab.plotting import pyplot

__all__ = ["FIGURES"]

SIGMAS = (0.008, 0.0156, 0.031, 0.0625, 0.1, 0.25, 0.5, 1.0)
SITES = (2, 4, 8, 10, 16, 24, 32)
SKEWS = (0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_WINDOWS_WATCHED = 25
LOW_SKEWS = (0.25, 0.3, 0.35, 0.4, 0.45, 0.5)


def sizes(setting: Setting, run: int) -> Row:
    """Counters and explicit mappings for one setting."""
    rows = stream(setting.domain, setting.z, run)
    counter = LossyCounter(epsilon=0.1 * setting.delta)
    saving = SpaceSaving.of(epsilon=0.1 * setting.delta)
    held = []
    step = max(1, counter.window // 4)
    watched = max(0, len(rows) - _WINDOWS_WATCHED * counter.window)
    for batch in np.array_split(rows[:watched], 10):
        counter.update(batch)
    for start in range(watched, len(rows), step):
        counter.update(rows[start : start + step])
        held.append(len(counter))
    for batch in np.array_split(rows, 10):
        saving.update(batch)
    found = counter.held()
    known = Frequencies.counted(found.keys, found.counts, counter.total, domain=setting.domain)
    limits = {"alpha": setting.alpha, "sigma": setting.sigma}
    tracked = heavy(known, Resources.of(setting.resources), sites=setting.sites, **limits)
    return {
        "run": run,
        "resources": setting.resources,
        "sites": setting.sites,
        "z": setting.z,
        "sigma": setting.sigma,
        "domain": setting.domain,
        "delta": setting.delta,
        "counters": float(np.mean(held)),
        "counters_max": max(held),
        "counters_bound": counter.bound,
        "space_saving": len(saving),
        "explicit": len(tracked.keys),
    }


def _sweep(settings: Callable[[int], list[Setting]]) -> Callable[[RunOptions], list[Row]]:
    def run(options: RunOptions) -> list[Row]:
        rows: list[Row] = []
        chosen = settings(int(options.params.get("domain", 1_000_000)))
        for number in range(options.runs):
            for setting in sorted(chosen, key=lambda setting: setting.z):
                options.progress(f"run {number + 1} of {options.runs}: {setting.resources} z={setting.z:g}")
                rows.append(sizes(setting, options.seed + number))
        return rows

    return run


def _plot(x: str, *, log_x: bool = False) -> Callable[[list[Row], Path], None]:
    def plot(rows: list[Row], path: Path) -> None:
        plt = pyplot()
        figure, axis = plt.subplots(figsize=(5, 3.6))
        right = axis.twinx()
        for resources in dict.fromkeys(row["resources"] for row in rows):
            chosen = pick(rows, resources=resources)
            xs = values_of(chosen, x)
            axis.plot(xs, [mean(chosen, "counters", **{x: v}) for v in xs], marker=".", label=f"{resources} counters")
            right.plot(xs, [mean(chosen, "explicit", **{x: v}) for v in xs], linestyle="--", marker="x")
        axis.set_yscale("log")
        axis.set_xscale("log" if log_x else "linear")
        axis.set_xlabel(x)
        axis.set_ylabel("counters (solid)")
        right.set_ylabel("explicit mappings (dashed)")
        axis.legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(path, dpi=90)
        plt.close(figure)

    return plot


def _claims_sigma(rows: list[Row]) -> list[Claim]:
    counters = mean(rows, "counters", resources="LCL", sigma=0.1)
    quadratic = mean(rows, "counters", resources="LQL", sigma=0.1)
    explicit = mean(rows, "explicit", resources="LCL", sigma=0.1)
    saving = mean(rows, "space_saving", resources="LCL", sigma=0.1)
    falling = [mean(rows, "counters", resources="LCL", sigma=sigma) for sigma in SIGMAS]
    mapped = [[mean(rows, "explicit", resources=name, sigma=sigma) for sigma in SIGMAS] for name in ("LCL", "LQL")]
    bound = max(row["counters_max"] / row["counters_bound"] for row in rows)
    return [
        Claim(
            claim="about 2,500 counters at the defaults (sigma = 0.1, 10^6 keys)",
            holds=1250 <= counters <= 5000,
            measured=round(counters),
            paper="about 2,500",
        ),
        Claim(
            claim="about 50 explicit mappings at the defaults",
            holds=30 <= explicit <= 70,
            measured=round(explicit, 1),
            paper="about 50",
        ),
        Claim(
            claim="quadratic computation needs tens of thousands of counters, well below the number of keys",
            holds=20_000 <= quadratic <= 100_000,
            measured=round(quadratic),
            paper="about 50,000",
        ),
        Claim(
            claim="the smaller sigma, the more counters",
            holds=falling == sorted(falling, reverse=True),
            measured=[round(value) for value in falling],
            paper="falls with sigma",
        ),
        Claim(
            claim="resource functions do not change the number of explicit mappings, thanks to the corrected threshold",
            holds=all(abs(a - b) <= max(2.0, 0.1 * a) for a, b in zip(*mapped)),
            measured=[[round(value, 1) for value in line] for line in mapped],
            paper="lines overlap; 1 to 500",
        ),
        Claim(
            claim="the counter never exceeds its space bound",
            holds=bound <= 1.0,
            measured=round(bound, 3),
            paper="logarithmic in the stream",
        ),
        Claim(
            claim="Space-Saving with the same error never holds more than 1/epsilon keys (not in the paper)",
            holds=all(row["space_saving"] <= 10 / row["delta"] + 1 for row in rows),
            measured=f"{saving:.0f} against {counters:.0f} counters",
            paper=None,
        ),
    ]


def _claims_skew(rows: list[Row]) -> list[Claim]:
    explicit = [mean(rows, "explicit", resources="LCL", z=z) for z in SKEWS]
    counters = [mean(rows, "counters", resources="LCL", z=z) for z in SKEWS]
    steps = np.diff(explicit)
    return [
        Claim(
            claim="explicit mappings grow with the skew, and faster and faster",
            holds=bool((steps >= 0).all()) and explicit[-1] - explicit[-3] > explicit[-3] - explicit[-5],
            measured=[round(value, 1) for value in explicit],
            paper="super-linear",
        ),
        Claim(
            claim="the number of counters depends little on the skew (within a factor of 2)",
            holds=max(counters) / min(counters) <= 2.0,
            measured=[round(value) for value in counters],
            paper="mostly flat, slightly lower for very high skew",
        ),
        Claim(
            claim="fewer counters at the highest skew than at half of it",
            holds=counters[-1] < counters[SKEWS.index(0.5)],
            measured=[round(counters[-1]), round(counters[SKEWS.index(0.5)])],
            paper="slightly reduces",
        ),
    ]


def _claims_sites(rows: list[Row]) -> list[Claim]:
    made = []
    for column in ("counters", "explicit"):
        values = [mean(rows, column, resources="LCL", sites=sites) for sites in SITES]
        fit = float(np.corrcoef(SITES, values)[0, 1])
        made.append(
            Claim(
                claim=f"{column} grow linearly with the number of sites (correlation at least 0.98)",
                holds=fit >= 0.98,
                measured=round(fit, 4),
                paper="linear",
            )
        )
    return made


def _settings(resources: Sequence[str], **grid: Sequence[float]) -> Callable[[int], list[Setting]]:
    ((name, values),) = grid.items()
    return lambda domain: [
        Setting(domain=domain, resources=letters, **{name: value})  # type: ignore[arg-type]
        for letters in resources
        for value in values
    ]


def _skews(domain: int) -> list[Setting]:
    return _settings(("LCL",), z=SKEWS)(domain) + _settings(("LQL",), z=LOW_SKEWS)(domain)


FIGURES = {
    "gedik/9": Figure(
        name="gedik/9",
        title="Size against the frequency threshold scaler",
        run=_sweep(_settings(("LCL", "LQL"), sigma=SIGMAS)),
        plot=_plot("sigma", log_x=True),
        claims=_claims_sigma,
    ),
    "gedik/10": Figure(
        name="gedik/10",
        title="Size against the skew",
        run=_sweep(_skews),
        plot=_plot("z"),
        claims=_claims_skew,
    ),
    "gedik/11": Figure(
        name="gedik/11",
        title="Size against the number of sites",
        run=_sweep(_settings(("LCL",), sites=SITES)),
        plot=_plot("sites"),
        claims=_claims_sites,
    ),
}
