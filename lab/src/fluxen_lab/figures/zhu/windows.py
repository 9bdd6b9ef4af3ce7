"""Figures 9 to 12: the two protocols over window lengths and rates.

Two sites, site 0 with three quarters of the load, and one imbalance to repair from second 30 on. Throughput is results
per second until everything has been processed, as a ratio over the run without adaptation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fluxen_lab.datagen.zhu import Workload
from fluxen_lab.figures.claim import Claim, Numbers, at_least, at_most, exactly
from fluxen_lab.figures.figure import Figure, Row, RunOptions
from fluxen_lab.figures.zhu.plots import lines
from fluxen_lab.figures.zhu.trial import SERVED, UNCOUNTED, Setting, Trial, mutated, play_all

__all__ = ["FIGURES"]

WINDOWS = (15.0, 30.0, 45.0, 60.0)
BALANCES = ("ptlb", "mslb", "auto")
SECONDS, STEP = 216.0, 12.0
NOISE = 0.05


def _settings(rate: float, window: float, seed: int, balances: tuple[str | None, ...]) -> list[Setting]:
    workload = Workload(rate=lambda stream, second: rate, seconds=SECONDS, step=STEP, seed=seed)
    return [
        Setting(
            name=f"{balance or 'base'}-{window:g}",
            workload=workload,
            window=window,
            service=0.013,
            keys=1000,
            sites=2,
            balance=balance,  # type: ignore[arg-type]
            balance_from=30.0,
        )
        for balance in balances
    ]


def _trials(rate: float, options: RunOptions, balances: tuple[str | None, ...]) -> dict[str, Trial]:
    settings = [s for window in WINDOWS for s in _settings(rate, window, options.seed, balances)]
    return play_all(mutated(settings, options), options)


def _ratios(rate: float, options: RunOptions) -> list[Row]:
    trials = _trials(rate, options, (None, *BALANCES))
    rows: list[Row] = []
    for window in WINDOWS:
        base = _throughput(trials[f"base-{window:g}"])
        for name in ("base", *BALANCES):
            trial = trials[f"{name}-{window:g}"]
            rows.append(
                {
                    "setting": name,
                    "window": window,
                    "ratio": round(_throughput(trial) / base, 4),
                    "results": trial.results,
                    "finished": round(trial.done[-1].finished, 1),
                    "moves": len(trial.moves()),
                }
            )
    return rows


def _throughput(trial: Trial) -> float:
    return trial.results / trial.done[-1].finished


def _of_ratios(rows: list[Row]) -> Numbers:
    ratio = {(row["setting"], row["window"]): row["ratio"] for row in rows}
    found: dict[tuple[str, float], float] = {(row["setting"], row["window"]): row["results"] for row in rows}
    gaps = [ratio["mslb", w] / ratio["ptlb", w] - 1 for w in WINDOWS]
    settings = ("base", *BALANCES)
    return {
        "results_apart": max(max(found[s, w] for s in settings) - min(found[s, w] for s in settings) for w in WINDOWS),
        "least_ratio": min(ratio[name, w] for name in ("ptlb", "mslb") for w in WINDOWS),
        "least_lead": min(gaps),
        "last_lead": gaps[-1],
        "last_lead_less_first": gaps[-1] - gaps[0],
        "auto_least_of_better": min(ratio["auto", w] / max(ratio["ptlb", w], ratio["mslb", w]) for w in WINDOWS),
        **{f"{name} at {w:g} s": ratio[name, w] for name in BALANCES for w in WINDOWS},
    }


def _plot_ratios(rate: float, number: int, rows: list[Row], path: Path) -> None:
    title = f"Throughput ratio at {rate:g} rows a second (Zhu, Figure {number})"
    lines(rows, path, x="window", y="ratio", title=title, xlabel="window (s)", ylabel="ratio over no adaptation")


def _lengths(options: RunOptions) -> list[Row]:
    trials = _trials(40.0, options, BALANCES)
    rows: list[Row] = []
    for window in WINDOWS:
        for name in BALANCES:
            trial = trials[f"{name}-{window:g}"]
            rows.append(
                {
                    "setting": name,
                    "window": window,
                    "length": round(float(np.mean(trial.lengths())), 2) if trial.lengths() else None,
                    "moves": len(trial.lengths()),
                }
            )
    return rows


def _of_lengths(rows: list[Row]) -> Numbers:
    length = {(row["setting"], row["window"]): row["length"] for row in rows}
    if any(length[name, w] is None for name in BALANCES for w in WINDOWS):  # somebody did not move at all
        return dict.fromkeys(("ptlb_least_over_2w_s", "ptlb_most_over_2w_s", "mslb_most_of_ptlb", "auto_most_over_s"))
    over = [length["ptlb", w] - 2 * w for w in WINDOWS]
    return {
        "ptlb_least_over_2w_s": min(over),
        "ptlb_most_over_2w_s": max(over),
        "mslb_most_of_ptlb": max(length["mslb", w] / length["ptlb", w] for w in WINDOWS),
        "auto_most_over_s": max(length["auto", w] - min(length["ptlb", w], length["mslb", w]) for w in WINDOWS),
    }


def _plot_lengths(rows: list[Row], path: Path) -> None:
    lines(
        rows, path, x="window", y="length", title="Length of a move at 40 rows a second (Zhu, Figure 12)",
        xlabel="window (s)", ylabel="seconds of event time",
    )  # fmt: skip


INVERTED = "load moves to the site that has the most"
EXCHANGED = "PTLB and MSLB exchanged"
AUTO_PTLB = "auto replaced by PTLB"


def _for_all(**changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of the settings with these balances, at every window."""
    return {"settings": {f"{name}-{w:g}": change for name, change in changes.items() for w in WINDOWS}}


