"""Figures 9 to 12: the two protocols over window lengths and rates.

Two sites, site 0 with three quarters of the load, and one imbalance to repair from second 30 on. Throughput is results
per second until everything has been processed, as a ratio over the run without adaptation.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from fluxen_lab.datagen.zhu import Workload
from fluxen_lab.figures.figure import Claim, Figure, Row, RunOptions
from fluxen_lab.figures.zhu.plots import lines
from fluxen_lab.figures.zhu.trial import Setting, Trial, play_all

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


_played: dict[tuple[float, int, str], Trial] = {}
"""by rate, seed and setting: Figure 12 looks at moves of Figure 10"""


def _trials(rate: float, options: RunOptions, balances: tuple[str | None, ...]) -> dict[str, Trial]:
    settings = [s for window in WINDOWS for s in _settings(rate, window, options.seed, balances)]
    missing = [s for s in settings if (rate, options.seed, s.name) not in _played]
    if missing:
        for name, trial in play_all(missing, options).items():
            _played[rate, options.seed, name] = trial
    return {s.name: _played[rate, options.seed, s.name] for s in settings}


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
                    "results": sum(batch.results for batch in trial.done),
                    "finished": round(trial.done[-1].finished, 1),
                    "moves": len(trial.moves()),
                }
            )
    return rows


def _throughput(trial: Trial) -> float:
    return sum(batch.results for batch in trial.done) / trial.done[-1].finished


def _ratio_claims(rows: list[Row]) -> list[Claim]:
    ratio = {(row["setting"], row["window"]): row["ratio"] for row in rows}
    curves = {name: [ratio[name, window] for window in WINDOWS] for name in BALANCES}
    gaps = [round(ratio["mslb", window] / ratio["ptlb", window] - 1, 3) for window in WINDOWS]
    results = {(row["window"], row["results"]) for row in rows}
    return [
        Claim(
            claim="both protocols yield what no adaptation yields",
            holds=len(results) == len(WINDOWS),
            measured=sorted(results),
            paper="implied",
        ),
        Claim(
            claim="both protocols are at least as fast as no adaptation",
            holds=min(curves["ptlb"] + curves["mslb"]) >= 1 - NOISE,
            measured=curves,
            paper="ratio above 1",
        ),
        Claim(
            claim="MSLB is never behind PTLB",
            holds=min(gaps) >= -NOISE,
            measured=gaps,
            paper="insignificant to 25 % ahead",
        ),
        Claim(
            claim="the lead of MSLB grows with the window",
            holds=gaps[-1] >= gaps[0] + NOISE and gaps[-1] >= 0.1,
            measured=gaps,
            paper="up to about 25 % ahead",
        ),
        Claim(
            claim="auto is at least as good as the better of the two",
            holds=all(ratio["auto", w] >= (1 - NOISE) * max(ratio["ptlb", w], ratio["mslb", w]) for w in WINDOWS),
            measured=curves["auto"],
            paper="not in the paper",
        ),
    ]


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


def _length_claims(rows: list[Row]) -> list[Claim]:
    length = {(row["setting"], row["window"]): row["length"] for row in rows}
    windows = [window for window in WINDOWS if length["ptlb", window] is not None]
    over = {window: round(length["ptlb", window] / window, 2) for window in windows}
    # a move begins and ends between two batches, so a length is known up to two batches
    expected = all(2 * w - STEP <= length["ptlb", w] <= 2 * w + 2 * STEP for w in windows)
    shorter = {w: round(length["mslb", w] / length["ptlb", w], 2) for w in windows}
    auto = {w: length["auto", w] for w in windows}
    return [
        Claim(
            claim="PTLB takes about twice the window in a tree of two joins",
            holds=len(windows) == len(WINDOWS) and expected,
            measured={"lengths over window": over, "a batch": STEP},
            paper="2 W",
        ),
        Claim(
            claim="MSLB is much shorter",
            holds=all(share <= 0.5 for share in shorter.values()),
            measured={"share of PTLB's length": shorter, "MSLB ends with the next batch": STEP},
            paper="much shorter",
        ),
        Claim(
            claim="auto moves as quickly as the quicker of the two",
            holds=all(
                auto[w] is not None and auto[w] <= min(length["ptlb", w], length["mslb", w]) + STEP for w in windows
            ),
            measured={"lengths of auto": auto, "a batch": STEP},
            paper="not in the paper",
        ),
    ]


def _plot_lengths(rows: list[Row], path: Path) -> None:
    lines(
        rows, path, x="window", y="length", title="Length of a move at 40 rows a second (Zhu, Figure 12)",
        xlabel="window (s)", ylabel="seconds of event time",
    )  # fmt: skip


FIGURES = [
    *(
        Figure(
            name=f"zhu/{number}",
            title=f"Throughput of PTLB and MSLB over windows, {rate:g} rows a second",
            run=partial(_ratios, rate),
            plot=partial(_plot_ratios, rate, number),
            claims=_ratio_claims,
        )
        for number, rate in ((9, 30.0), (10, 40.0), (11, 50.0))
    ),
    Figure(
        name="zhu/12",
        title="How long a move takes by either protocol",
        run=_lengths,
        plot=_plot_lengths,
        claims=_length_claims,
    ),
]
