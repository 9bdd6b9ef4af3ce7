"""The Flux figures are registered, run, and can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fluxen_lab.figures.figure import Row, RunOptions, find
from fluxen_lab.figures.flux import FIGURES
from fluxen_lab.figures.reproduce import reproduce


def second(i: int, **values: Any) -> Row:
    row: Row = {"second": float(i), "unloaded": 100.0, "static": 100.0 if i < 7 else 43.0, "balanced": 96.0}
    return {**row, "offloaded": 0 if i < 7 else 32, "moves": 0, **values}


def verdicts(name: str, rows: list[Row]) -> list[bool]:
    figure = find(name)
    return [claim.holds(figure.numbers(rows)) for claim in figure.claims]


def test_all_figures_of_the_paper_are_there() -> None:
    simulated = {"flux/3", "flux/6", "flux/7", "flux/8", "flux/9", "flux/10", "flux/hybrid"}
    assert set(FIGURES) == simulated | {"flux/3-spark", "flux/6-spark", "flux/7-spark", "flux/9-spark"}


def test_a_figure_like_the_papers_holds() -> None:
    assert verdicts("flux/6", [second(i) for i in range(1, 41)]) == [True] * 4


@pytest.mark.parametrize(
    ("values", "failing"),
    [({"static": 99.0}, 0), ({"offloaded": 32}, 1), ({"offloaded": 3}, 2), ({"balanced": 60.0}, 3)],
)
def test_each_claim_of_a_different_figure_fails(values: dict[str, Any], failing: int) -> None:
    assert not verdicts("flux/6", [second(i, **values) for i in range(1, 41)])[failing]


def test_a_hybrid_behind_the_load_policy_fails() -> None:
    names = ("static", "load", "memory", "hybrid")
    rates = dict(zip(names, (30.0, 60.0, 30.0, 40.0)))
    rows: list[Row] = [{"second": i, **rates, **{f"{n}_latency_s": 1.0 for n in names}} for i in range(30)]
    assert verdicts("flux/hybrid", rows) == [False, True]


def test_figure_3_runs_in_small_and_is_drawn(tmp_path: Path) -> None:
    figure = find("flux/3")
    rows = figure.run(RunOptions(params={"sites": 4, "kilobytes": (0, 64)}))
    assert [row["buffer_kb"] for row in rows] == [0, 64]
    assert rows[0]["flux"] < 0.75 * rows[0]["unloaded"]
    assert rows[1]["flux"] > rows[0]["flux"]
    figure.plot(rows, tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 1000


def test_every_claim_of_figure_3_fails_when_mutated_even_in_small(tmp_path: Path) -> None:
    small = RunOptions(seeds=1, params={"sites": 4, "kilobytes": (0, 64, 512)})
    claims = reproduce("flux/3", tmp_path, options=small, mutate=True)["claims"]
    assert [claim["holds_mutated"] for claim in claims] == [False] * 3
