"""What the paper says about Figures 3 to 5, of the rows that `balance` measured. Section 5.3.

Figures 6 to 8 are in `growth_claims`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fluxen_lab.figures.claim import Claim, Numbers, above, at_least, at_most, below, between
from fluxen_lab.figures.figure import Row
from fluxen_lab.figures.gedik.trial import CONSTRUCTIONS, mean, pick, values_of

__all__ = [
    "HASHES_EXCHANGED",
    "RESOURCES",
    "RESOURCES_MUTATIONS",
    "SIGMA",
    "SIGMAS",
    "SIGMA_MUTATIONS",
    "SKEW",
    "SKEW_MUTATIONS",
    "resources",
    "sigma",
    "skew",
]

SIGMAS = (0.008, 0.031, 0.1, 0.25, 0.5, 1.0)
LETTERS = ("CCL", "LCL", "LLL", "LQL")
OTHERS = ("consistent", *CONSTRUCTIONS)
"""All but uniform hash."""
HASHES_EXCHANGED = "uniform and consistent hash exchanged"
NO_READJ = "readj replaced by consistent hash"
NO_REDIST = "redist replaced by uniform hash"
NO_QUADRATIC = "quadratic computation treated as linear"
_EXCHANGED = {"algorithm": {"uniform": "consistent", "consistent": "uniform"}}
_LINEAR = {"resources": {"LQL": "LLL"}}


def resources(rows: list[Row]) -> Numbers:
    """Figure 3."""
    many, rows = pick(rows, part="placements"), pick(rows, part="figure")
    m = {name: [mean(rows, "m", algorithm=name, resources=r) for r in LETTERS] for name in ("uniform", "consistent")}
    b = {name: {r: mean(rows, "b", algorithm=name, resources=r) for r in LETTERS} for name in CONSTRUCTIONS}
    heaviest = [mean(rows, "b_c", algorithm=name, resources="LQL") for name in CONSTRUCTIONS]
    apart = [b["redist"][r] / b["scan"][r] for r in LETTERS]
    found: dict[str, float | None] = {
        "uniform_least_m": min(m["uniform"]),
        "consistent_least_m": min(m["consistent"]),
        "consistent_most_m": max(m["consistent"]),
        **_hashes(many),
        "uniform_over_next": mean(many, "b", algorithm="uniform") / max(b["scan"]["LLL"], b["redist"]["LLL"]),
        "readj_over_next": max(b["readj"][r] / min(b["scan"][r], b["redist"][r]) for r in LETTERS),
        "redist_over_scan_least": min(apart),
        "redist_over_scan_most": max(apart),
        "computation_least_b": min(heaviest),
        "computation_most_b": max(heaviest),
    }
    for name in CONSTRUCTIONS:
        found[f"{name}_b"] = b[name]["LLL"]
        found[f"{name}_m"] = mean(rows, "m", algorithm=name, resources="LLL")
    return found


def _hashes(many: list[Row]) -> dict[str, float | None]:
    """How far apart the two hashes are, in standard errors: one placement of the heavy keys is mostly luck."""
    b = {name: np.array([row["b"] for row in pick(many, algorithm=name)]) for name in ("uniform", "consistent")}
    error = float(np.sqrt(sum(values.var() / len(values) for values in b.values())))
    ahead = float(b["consistent"].mean() - b["uniform"].mean())
    means = {f"{name}_b": float(values.mean()) for name, values in b.items()}
    return {**means, "consistent_above_uniform_errors": ahead / error if error else None}


RESOURCES = (
    Claim(
        claim="uniform hash migrates more than 8 times the ideal",
        paper="more than 8",
        bands={"uniform_least_m": above(8)},
        mutation=HASHES_EXCHANGED,
    ),
    Claim(
        claim="consistent hash migrates no more than the ideal, below it where heavy keys happen to stay",
        paper="best, below 1 in some cases",
        bands={"consistent_least_m": below(1), "consistent_most_m": below(1.1)},
        mutation=HASHES_EXCHANGED,
    ),
    Claim(
        claim="consistent hash has the worst balance (by two standard errors), uniform hash the next (LLL)",
        paper="consistent 1.75, uniform 1.55",
        bands={"consistent_above_uniform_errors": at_least(2), "uniform_over_next": above(1)},
        shown=("consistent_b", "uniform_b"),
        mutation=HASHES_EXCHANGED,
        reason="both put the heavy keys where chance wants; over 300 placements they hardly differ, in five they may",
    ),
    Claim(
        claim="readj has the lowest imbalance of the constructions for every resource function",
        paper="consistently",
        bands={"readj_over_next": at_most(1)},
        mutation=NO_READJ,
    ),
    Claim(
        claim="readj's imbalance for LLL is about 1.2 (within 15 %)",
        paper=1.2,
        bands={"readj_b": between(1.02, 1.38)},
        mutation=NO_READJ,
    ),
    Claim(
        claim="readj's migration for LLL is about 1.34 (15 % less to 10 % more)",
        paper=1.34,
        bands={"readj_m": between(1.139, 1.474)},
        mutation=NO_READJ,
    ),
    Claim(
        claim="redist and scan: imbalance about 1.32 at migration about 1.23 for LLL (within 15 %)",
        paper="1.32, 1.23",
        bands={f"{name}_{y}": band for name in ("redist", "scan") for y, band in
               (("b", between(1.122, 1.518)), ("m", between(1.0455, 1.4145)))},
        mutation=NO_REDIST,
    ),
    Claim(
        claim="redist and scan cannot be told apart (imbalance within 3 %)",
        paper="markers overlap",
        bands={"redist_over_scan_least": at_least(0.97), "redist_over_scan_most": at_most(1.03)},
        mutation=NO_REDIST,
    ),
    Claim(
        claim="quadratic computation cannot be balanced: relative imbalance of about 30 for the constructions",
        paper="in the 30s",
        bands={"computation_least_b": at_least(20), "computation_most_b": at_most(45)},
        mutation=NO_QUADRATIC,
    ),
)  # fmt: skip
RESOURCES_MUTATIONS: dict[str, dict[str, Any]] = {
    HASHES_EXCHANGED: {"instead": _EXCHANGED},
    NO_READJ: {"instead": {"algorithm": {"readj": "consistent"}}},
    NO_REDIST: {"instead": {"algorithm": {"redist": "uniform"}}},
    NO_QUADRATIC: {"instead": _LINEAR},
}


def _first_violation(rows: list[Row], algorithm: str, letters: str) -> float | None:
    """The least skew at which the mean imbalance exceeds what is tolerated."""
    chosen = pick(rows, resources=letters, algorithm=algorithm)
    return min((z for z in values_of(chosen, "z") if mean(chosen, "b", z=z) > 1.0), default=None)


def skew(rows: list[Row]) -> Numbers:
    """Figure 4."""
    lcl = pick(rows, resources="LCL")
    skews = values_of(lcl, "z")
    b = {name: mean(rows, "b", algorithm=name, resources="LLL", z=1.0) for name in OTHERS}
    quadratic = [
        [mean(rows, "b", algorithm=n, resources="LQL", z=z) for n in CONSTRUCTIONS]
        for z in values_of(pick(rows, resources="LQL"), "z")
    ]
    rise = [mean(lcl, "m", algorithm=n, z=1.0) / mean(lcl, "m", algorithm=n, z=0.7) for n in CONSTRUCTIONS]
    return {
        "uniform_least_m": min(mean(lcl, "m", algorithm="uniform", z=z) for z in skews),
        "others_most_m": max(mean(lcl, "m", algorithm=n, z=z) for n in OTHERS for z in skews if z <= 0.7),
        "least_rise": min(rise),
        **_violations(rows),
        "consistent_over_readj": b["consistent"] / b["readj"],
        "readj_over_next": b["readj"] / min(b["scan"], b["redist"]),
        "most_b_at_least_skew": max(
            mean(rows, "b", algorithm=n, resources=r, z=skews[0]) for n in OTHERS for r in ("LCL", "LLL")
        ),
        "quadratic_apart": max(max(values) / min(values) - 1 for values in quadratic),
    }


def _violations(rows: list[Row]) -> dict[str, float | None]:
    """From which skew on the requirement is violated: consistent hash before the others, LQL before LLL before LCL."""
    beyond = 1.1  # who never violates it comes after all others
    consistent = _first_violation(rows, "consistent", "LLL")
    others = min(_first_violation(rows, name, "LLL") or beyond for name in CONSTRUCTIONS)
    found = {r: [_first_violation(rows, name, r) for name in OTHERS] for r in ("LQL", "LLL", "LCL")}
    first = {r: min((z for z in skews if z is not None), default=None) for r, skews in found.items()}
    lql, lll, lcl = first.values()
    return {
        "consistent_first_by": None if consistent is None else others - consistent,
        "first_consistent": consistent,
        "lql_before_lll_by": None if lql is None or lll is None else lll - lql,
        "lll_before_lcl_by": None if lll is None else (lcl or beyond) - lll,
        **{f"first_{r.lower()}": z for r, z in first.items()},
    }


READJ_EXCHANGED = "readj and consistent hash exchanged"
NO_HIGH_SKEW = "no skew above 0.7"
HIGH_SKEW = "the least skew is 1"
NO_SCAN = "scan replaced by consistent hash"
SKEW = (
    Claim(
        claim="uniform hash migrates more than 8 times the ideal at every skew",
        paper="more than 8",
        bands={"uniform_least_m": above(8)},
        mutation=HASHES_EXCHANGED,
    ),
    Claim(
        claim="all others migrate close to the ideal up to z = 0.7 (at most 1.15)",
        paper="close to the ideal",
        bands={"others_most_m": at_most(1.15)},
        mutation=HASHES_EXCHANGED,
    ),
    Claim(
        claim="migration of the constructions rises beyond z = 0.8",
        paper="increases after 0.8",
        bands={"least_rise": above(1)},
        mutation=NO_HIGH_SKEW,
    ),
    Claim(
        claim="as skew grows consistent hash is the first to violate the balance requirement (LLL)",
        paper="first",
        bands={"consistent_first_by": above(0)},
        shown=("first_consistent",),
        mutation=READJ_EXCHANGED,
    ),
    Claim(
        claim="at z = 1 (LLL) consistent hash is far worse than readj (at least 25 %)",
        paper="up to 1.5",
        bands={"consistent_over_readj": at_least(1.25)},
        mutation=READJ_EXCHANGED,
    ),
    Claim(
        claim="at z = 1 (LLL) readj has the lowest imbalance",
        paper="up to 8 % lower",
        bands={"readj_over_next": at_most(1)},
        mutation=READJ_EXCHANGED,
    ),
    Claim(
        claim="the requirement is violated earliest for LQL, and not later for LLL than for LCL",
        paper="LQL, LLL, LCL",
        bands={"lql_before_lll_by": above(0), "lll_before_lcl_by": at_least(0)},
        shown=("first_lql", "first_lll", "first_lcl"),
        mutation=NO_QUADRATIC,
    ),
    Claim(
        claim="at very low skew all satisfy it",
        paper="below the line",
        bands={"most_b_at_least_skew": below(1)},
        mutation=HIGH_SKEW,
    ),
    Claim(
        claim="for LQL the constructions are close to each other (within 10 %)",
        paper="1 to 2 %",
        bands={"quadratic_apart": at_most(0.1)},
        mutation=NO_SCAN,
    ),
)
SKEW_MUTATIONS: dict[str, dict[str, Any]] = {
    HASHES_EXCHANGED: {"instead": _EXCHANGED},
    NO_HIGH_SKEW: {"instead": {"z": {0.8: 0.7, 0.9: 0.7, 1.0: 0.7}}},
    READJ_EXCHANGED: {"instead": {"algorithm": {"readj": "consistent", "consistent": "readj"}}},
    NO_QUADRATIC: {"instead": _LINEAR},
    HIGH_SKEW: {"instead": {"z": {0.1: 1.0}}},
    NO_SCAN: {"instead": {"algorithm": {"scan": "consistent"}}},
}


def sigma(rows: list[Row]) -> Numbers:
    """Figure 5."""
    lcl = pick(rows, resources="LCL")
    least, most = min(values_of(rows, "sigma")), max(values_of(rows, "sigma"))

    def over(column: str, name: str) -> float:
        small, large = (mean(lcl, column, algorithm=name, sigma=s) for s in (least, most))
        return small / large

    m = {name: mean(lcl, "m", algorithm=name) for name in (*CONSTRUCTIONS, "uniform", "consistent")}
    return {
        "most_b_small_over_large": max(over("b", name) for name in CONSTRUCTIONS),
        "least_m_small_over_large": min(over("m", name) for name in CONSTRUCTIONS),
        "consistent_of_next_m": m["consistent"] / min(m[name] for name in CONSTRUCTIONS),
        "uniform_over_next_m": m["uniform"] / max(m[name] for name in CONSTRUCTIONS),
        "redist_over_scan_m": m["redist"] / m["scan"],
        **{f"{name}_m": value for name, value in m.items()},
    }


NO_SIGMA = "sigma makes no difference"
SIGMA = (
    Claim(
        claim="smaller sigma, lower imbalance (LCL)",
        paper="falls with sigma",
        bands={"most_b_small_over_large": below(1)},
        mutation=NO_SIGMA,
    ),
    Claim(
        claim="smaller sigma, more migration (LCL)",
        paper="rises as sigma falls",
        bands={"least_m_small_over_large": above(1)},
        mutation=NO_SIGMA,
    ),
    Claim(
        claim="over all sigma consistent hash migrates least and uniform hash most",
        paper="best and worst",
        bands={"consistent_of_next_m": at_most(1), "uniform_over_next_m": at_least(1)},
        mutation=HASHES_EXCHANGED,
    ),
    Claim(
        claim="redist migrates no more than scan (within 1 %)",
        paper="redist best, scan worst of the constructions",
        bands={"redist_over_scan_m": at_most(1.01)},
        shown=("redist_m", "scan_m"),
        mutation=NO_REDIST,
        reason="where several sites tie for the least imbalance, which is often, our scan keeps a key where it was",
    ),
)
SIGMA_MUTATIONS: dict[str, dict[str, Any]] = {
    NO_SIGMA: {"instead": {"sigma": dict.fromkeys(SIGMAS, 0.1)}},
    HASHES_EXCHANGED: {"instead": _EXCHANGED},
    NO_REDIST: {"instead": {"algorithm": {"redist": "uniform"}}},
}
