"""What the paper says about Figures 3 to 5, judged on the rows that `balance` measured. Section 5.3.

Figures 6 to 8 are in `growth_claims`.
"""

from __future__ import annotations

import numpy as np

from fluxen_lab.figures.figure import Claim, Row
from fluxen_lab.figures.gedik.trial import CONSTRUCTIONS, mean, pick, values_of

__all__ = ["resources", "sigma", "skew"]

LETTERS = ("CCL", "LCL", "LLL", "LQL")
OTHERS = ("consistent", *CONSTRUCTIONS)
"""All but uniform hash."""


def _first_violation(rows: list[Row], algorithm: str, letters: str) -> float:
    """The least skew at which the mean imbalance exceeds what is tolerated."""
    chosen = pick(rows, resources=letters, algorithm=algorithm)
    return min((z for z in values_of(chosen, "z") if mean(chosen, "b", z=z) > 1.0), default=float("inf"))


def resources(rows: list[Row]) -> list[Claim]:
    """Figure 3."""
    many, rows = pick(rows, part="placements"), pick(rows, part="figure")
    return [*_hashes(rows, many), *_constructions(rows)]


def _hashes(rows: list[Row], many: list[Row]) -> list[Claim]:
    """Figure 3: uniform and consistent hash, their balance over many placements."""
    hashes = {name: [row["b"] for row in pick(many, algorithm=name)] for name in ("uniform", "consistent")}
    spread = {name: float(np.std(values) / np.sqrt(len(values))) for name, values in hashes.items()}
    uniform_m = [mean(rows, "m", algorithm="uniform", resources=r) for r in LETTERS]
    consistent_m = [mean(rows, "m", algorithm="consistent", resources=r) for r in LETTERS]
    best = max(mean(rows, "b", algorithm=name, resources="LLL") for name in ("scan", "redist"))
    return [
        Claim(
            claim="uniform hash migrates more than 8 times the ideal",
            holds=min(uniform_m) > 8.0,
            measured=round(min(uniform_m), 2),
            paper="more than 8",
        ),
        Claim(
            claim="consistent hash migrates no more than the ideal, below it where heavy keys happen to stay",
            holds=min(consistent_m) < 1.0 and max(consistent_m) < 1.1,
            measured=[round(value, 3) for value in consistent_m],
            paper="best, below 1 in some cases",
        ),
        Claim(
            claim="consistent hash has the worst balance, uniform hash the next (LLL)",
            holds=float(np.mean(hashes["consistent"])) > float(np.mean(hashes["uniform"])) > best,
            measured={name: f"{np.mean(values):.3f} +- {spread[name]:.3f}" for name, values in hashes.items()},
            paper={"consistent": 1.75, "uniform": 1.55},
        ),
    ]


def _constructions(rows: list[Row]) -> list[Claim]:
    """Figure 3: scan, redist and readj."""
    b = {name: {r: mean(rows, "b", algorithm=name, resources=r) for r in LETTERS} for name in CONSTRUCTIONS}
    m = {name: mean(rows, "m", algorithm=name, resources="LLL") for name in CONSTRUCTIONS}
    heaviest = [mean(rows, "b_c", algorithm=name, resources="LQL") for name in CONSTRUCTIONS]
    return [
        Claim(
            claim="readj has the lowest imbalance of the constructions for every resource function",
            holds=all(b["readj"][r] <= min(b["scan"][r], b["redist"][r]) for r in LETTERS),
            measured={name: [round(value, 3) for value in b[name].values()] for name in CONSTRUCTIONS},
            paper="consistently",
        ),
        Claim(
            claim="readj's imbalance for LLL is about 1.2 (within 15 %)",
            holds=abs(b["readj"]["LLL"] / 1.2 - 1) <= 0.15,
            measured=round(b["readj"]["LLL"], 3),
            paper=1.2,
        ),
        Claim(
            claim="readj's migration for LLL is at most about 1.34",
            holds=m["readj"] <= 1.34 * 1.1,
            measured=round(m["readj"], 3),
            paper=1.34,
        ),
        Claim(
            claim="redist and scan: imbalance about 1.32 at migration about 1.23 for LLL (within 15 %)",
            holds=all(abs(b[n]["LLL"] / 1.32 - 1) <= 0.15 and abs(m[n] / 1.23 - 1) <= 0.15 for n in ("redist", "scan")),
            measured={name: (round(b[name]["LLL"], 3), round(m[name], 3)) for name in ("redist", "scan")},
            paper=(1.32, 1.23),
        ),
        Claim(
            claim="redist and scan cannot be told apart (imbalance within 3 %)",
            holds=all(abs(b["redist"][r] / b["scan"][r] - 1) <= 0.03 for r in LETTERS),
            measured=[round(b["redist"][r] / b["scan"][r], 3) for r in LETTERS],
            paper="markers overlap",
        ),
        Claim(
            claim="quadratic computation cannot be balanced: relative imbalance of about 30 for the constructions",
            holds=all(20 <= value <= 45 for value in heaviest),
            measured=[round(value, 1) for value in heaviest],
            paper="in the 30s",
        ),
    ]


def skew(rows: list[Row]) -> list[Claim]:
    """Figure 4."""
    return [*_skewed_migration(pick(rows, resources="LCL")), *_skewed_balance(rows)]


