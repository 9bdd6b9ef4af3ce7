"""Beyond the paper: `Slotted` against readj's balance and redist's migration, and against lower bounds.

Over N = 2..32 sites and z = 0.5..1.0 the default workload is built by all three. Two bounds say how much room is left:
at full size the least movement that could reach the same ratio between sites if load could be cut at will, and on small
instances the least movement over all assignments of whole keys, from an integer program solved by HiGHS (scipy).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fluxen.partitioning import Frequencies, Resources
from fluxen.partitioning.leveling import band
from fluxen.partitioning.metrics import migration, site_loads
from fluxen_lab.datagen.gedik import key_hashes, zipf
from fluxen_lab.figures.claim import Claim, Numbers, at_most, below
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.gedik.plots import lines
from fluxen_lab.figures.gedik.trial import KEY, Setting, chain, make, mean, measure, pick, values_of

__all__ = ["FIGURE"]

SKEWS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
RIVALS = ("redist", "readj", "slotted")
SMALL_KEYS, SMALL_SITES = 60, 5
_ROOM_AT = (2, 4, 8, 16, 32)
_SECONDS_PER_PROGRAM = 10.0


def run(options: RunOptions) -> list[Row]:
    """All steps of all chains, then the small instances."""
    most, domain = int(options.params.get("sites", 32)), int(options.params.get("domain", 1_000_000))
    instead = options.params.get("instead", {})
    rows: list[Row] = []
    for z in options.params.get("skews", SKEWS):
        setting = Setting(z=z, sites=most, domain=domain, instead=instead)
        for name in RIVALS:
            options.progress(f"seed {options.seed}: z={z:g}, {name}")
            found = measure(name, setting, options.seed, every=range(2, most + 1))
            rows += [{"part": "full", **row, "m_bound": None, "ratio": None} for row in found]
        rows += _room(setting, options.seed)
    options.progress(f"seed {options.seed}: integer programs")
    small = Setting(domain=int(options.params.get("small_keys", SMALL_KEYS)), instead=instead)
    return rows + _small(options.seed, small)


def _room(setting: Setting, run: int) -> Iterator[Row]:
    """Per step of Slotted: its migration and the least that could reach its ratio, load being divisible."""
    share, keys = zipf(setting.domain, setting.z), key_hashes(setting.domain, run)
    before: Any = None
    for function in chain("slotted", setting, run):
        if not {function.sites, function.sites + 1} & set(_ROOM_AT):
            continue
        places = function.lookup(keys)
        loads = site_loads(places, share, function.sites, Resources())["n"]
        if before is not None and function.sites in _ROOM_AT:
            old_places, old_loads = before
            ratio = float(loads.max() / loads.min())
            low, _ = band(np.append(old_loads, 0.0), ratio)
            bound = float(np.maximum(low - np.append(old_loads, 0.0), 0.0).sum()) * function.sites
            m = migration(old_places, places, share, (function.sites - 1, function.sites), Resources())
            yield {
                "part": "room",
                "algorithm": "slotted",
                "sites": function.sites,
                "z": setting.z,
                "m": m,
                "m_bound": bound,
                "ratio": ratio,
            }
        before = places, loads


def _small(run: int, setting: Setting) -> list[Row]:
    """On few keys, all of them known: migration of each construction and the optimum for its ratio."""
    count = setting.domain
    share, keys = zipf(count, 0.8), key_hashes(count, run)
    order = np.argsort(keys)
    known = Frequencies(keys=keys[order], share=share[order], domain=count)
    rows: list[Row] = []
    for name in RIVALS:
        partitioner, function = make(name, setting, run), None
        for sites in range(1, SMALL_SITES + 1):
            function, before = partitioner.build(function, known, sites), function
        if function is None or before is None:
            continue
        old, new = before.lookup(known.keys), function.lookup(known.keys)
        loads = site_loads(new, known.share, SMALL_SITES, Resources())["n"]
        ratio = float(loads.max() / loads.min()) if loads.min() > 0 else float("inf")
        m = migration(old, new, known.share, (SMALL_SITES - 1, SMALL_SITES), Resources())
        best = least_migration(old, known.share, SMALL_SITES, ratio) * SMALL_SITES
        rows.append(
            {"part": "small", "algorithm": name, "sites": SMALL_SITES, "z": 0.8, "m": m}
            | {"m_bound": best, "ratio": ratio}
        )
    return rows


def least_migration(old: np.ndarray[Any, Any], share: np.ndarray[Any, Any], sites: int, ratio: float) -> float:
    """Least load that changes site so that max/min is at most ``ratio``: a bound proved by branch and bound.

    Variables: x[k, s] = key k on site s, and the least load. Every load is between that and ``ratio`` times it.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import lil_matrix

    if not np.isfinite(ratio):
        return 0.0
    keys = len(share)
    count = keys * sites + 1
    cost = np.append(np.where(old[:, None] != np.arange(sites)[None, :], share[:, None], 0.0).ravel(), 0.0)
    once = lil_matrix((keys, count))
    for key in range(keys):
        once[key, key * sites : (key + 1) * sites] = 1.0
    above, below = lil_matrix((sites, count)), lil_matrix((sites, count))
    for site in range(sites):
        for matrix in (above, below):
            matrix[site, site : keys * sites : sites] = share
        above[site, count - 1], below[site, count - 1] = -1.0, -(ratio + 1e-9)
    constraints = [
        LinearConstraint(once.tocsr(), 1, 1),
        LinearConstraint(above.tocsr(), 0, np.inf),
        LinearConstraint(below.tocsr(), -np.inf, 0),
    ]
    integrality = np.append(np.ones(count - 1), 0)
    limits = {"time_limit": _SECONDS_PER_PROGRAM, "mip_rel_gap": 0.005}
    solved = milp(cost, constraints=constraints, integrality=integrality, bounds=Bounds(0, 1), options=limits)
    return float(solved.mip_dual_bound or 0.0)


