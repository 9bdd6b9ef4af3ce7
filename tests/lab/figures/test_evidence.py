"""The page of evidence tells what was measured, and nothing else; the repository's is made from its results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fluxen_lab.commands import figure as command
from fluxen_lab.figures import evidence
from fluxen_lab.figures.claim import Claim, at_least
from fluxen_lab.figures.evidence import page
from fluxen_lab.figures.figure import Figure, RunOptions
from fluxen_lab.figures.reproduce import reproduce

ROOT = Path(__file__).parents[3]


def toy(**changes: Any) -> Figure:
    def draw(rows: list[dict[str, Any]], path: Path) -> None:
        path.write_bytes(b"png")

    settings: dict[str, Any] = {
        "name": "flux/1",
        "title": "A toy",
        "run": lambda options: [{"at": 0, "x": options.params.get("x", 0.5) + options.seed}],
        "plot": draw,
        "numbers": lambda rows: {"x": rows[0]["x"]},
        "by": ("at",),
        "claims": (
            Claim(claim="x is large", paper="|2|", bands={"x": at_least(1)}, mutation="no x", reason="too few"),
        ),
        "mutations": {"no x": {"x": -9.0}},
        "seeds": 2,
        "place": "simulator",
        "emulated": "the x",
    }
    return Figure(**{**settings, **changes})


def show(monkeypatch: pytest.MonkeyPatch, figure: Figure) -> None:
    monkeypatch.setattr(evidence, "figures", lambda: {figure.name: figure})
    monkeypatch.setattr("fluxen_lab.figures.reproduce.find", lambda name: figure)


def line(text: str, start: str) -> str:
    (found,) = [line for line in text.splitlines() if line.startswith(start)]
    return found


def test_what_was_not_measured_is_listed_as_such(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    show(monkeypatch, toy())
    text = page(tmp_path)
    assert line(text, "| flux/1 ") == "| flux/1 | simulator | the x | not measured | | |"
    assert line(text, "| x is large ") == (
        "| x is large | \\|2\\| | not measured: x (at least 1) | not measured | no x |"
    )
    assert "![" not in text


def test_what_was_measured_is_told_with_its_band_and_spread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    show(monkeypatch, toy())
    reproduce("flux/1", tmp_path / "results", mutate=True)
    text = page(tmp_path / "results")
    assert line(text, "| flux/1 ") == "| flux/1 | simulator | the x | 1 | 0 | 0 |"
    assert line(text, "| x is large ") == (
        "| x is large | \\|2\\| | x 2 (at least 1; 1.5 to 2.5) | yes | no x: x -7.5 |"
    )
    assert "2 seeds" in text
    assert "![flux/1](results/flux-1.png)" in text


def test_a_claim_that_does_not_hold_has_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    show(monkeypatch, toy(run=lambda options: [{"at": 0, "x": 0.0}]))
    reproduce("flux/1", tmp_path)
    text = page(tmp_path)
    assert line(text, "| flux/1 ") == "| flux/1 | simulator | the x | 0 | 1 | not measured |"
    assert "| **no**: too few | no x: not measured |" in text


def test_a_claim_that_cannot_fail_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    show(monkeypatch, toy(mutations={"no x": {}}))
    reproduce("flux/1", tmp_path, mutate=True)
    text = page(tmp_path)
    assert line(text, "| flux/1 ") == "| flux/1 | simulator | the x | 1 | 0 | 1 |"
    assert "**cannot fail**" in text


def test_a_result_for_another_band_or_of_a_smaller_run_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    show(monkeypatch, toy())
    reproduce("flux/1", tmp_path)
    assert "not measured | | |" not in page(tmp_path)
    wider = Claim(claim="x is large", paper="|2|", bands={"x": at_least(0)}, mutation="no x")
    show(monkeypatch, toy(claims=(wider,)))
    assert "not measured | | |" in page(tmp_path)
    show(monkeypatch, toy())
    reproduce("flux/1", tmp_path, options=RunOptions(params={"x": 0.5}))
    assert "not measured | | |" in page(tmp_path)


def test_the_command_writes_the_page_after_every_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import argparse

    figures = {name: toy(name=name, place=place) for name, place in (("flux/1", "simulator"), ("flux/2", "Spark"))}
    monkeypatch.setattr(evidence, "figures", lambda: figures)
    monkeypatch.setattr(command.figures, "figures", lambda: figures)
    monkeypatch.setattr("fluxen_lab.figures.reproduce.find", figures.__getitem__)
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    words = ["figure", "--all", "--out", str(tmp_path), "--page", str(tmp_path / "page.md")]
    for spark, measured in (("none", {"flux/1"}), ("only", {"flux/1", "flux/2"})):
        args = parser.parse_args([*words, "--spark", spark])
        assert args.run(args) == 0
        text = (tmp_path / "page.md").read_text()
        assert {name for name in figures if f"![{name}]" in text} == measured


def test_the_page_in_the_repository_is_made_from_the_results_beside_it() -> None:
    assert (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8") == page(ROOT / "docs" / "evidence")


def test_results_in_the_repository_are_whole_runs_of_a_commit() -> None:
    for path in (ROOT / "docs" / "evidence").glob("*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        assert result["params"] == [], path
        assert result["commit"], path
        assert "changed" not in result["commit"], path
        assert (path.parent / result["png"]).exists(), path