def _skewed_migration(rows: list[Row]) -> list[Claim]:
    uniform = [mean(rows, "m", algorithm="uniform", z=z) for z in values_of(rows, "z")]
    calm = max(mean(rows, "m", algorithm=n, z=z) for n in OTHERS for z in values_of(rows, "z") if z <= 0.7)
    low, high = ({name: mean(rows, "m", algorithm=name, z=z) for name in CONSTRUCTIONS} for z in (0.7, 1.0))
    return [
        Claim(
            claim="uniform hash migrates more than 8 times the ideal at every skew",
            holds=min(uniform) > 8.0,
            measured=round(min(uniform), 2),
            paper="more than 8",
        ),
        Claim(
            claim="all others migrate close to the ideal up to z = 0.7 (at most 1.15)",
            holds=calm <= 1.15,
            measured=round(calm, 3),
            paper="close to the ideal",
        ),
        Claim(
            claim="migration of the constructions rises beyond z = 0.8",
            holds=all(high[name] > low[name] for name in CONSTRUCTIONS),
            measured={name: (round(low[name], 3), round(high[name], 3)) for name in CONSTRUCTIONS},
            paper="increases after 0.8",
        ),
    ]


def _skewed_balance(rows: list[Row]) -> list[Claim]:
    lowest = min(values_of(rows, "z"))
    first = {name: _first_violation(rows, name, "LLL") for name in OTHERS}
    starts = {r: min(_first_violation(rows, name, r) for name in OTHERS) for r in ("LQL", "LLL", "LCL")}
    b = {name: mean(rows, "b", algorithm=name, resources="LLL", z=1.0) for name in OTHERS}
    flat = [mean(rows, "b", algorithm=n, resources=r, z=lowest) for n in OTHERS for r in ("LCL", "LLL")]
    quadratic = [
        [mean(rows, "b", algorithm=n, resources="LQL", z=z) for n in CONSTRUCTIONS]
        for z in values_of(pick(rows, resources="LQL"), "z")
    ]
    apart = max(max(values) / min(values) - 1 for values in quadratic)
    return [
        Claim(
            claim="as skew grows consistent hash is the first to violate the balance requirement (LLL)",
            holds=first["consistent"] <= min(first.values()),
            measured=first,
            paper="first",
        ),
        Claim(
            claim="at z = 1 (LLL) consistent hash is far worse than readj (at least 25 %)",
            holds=b["consistent"] / b["readj"] >= 1.25,
            measured=round(b["consistent"] / b["readj"], 3),
            paper="up to 1.5",
        ),
        Claim(
            claim="at z = 1 (LLL) readj has the lowest imbalance",
            holds=b["readj"] <= min(b["scan"], b["redist"]),
            measured={name: round(b[name], 3) for name in CONSTRUCTIONS},
            paper="up to 8 % lower",
        ),
        Claim(
            claim="the requirement is violated earliest for LQL and latest for LCL",
            holds=starts["LQL"] <= starts["LLL"] <= starts["LCL"],
            measured=starts,
            paper="LQL, LLL, LCL",
        ),
        Claim(
            claim="at very low skew all satisfy it",
            holds=max(flat) < 1.0,
            measured=round(max(flat), 3),
            paper="below the line",
        ),
        Claim(
            claim="for LQL the constructions are close to each other (within 10 %)",
            holds=apart <= 0.10,
            measured=round(apart, 3),
            paper="1 to 2 %",
        ),
    ]


def sigma(rows: list[Row]) -> list[Claim]:
    """Figure 5."""
    lcl = pick(rows, resources="LCL")
    least, most = min(values_of(rows, "sigma")), max(values_of(rows, "sigma"))
    b = {
        name: (mean(lcl, "b", algorithm=name, sigma=least), mean(lcl, "b", algorithm=name, sigma=most))
        for name in CONSTRUCTIONS
    }
    m = {name: mean(lcl, "m", algorithm=name) for name in (*CONSTRUCTIONS, "uniform", "consistent")}
    by_sigma = {
        name: (mean(lcl, "m", algorithm=name, sigma=least), mean(lcl, "m", algorithm=name, sigma=most))
        for name in CONSTRUCTIONS
    }
    return [
        Claim(
            claim="smaller sigma, lower imbalance (LCL)",
            holds=all(small < large for small, large in b.values()),
            measured={name: (round(x, 3), round(y, 3)) for name, (x, y) in b.items()},
            paper="falls with sigma",
        ),
        Claim(
            claim="smaller sigma, more migration (LCL)",
            holds=all(small > large for small, large in by_sigma.values()),
            measured={name: (round(x, 3), round(y, 3)) for name, (x, y) in by_sigma.items()},
            paper="rises as sigma falls",
        ),
        Claim(
            claim="over all sigma consistent hash migrates least and uniform hash most",
            holds=m["consistent"] <= min(m.values()) and m["uniform"] >= max(m.values()),
            measured={name: round(value, 3) for name, value in m.items()},
            paper="best and worst",
        ),
        Claim(
            claim="redist migrates no more than scan (within 1 %)",
            holds=m["redist"] <= m["scan"] * 1.01,
            measured=(round(m["redist"], 3), round(m["scan"], 3)),
            paper="redist best, scan worst of the constructions",
        ),
    ]