def plot(rows: list[Row], path: Path) -> None:
    """Imbalance and migration over N, for the lowest and the highest skew."""
    full = pick(rows, part="full")
    skews = values_of(full, "z")
    panels = [
        {"y": y, "label": label, "where": {"z": z}, "title": f"z = {z:g}", "ideal": True}
        for z in (skews[0], skews[-1])
        for y, label in (("b", "relative imbalance"), ("m", "relative migration"))
    ]
    lines(full, path, x="sites", panels=panels)


def _against(rows: list[Row]) -> dict[int, tuple[float, float]]:
    """Per N: imbalance over readj's and migration over redist's."""
    return {
        sites: (
            mean(rows, "b", algorithm="slotted", sites=sites) / mean(rows, "b", algorithm="readj", sites=sites),
            mean(rows, "m", algorithm="slotted", sites=sites) / mean(rows, "m", algorithm="redist", sites=sites),
        )
        for sites in sorted({row["sites"] for row in rows})
    }


def numbers(rows: list[Row]) -> Numbers:
    """Per skew the means over N of imbalance and migration; then how near to the bounds."""
    full, room = pick(rows, part="full"), pick(rows, part="room")
    found: dict[str, float | None] = {}
    for z in SKEWS:
        ratios = _against(pick(full, z=z))
        if not ratios:  # a smaller run has not all of them
            found |= dict.fromkeys((f"b_of_readj_z{z:g}", f"m_of_redist_z{z:g}", f"both_lower_share_z{z:g}"))
            continue
        b, m = (float(np.mean([pair[i] for pair in ratios.values()])) for i in (0, 1))
        both = sum(b < 1 and m < 1 for b, m in ratios.values())
        found |= {f"b_of_readj_z{z:g}": b, f"m_of_redist_z{z:g}": m, f"both_lower_share_z{z:g}": both / len(ratios)}
    found["m_over_bound"] = float(np.mean([row["m"] for row in room]) / np.mean([row["m_bound"] for row in room]))
    gap = {}
    for name in RIVALS:
        small = {y: mean(rows, y, part="small", algorithm=name) for y in ("m", "m_bound", "ratio")}
        gap[name] = small["m"] - small["m_bound"]
        found |= {f"{name}_small_{y}": value for y, value in small.items()}
    found["gap_less_next"] = gap["slotted"] - min(gap["redist"], gap["readj"])
    return found


NO_SLOTTED = "slotted replaced by readj"
FIGURE = Figure(
    name="gedik/slotted",
    title="Beyond the paper: slotted against readj, redist and lower bounds",
    run=run,
    plot=plot,
    by=("part", *KEY),
    numbers=numbers,
    claims=(
        *(
            Claim(
                claim=f"z = {z:g}: lower imbalance than readj and lower migration than redist at once, mean over N",
                paper="not in the paper",
                bands={f"b_of_readj_z{z:g}": below(1), f"m_of_redist_z{z:g}": below(1)},
                shown=(f"both_lower_share_z{z:g}",),
                mutation=NO_SLOTTED,
            )
            for z in SKEWS
        ),
        Claim(
            claim="migration is within 15 % of what divisible load would need for the same ratio",
            paper="not in the paper",
            bands={"m_over_bound": at_most(1.15)},
            mutation=NO_SLOTTED,
        ),
        Claim(
            claim="on small instances migration is nearer to the integer optimum for its balance than the others",
            paper="not in the paper",
            bands={"gap_less_next": below(0)},
            shown=tuple(f"{name}_small_{y}" for name in RIVALS for y in ("m", "m_bound", "ratio")),
            mutation=NO_SLOTTED,
        ),
    ),
    mutations={NO_SLOTTED: {"instead": {"algorithm": {"slotted": "readj"}}}},
    seeds=5,
)
