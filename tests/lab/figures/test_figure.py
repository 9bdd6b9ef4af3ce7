"""The figure registry, its files and the command in front of it."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import pytest

from fluxen.errors import ConfigError
from fluxen_lab.commands import figure as command
from fluxen_lab.figures import figure
from fluxen_lab.figures.figure import Claim, Figure, RunOptions, read_rows, reproduce, write_rows

ROWS: list[dict[str, Any]] = [
    {"name": "a", "n": 3, "x": 0.1 + 0.2, "flag": True, "none": None},
    {"name": "b, quoted", "n": -(2**62), "x": 1e-300, "flag": False, "more": "1 and 2"},
]


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return parser.parse_args(["figure", *words])


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A figure whose claim can be made to fail."""
    state: dict[str, Any] = {"holds": True}

    def plot(rows: list[dict[str, Any]], path: Path) -> None:
        state["plotted"] = rows
        path.write_bytes(b"png")

    made = Figure(
        name="toy/1",
        title="A toy [in brackets]",
        run=lambda options: [{"x": 1.5, "seed": options.seed}],
        plot=plot,
        claims=lambda rows: [Claim(claim="x", holds=state["holds"], measured=rows[0]["x"], paper=None)],
    )
    monkeypatch.setattr(figure, "_of_paper", lambda paper: {"toy/1": made} if paper in ("toy", "gedik") else {})
    return state


def test_rows_survive_the_csv(tmp_path: Path) -> None:
    write_rows(ROWS, tmp_path / "rows.csv")
    columns = ["name", "n", "x", "flag", "none", "more"]
    assert read_rows(tmp_path / "rows.csv") == [{column: row.get(column) for column in columns} for row in ROWS]


def test_infinity_survives_the_csv(tmp_path: Path) -> None:
    write_rows([{"b": float("inf")}], tmp_path / "rows.csv")
    assert math.isinf(read_rows(tmp_path / "rows.csv")[0]["b"])


def test_reproducing_writes_both_files_and_judges_what_was_written(toy: dict[str, Any], tmp_path: Path) -> None:
    said: list[str] = []
    result = reproduce("toy/1", tmp_path / "deep", said.append)
    assert result["figure"] == "toy/1"
    assert result["claims"] == [{"claim": "x", "holds": True, "measured": 1.5, "paper": None}]
    assert Path(result["png"]).read_bytes() == b"png"
    assert toy["plotted"] == read_rows(Path(result["csv"])) == [{"x": 1.5, "seed": 1}]
    assert said


def test_the_command_prints_nothing_but_json(
    toy: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = parse("toy/1", "--json", "--out", str(tmp_path))
    assert args.run(args) == 0
    assert json.loads(capsys.readouterr().out)["figure"] == "toy/1"


@pytest.mark.parametrize("words", [["toy/1"], ["toy/1", "--json"], ["--all"], ["--all", "--json"]])
def test_a_claim_that_fails_is_exit_code_one(toy: dict[str, Any], tmp_path: Path, words: list[str]) -> None:
    args = parse(*words, "--out", str(tmp_path))
    assert args.run(args) == 0
    toy["holds"] = False
    assert args.run(args) == 1


@pytest.mark.parametrize("words", [["gedik/999"], ["nobody/1"], ["gedik"], ["../x/1"], []])
def test_an_unknown_figure_is_one_line_and_exit_code_two(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    args = parse(*words)
    assert args.run(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert "gedik/3" in captured.err


def test_the_list_has_every_figure_of_the_paper_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    args = parse("--list")
    assert args.run(args) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    gedik = [name for name in names if name.startswith("gedik/")]
    assert [name for name in gedik if name.rpartition("/")[2].isdigit()] == [f"gedik/{n}" for n in (1, *range(3, 15))]


def test_every_figure_is_named_as_it_is_keyed() -> None:
    assert all(made.name == name and made.title for name, made in figure.figures().items())


def test_find_names_the_thing_and_what_to_do() -> None:
    with pytest.raises(ConfigError, match="--list"):
        figure.find("gedik/2")


def test_options_have_the_papers_five_runs() -> None:
    assert RunOptions().runs == 5
