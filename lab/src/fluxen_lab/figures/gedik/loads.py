"""A picture of what the functions do: rows per site, heavy keys apart from the rest. Not a figure of the paper.

Ten sites, a million keys, z = 1, each function grown from one site; the picture of docs/mechanisms/partitioning.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fluxen.partitioning.resources import per_site
from fluxen_lab.datagen.gedik import key_hashes, zipf
from fluxen_lab.figures.claim import Claim, Numbers, below
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.gedik.trial import Setting, chain, pick
from fluxen_lab.plotting import pyplot

__all__ = ["FIGURE"]

SHOWN = ("consistent", "readj", "slotted")


def run(options: RunOptions) -> list[Row]:
    """One row per function and site: the share of the stream from heavy keys and from the others."""
    setting = Setting(domain=int(options.params.get("domain", 1_000_000)), instead=options.params.get("instead", {}))
    share, keys = zipf(setting.domain, setting.z), key_hashes(setting.domain, options.seed)
    heavy = share >= setting.delta
    rows: list[Row] = []
    for name in SHOWN:
        *_, before, function = chain(name, setting, options.seed)
        places = function.lookup(keys)
        moved = float(share[before.lookup(keys) != places].sum()) * setting.sites
        parts = [per_site(places[chosen], share[chosen], setting.sites) for chosen in (heavy, ~heavy)]
        for site, (from_heavy, rest) in enumerate(zip(*parts)):
            rows.append({"algorithm": name, "site": site, "heavy": from_heavy, "rest": rest, "m": moved})
    return rows


def plot(rows: list[Row], path: Path) -> None:
    """Stacked bars, one chart per function."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(SHOWN), figsize=(9, 2.8), sharey=True)
    for axis, name in zip(axes, SHOWN):
        chosen = pick(rows, algorithm=name)
        rest, heavy = ([100 * row[column] for row in chosen] for column in ("rest", "heavy"))
        axis.bar(range(len(rest)), rest, color="#9db8d2", label="other keys")
        axis.bar(range(len(rest)), heavy, bottom=rest, color="#d2703c", label="heavy keys")
        axis.axhline(100 / len(rest), color="black", linewidth=0.8)
        axis.set_title(f"{name}: max/min {_ratio(rows, name):.2f}, migration {chosen[0]['m']:.2f}", fontsize=9)
        axis.set_xlabel("site")
    axes[0].set_ylabel("rows (%)")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _ratio(rows: list[Row], name: str) -> float:
    loads = np.array([row["heavy"] + row["rest"] for row in pick(rows, algorithm=name)])
    return float(loads.max() / loads.min())


def numbers(rows: list[Row]) -> Numbers:
    """The ratios between the fullest and the emptiest site, in order."""
    ratio = {name: _ratio(rows, name) for name in SHOWN}
    return {
        "readj_over_consistent": ratio["readj"] / ratio["consistent"],
        "slotted_over_readj": ratio["slotted"] / ratio["readj"],
        **ratio,
    }


EXCHANGED = "slotted and consistent hash exchanged"
FIGURE = Figure(
    name="gedik/loads",
    title="Rows per site, heavy keys apart",
    run=run,
    plot=plot,
    by=("algorithm", "site"),
    numbers=numbers,
    claims=(
        Claim(
            claim="rows per site: readj is more even than consistent hash, slotted more even than readj",
            paper="readj before consistent hash",
            bands={"readj_over_consistent": below(1), "slotted_over_readj": below(1)},
            shown=SHOWN,
            mutation=EXCHANGED,
        ),
    ),
    mutations={EXCHANGED: {"instead": {"algorithm": {"slotted": "consistent", "consistent": "slotted"}}}},
)
