"""Figures 9 to 11: how many counters the sketch keeps and how many keys are mapped explicitly. Section 5.4.

The size of a lossy counter breathes: it grows within a window and falls at its end. Measured four times per window over
the last windows of the run's stream; reported are the mean and the maximum. Space-Saving with the same error is counted
beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from fluxen.partitioning import Frequencies, Resources
from fluxen.partitioning.resources import heavy
from fluxen.sketches import LossyCounter, SpaceSaving
from fluxen_lab.datagen.gedik import stream
from fluxen_lab.figures.claim import Claim, Numbers, above, at_least, at_most, below, between
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.gedik.trial import Setting, mean, pick, values_of
from fluxen_lab.plotting import pyplot

__all__ = ["FIGURES"]

SIGMAS = (0.008, 0.0156, 0.031, 0.0625, 0.1, 0.25, 0.5, 1.0)
SITES = (2, 4, 8, 10, 16, 24, 32)
SKEWS = (0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_WINDOWS_WATCHED = 25
_KEY = ("resources", "sites", "z", "sigma", "domain")
LOW_SKEWS = (0.25, 0.3, 0.35, 0.4, 0.45, 0.5)


def sizes(setting: Setting, run: int) -> Row:
    """Counters and explicit mappings for one setting."""
    real = setting.real()
    rows = stream(real.domain, real.z, run)
    counter = LossyCounter(epsilon=0.1 * real.delta)
    saving = SpaceSaving.of(epsilon=0.1 * real.delta)
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
    if setting.used("counter", "lossy") == "exact":
        held = [len(np.unique(rows))]
    return {
        "resources": setting.resources,
        "sites": setting.sites,
        "z": setting.z,
        "sigma": setting.sigma,
        "domain": setting.domain,
        "delta": real.delta,
        "counters": float(np.mean(held)),
        "counters_max": max(held),
        "counters_bound": counter.bound,
        "space_saving": len(saving),
        "explicit": _explicit(setting, counter),
    }


def _explicit(setting: Setting, counter: LossyCounter) -> int:
    """How many keys are mapped explicitly; by the plain tracking threshold if a mutation says so."""
    real, found = setting.real(), counter.held()
    known = Frequencies.counted(found.keys, found.counts, counter.total, domain=real.domain)
    if setting.used("threshold", "corrected") == "plain":
        return int((known.share >= real.delta).sum())
    limits = {"alpha": real.alpha, "sigma": real.sigma}
    return len(heavy(known, Resources.of(real.resources), sites=real.sites, **limits).keys)


def _sweep(settings: Callable[[int], list[Setting]]) -> Callable[[RunOptions], list[Row]]:
    def run(options: RunOptions) -> list[Row]:
        rows: list[Row] = []
        chosen = settings(int(options.params.get("domain", 1_000_000)))
        for setting in sorted(chosen, key=lambda setting: setting.z):
            options.progress(f"seed {options.seed}: {setting.resources} z={setting.z:g}")
            rows.append(sizes(replace(setting, instead=options.params.get("instead", {})), options.seed))
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


def _over_sigma(rows: list[Row]) -> Numbers:
    counters = [mean(rows, "counters", resources="LCL", sigma=sigma) for sigma in SIGMAS]
    mapped = [[mean(rows, "explicit", resources=name, sigma=sigma) for sigma in SIGMAS] for name in ("LCL", "LQL")]
    return {
        "counters": mean(rows, "counters", resources="LCL", sigma=0.1),
        "counters_quadratic": mean(rows, "counters", resources="LQL", sigma=0.1),
        "explicit": mean(rows, "explicit", resources="LCL", sigma=0.1),
        "least_fall": min(more / fewer for more, fewer in pairwise(counters)),
        "mappings_apart": max(abs(a - b) / max(2.0, 0.1 * a) for a, b in zip(*mapped)),
        "most_of_bound": max(row["counters_max"] / row["counters_bound"] for row in rows),
    }


def _over_skew(rows: list[Row]) -> Numbers:
    explicit = [mean(rows, "explicit", resources="LCL", z=z) for z in SKEWS]
    counters = [mean(rows, "counters", resources="LCL", z=z) for z in SKEWS]
    return {
        "least_step": float(np.diff(explicit).min()),
        "last_steps_less_those_before": explicit[-1] - 2 * explicit[-3] + explicit[-5],
        "most_counters_over_least": max(counters) / min(counters),
        "last_over_half_skew": counters[-1] / counters[SKEWS.index(0.5)],
    }


def _over_sites(rows: list[Row]) -> Numbers:
    found: dict[str, float | None] = {}
    for column in ("counters", "explicit"):
        values = [mean(rows, column, resources="LCL", sites=sites) for sites in SITES]
        found[column] = float(np.corrcoef(SITES, values)[0, 1]) if len(set(values)) > 1 else None
    return found


COARSE = "sigma is 1 throughout"
PLAIN = "the threshold is not corrected for the resource function"
EXACT = "every key is counted"
NO_SKEW = "the skew makes no difference"
ONE_SITE_COUNT = "the number of sites makes no difference"
_SIGMA_CLAIMS = (
    Claim(
        claim="about 2,500 counters at the defaults (sigma = 0.1, 10^6 keys; half to double)",
        paper="about 2,500",
        bands={"counters": between(1250, 5000)},
        mutation=COARSE,
    ),
    Claim(
        claim="about 50 explicit mappings at the defaults",
        paper="about 50",
        bands={"explicit": between(30, 70)},
        mutation=COARSE,
    ),
    Claim(
        claim="quadratic computation needs tens of thousands of counters, well below the number of keys",
        paper="about 50,000",
        bands={"counters_quadratic": between(20_000, 100_000)},
        mutation=COARSE,
    ),
    Claim(
        claim="the smaller sigma, the more counters",
        paper="falls with sigma",
        bands={"least_fall": above(1)},
        mutation=COARSE,
    ),
    Claim(
        claim="resource functions do not change the number of explicit mappings, thanks to the corrected threshold "
        "(within 2 or 10 %, the larger one being 1)",
        paper="lines overlap; 1 to 500",
        bands={"mappings_apart": at_most(1)},
        mutation=PLAIN,
    ),
    Claim(
        claim="the counter never exceeds its space bound",
        paper="logarithmic in the stream",
        bands={"most_of_bound": at_most(1)},
        mutation=EXACT,
        each_seed=True,
    ),
)
_SKEW_CLAIMS = (
    Claim(
        claim="explicit mappings grow with the skew, and faster and faster",
        paper="super-linear",
        bands={"least_step": at_least(0), "last_steps_less_those_before": above(0)},
        mutation=NO_SKEW,
    ),
    Claim(
        claim="the number of counters depends little on the skew (within a factor of 2)",
        paper="mostly flat, slightly lower for very high skew",
        bands={"most_counters_over_least": at_most(2)},
        mutation=EXACT,
    ),
    Claim(
        claim="fewer counters at the highest skew than at half of it",
        paper="slightly reduces",
        bands={"last_over_half_skew": below(1)},
        mutation=NO_SKEW,
    ),
)
_SITES_CLAIMS = tuple(
    Claim(
        claim=f"{column} grow linearly with the number of sites (correlation at least 0.98)",
        paper="linear",
        bands={column: at_least(0.98)},
        mutation=ONE_SITE_COUNT,
    )
    for column in ("counters", "explicit")
)


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
    figure.name: figure
    for figure in (
        Figure(
            name="gedik/9",
            title="Size against the frequency threshold scaler",
            run=_sweep(_settings(("LCL", "LQL"), sigma=SIGMAS)),
            plot=_plot("sigma", log_x=True),
            by=_KEY,
            numbers=_over_sigma,
            claims=_SIGMA_CLAIMS,
            mutations={
                COARSE: {"instead": {"sigma": dict.fromkeys(SIGMAS, 1.0)}},
                PLAIN: {"instead": {"threshold": {"corrected": "plain"}}},
                EXACT: {"instead": {"counter": {"lossy": "exact"}}},
            },
            seeds=5,
        ),
        Figure(
            name="gedik/10",
            title="Size against the skew",
            run=_sweep(_skews),
            plot=_plot("z"),
            by=_KEY,
            numbers=_over_skew,
            claims=_SKEW_CLAIMS,
            mutations={
                NO_SKEW: {"instead": {"z": dict.fromkeys(SKEWS, SKEWS[0])}},
                EXACT: {"instead": {"counter": {"lossy": "exact"}}},
            },
            seeds=5,
        ),
        Figure(
            name="gedik/11",
            title="Size against the number of sites",
            run=_sweep(_settings(("LCL",), sites=SITES)),
            plot=_plot("sites"),
            by=_KEY,
            numbers=_over_sites,
            claims=_SITES_CLAIMS,
            mutations={ONE_SITE_COUNT: {"instead": {"sites": dict.fromkeys(SITES, 10)}}},
            seeds=5,
        ),
    )
}
