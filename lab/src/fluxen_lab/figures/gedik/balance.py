"""Figures 3 to 8: balance and migration against resource functions, skew, sigma, sites, utility and domain size.

Each is a sweep of `trial.measure`; what the paper says about it is in `balance_claims`. Section 5.3.

LCL and LLL lead to the same functions, because constant resources take no part in a construction, so one trial is
judged by both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from fluxen.partitioning import Frequencies, Resources
from fluxen.partitioning.metrics import imbalance
from fluxen.partitioning.resources import Utility
from fluxen_lab.datagen.gedik import key_hashes, zipf
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.gedik import balance_claims, growth_claims
from fluxen_lab.figures.gedik.balance_claims import SIGMAS
from fluxen_lab.figures.gedik.growth_claims import DOMAINS
from fluxen_lab.figures.gedik.plots import Panel, lines, radar
from fluxen_lab.figures.gedik.trial import ALGORITHMS, KEY, Setting, make, measure

__all__ = ["FIGURES"]

SKEWS = (0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LOW_SKEWS = (0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
MORE_PLACEMENTS = 60
"""With every seed."""


def _setting(options: RunOptions, **changes: Any) -> Setting:
    """The defaults, or smaller ones for a test, with what this figure varies."""
    given = {name: options.params[name] for name in ("domain", "sites", "instead") if name in options.params}
    return Setting(**{**given, **changes})


def run_resources(options: RunOptions) -> list[Row]:
    """Figure 3, and the two hashes on many more placements, as one placement of the heavy keys is mostly luck."""
    options.progress(f"seed {options.seed}")
    rows: list[Row] = []
    for name in ALGORITHMS:
        for letters, judge in (("LCL", ("LCL", "LLL")), ("LQL", ("LQL",)), ("CCL", ("CCL",))):
            setting = _setting(options, resources=letters)
            rows += [{"part": "figure", **row} for row in measure(name, setting, options.seed, judge=judge)]
    more = int(options.params.get("placements", MORE_PLACEMENTS))
    for number in range(more):
        options.progress(f"seed {options.seed}: hash placement {number + 1} of {more}")
        rows += [{"part": "placements", "placement": number, **row} for row in _placement(options, number)]
    return rows


def _placement(options: RunOptions, number: int) -> Iterator[Row]:
    """Imbalance of the two hashes for LLL, with fresh keys."""
    setting, run = _setting(options), 1000 * options.seed + number
    share, keys = zipf(setting.domain, setting.z), key_hashes(setting.domain, run)
    for name in ("uniform", "consistent"):
        places = make(name, setting, run).build(None, Frequencies(), setting.sites).lookup(keys)
        b = imbalance(places, share, setting.sites, Resources.of("LLL"), alpha=setting.alpha)
        yield {"algorithm": name, "sites": setting.sites, "resources": "LLL", **b}


def run_skew(options: RunOptions) -> list[Row]:
    """Figure 4."""
    rows: list[Row] = []
    grid = [("LCL", ("LCL", "LLL"), z) for z in SKEWS] + [("LQL", ("LQL",), z) for z in LOW_SKEWS]
    for letters, judge, z in grid:
        options.progress(f"seed {options.seed}: {letters} z={z:g}")
        for name in ALGORITHMS:
            rows += measure(name, _setting(options, resources=letters, z=z), options.seed, judge=judge)
    return rows


def run_sigma(options: RunOptions) -> list[Row]:
    """Figure 5."""
    rows: list[Row] = []
    for letters in ("LCL", "LQL"):
        hashes = [
            row
            for name in ("uniform", "consistent")
            for row in measure(name, _setting(options, resources=letters), options.seed)
        ]
        for sigma in SIGMAS:
            options.progress(f"seed {options.seed}: {letters} sigma={sigma:g}")
            rows += [{**row, "sigma": sigma} for row in hashes]
            for name in ALGORITHMS[2:]:
                rows += measure(name, _setting(options, resources=letters, sigma=sigma), options.seed)
    return rows


def run_sites(options: RunOptions) -> list[Row]:
    """Figure 6."""
    rows: list[Row] = []
    most = int(options.params.get("sites", 32))
    for name in ALGORITHMS:
        options.progress(f"seed {options.seed}: {name}")
        rows += measure(name, _setting(options, sites=most), options.seed, every=range(2, most + 1))
    return rows


def run_utility(options: RunOptions) -> list[Row]:
    """Figure 7."""
    rows: list[Row] = []
    for name in ("readj", "redist"):
        for letters, judge in (("LCL", ("LCL", "LLL")), ("LQL", ("LQL",))):
            for utility in get_args(Utility):
                options.progress(f"seed {options.seed}: {name} {letters} {utility}")
                rows += measure(name, _setting(options, resources=letters, utility=utility), options.seed, judge=judge)
    return rows


def run_domain(options: RunOptions) -> list[Row]:
    """Figure 8; up to 10^7 keys, the paper goes to 10^8."""
    rows: list[Row] = []
    for domain in options.params.get("domains", DOMAINS):
        for name in ALGORITHMS:
            options.progress(f"seed {options.seed}: {domain} keys, {name}")
            rows += measure(name, _setting(options, domain=domain), options.seed)
    return rows


def _panels(*resources: str) -> list[Panel]:
    made: list[Panel] = []
    for letters in resources:
        where = {"resources": letters}
        made.append({"y": "m", "label": "relative migration", "log": True, "where": where, "title": letters})
        made.append({"y": "b", "label": "relative imbalance", "ideal": True, "where": where, "title": letters})
    return made


def plot_resources(rows: list[Row], path: Path) -> None:
    """Figure 3 as radar charts."""
    figure = [row for row in rows if row["part"] == "figure"]
    radar(figure, path, charts=("CCL", "LCL", "LLL", "LQL"), spokes=("m", "b", "b_s", "b_c", "b_n"))


def plot_utility(rows: list[Row], path: Path) -> None:
    """Figure 7: one line per utility function."""
    panels: list[Panel] = [
        {"y": y, "label": label, "where": {"algorithm": name}, "title": name, "log": y == "b"}
        for name in ("readj", "redist")
        for y, label in (("m", "relative migration"), ("b", "relative imbalance"))
    ]
    lines(rows, path, x="resources", panels=panels, series="utility")


FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            name="gedik/3",
            title="Resource functions: migration and imbalance per resource",
            run=run_resources,
            plot=plot_resources,
            by=("part", "placement", *KEY),
            numbers=balance_claims.resources,
            claims=balance_claims.RESOURCES,
            mutations=balance_claims.RESOURCES_MUTATIONS,
            seeds=5,
        ),
        Figure(
            name="gedik/4",
            title="Skew: migration and imbalance",
            run=run_skew,
            plot=lambda rows, path: lines(rows, path, x="z", panels=_panels("LCL", "LLL", "LQL")),
            by=KEY,
            numbers=balance_claims.skew,
            claims=balance_claims.SKEW,
            mutations=balance_claims.SKEW_MUTATIONS,
            seeds=5,
        ),
        Figure(
            name="gedik/5",
            title="Frequency threshold scaler: migration and imbalance",
            run=run_sigma,
            plot=lambda rows, path: lines(rows, path, x="sigma", panels=_panels("LCL", "LQL"), log_x=True),
            by=KEY,
            numbers=balance_claims.sigma,
            claims=balance_claims.SIGMA,
            mutations=balance_claims.SIGMA_MUTATIONS,
            seeds=5,
        ),
        Figure(
            name="gedik/6",
            title="Number of sites: migration and imbalance",
            run=run_sites,
            plot=lambda rows, path: lines(rows, path, x="sites", panels=_panels("LCL")),
            by=KEY,
            numbers=growth_claims.sites,
            claims=growth_claims.SITES,
            mutations=growth_claims.SITES_MUTATIONS,
            seeds=5,
        ),
        Figure(
            name="gedik/7",
            title="Utility functions: migration and imbalance",
            run=run_utility,
            plot=plot_utility,
            by=KEY,
            numbers=growth_claims.utility,
            claims=growth_claims.UTILITY,
            mutations=growth_claims.UTILITY_MUTATIONS,
            seeds=5,
        ),
        Figure(
            name="gedik/8",
            title="Domain size: migration and imbalance",
            run=run_domain,
            plot=lambda rows, path: lines(rows, path, x="domain", panels=_panels("LCL"), log_x=True),
            by=KEY,
            numbers=growth_claims.domain,
            claims=growth_claims.DOMAIN,
            mutations=growth_claims.DOMAIN_MUTATIONS,
            seeds=5,
        ),
    )
}