_EXCHANGE = _for_all(ptlb={"balance": "mslb"}, mslb={"balance": "ptlb"})
_RATIO_CLAIMS = (
    Claim(
        claim="both protocols yield what no adaptation yields",
        paper="implied",
        bands={"results_apart": exactly(0)},
        mutation=UNCOUNTED,
        each_seed=True,
    ),
    Claim(
        claim=f"both protocols are at least as fast as no adaptation (within {NOISE:.0%})",
        paper="ratio above 1",
        bands={"least_ratio": at_least(1 - NOISE)},
        shown=tuple(f"{name} at {w:g} s" for name in ("ptlb", "mslb") for w in WINDOWS),
        mutation=INVERTED,
    ),
    Claim(
        claim=f"MSLB is never behind PTLB (by more than {NOISE:.0%})",
        paper="insignificant to 25 % ahead",
        bands={"least_lead": at_least(-NOISE)},
        mutation=EXCHANGED,
    ),
    Claim(
        claim="the lead of MSLB grows with the window, to at least 10 %",
        paper="up to about 25 % ahead",
        bands={"last_lead_less_first": at_least(NOISE), "last_lead": at_least(0.1)},
        mutation=EXCHANGED,
    ),
    Claim(
        claim=f"auto is at least as good as the better of the two (within {NOISE:.0%})",
        paper="not in the paper",
        bands={"auto_least_of_better": at_least(1 - NOISE)},
        shown=tuple(f"auto at {w:g} s" for w in WINDOWS),
        mutation=AUTO_PTLB,
    ),
)
_LENGTH_CLAIMS = (
    Claim(
        # a move begins and ends between two batches, so a length is known up to two batches
        claim=f"PTLB takes about twice the window in a tree of two joins (from a batch less, {STEP:g} s, to two more)",
        paper="2 W",
        bands={"ptlb_least_over_2w_s": at_least(-STEP), "ptlb_most_over_2w_s": at_most(2 * STEP)},
        mutation=EXCHANGED,
    ),
    Claim(
        claim="MSLB is much shorter (at most half)",
        paper="much shorter",
        bands={"mslb_most_of_ptlb": at_most(0.5)},
        mutation=EXCHANGED,
    ),
    Claim(
        claim="auto moves as quickly as the quicker of the two (within a batch)",
        paper="not in the paper",
        bands={"auto_most_over_s": at_most(STEP)},
        mutation=AUTO_PTLB,
    ),
)
FIGURES = [
    *(
        Figure(
            name=f"zhu/{number}",
            title=f"Throughput of PTLB and MSLB over windows, {rate:g} rows a second",
            run=partial(_ratios, rate),
            plot=partial(_plot_ratios, rate, number),
            by=("setting", "window"),
            numbers=_of_ratios,
            claims=_RATIO_CLAIMS,
            mutations={
                UNCOUNTED: {"settings": {"": {"uncounted": True}}},
                INVERTED: {"settings": {"": {"inverted": True}}},
                EXCHANGED: _EXCHANGE,
                AUTO_PTLB: _for_all(auto={"balance": "ptlb"}),
            },
            seeds=5,
            place="Spark",
            emulated=SERVED,
        )
        for number, rate in ((9, 30.0), (10, 40.0), (11, 50.0))
    ),
    Figure(
        name="zhu/12",
        title="How long a move takes by either protocol",
        run=_lengths,
        plot=_plot_lengths,
        by=("setting", "window"),
        numbers=_of_lengths,
        claims=_LENGTH_CLAIMS,
        mutations={EXCHANGED: _EXCHANGE, AUTO_PTLB: _for_all(auto={"balance": "ptlb"})},
        seeds=5,
        place="Spark",
        emulated=SERVED,
    ),
]
