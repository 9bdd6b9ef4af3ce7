"""The figure registry, its files and the command in front of it."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fluxen.errors import ConfigError
from fluxen_lab import provenance
from fluxen_lab.commands import figure as command
from fluxen_lab.figures import figure
from fluxen_lab.figures import reproduce as reproducing
from fluxen_lab.figures.claim import Band, Claim, above, at_least, at_most, below, between, exactly
from fluxen_lab.figures.figure import Figure, RunOptions, read_rows, write_rows
from fluxen_lab.figures.reproduce import averaged, reproduce

ROWS: list[dict[str, Any]] = [
    {"name": "a", "n": 3, "x": 0.1 + 0.2, "flag": True, "none": None},
    {"name": "b, quoted", "n": -(2**62), "x": 1e-300, "flag": False, "more": "1 and 2"},
]


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return parser.parse_args(["figure", *words])


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    path.write_bytes(b"png")


def register(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Figure:
    """A figure of one number, x: the parameter of that name plus the seed, 1.5 unless a mutation says otherwise."""
    settings: dict[str, Any] = {
        "name": "toy/1",
        "title": "A toy [in brackets]",
        "run": lambda options: [{"at": 0, "x": options.params.get("x", 0.5) + options.seed}],
        "plot": plot,
        "numbers": lambda rows: {"x": rows[0]["x"]},
        "by": ("at",),
        "claims": (Claim(claim="x is large", paper="2", bands={"x": at_least(1.0)}, mutation="no x"),),
        "mutations": {"no x": {"x": -1.0}},
    }
    made = Figure(**{**settings, **changes})
    monkeypatch.setattr(figure, "_of_paper", lambda paper: {"toy/1": made} if paper in ("toy", "gedik") else {})
    return made


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Figure:
    """Its claim holds, and fails under its mutation."""
    return register(monkeypatch)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Figure:
    claim = Claim(claim="x", paper="2", bands={"x": at_least(9.0)}, mutation="no x", reason="it is small")
    return register(monkeypatch, claims=(claim,))


def test_rows_survive_the_csv(tmp_path: Path) -> None:
    write_rows(ROWS, tmp_path / "rows.csv")
    columns = ["name", "n", "x", "flag", "none", "more"]
    assert read_rows(tmp_path / "rows.csv") == [{column: row.get(column) for column in columns} for row in ROWS]


def test_infinity_survives_the_csv(tmp_path: Path) -> None:
    write_rows([{"b": float("inf")}], tmp_path / "rows.csv")
    assert math.isinf(read_rows(tmp_path / "rows.csv")[0]["b"])


def test_reproducing_writes_data_picture_and_verdicts_on_what_was_written(toy: Figure, tmp_path: Path) -> None:
    said: list[str] = []
    result = reproduce("toy/1", tmp_path / "deep", said.append)
    (claim,) = result["claims"]
    assert (claim["claim"], claim["holds"], claim["measured"], claim["paper"]) == ("x is large", True, {"x": 1.5}, "2")
    assert claim["bands"] == {"x": "at least 1"}
    assert Path(result["png"]).read_bytes() == b"png"
    assert read_rows(Path(result["csv"])) == [{"seed": 1, "at": 0, "x": 1.5}]
    kept = json.loads((tmp_path / "deep" / "toy-1.json").read_text())
    assert kept == {**result, "csv": "toy-1.csv", "png": "toy-1.png"}
    assert said


def test_several_seeds_are_averaged_and_their_spread_is_told(toy: Figure, tmp_path: Path) -> None:
    (claim,) = reproduce("toy/1", tmp_path, options=RunOptions(seeds=3))["claims"]
    assert claim["measured"] == {"x": 2.5}
    assert claim["spread"] == {"x": [1.5, 3.5]}


def test_what_is_exact_must_hold_with_every_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for each_seed, holds in ((False, True), (True, False)):
        claim = Claim(claim="x", paper="", bands={"x": between(2, 3)}, mutation="no x", each_seed=each_seed)
        register(monkeypatch, claims=(claim,))
        assert reproduce("toy/1", tmp_path, options=RunOptions(seeds=3))["claims"][0]["holds"] is holds


def test_rows_of_seeds_are_averaged_where_they_are_of_one_kind() -> None:
    rows = [{"seed": seed, "at": at, "y": seed * at, "why": "x"} for seed in (1, 3) for at in (0, 1)]
    assert averaged(rows, ["at"]) == [{"at": 0, "y": 0, "why": "x"}, {"at": 1, "y": 2.0, "why": "x"}]
    assert averaged([{"seed": 1, "y": None, "w": "a"}, {"seed": 2, "y": 3, "w": "b"}], []) == [{"y": 3, "w": "a | b"}]


def test_the_command_prints_nothing_but_json(toy: Figure, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = parse("toy/1", "--json", "--out", str(tmp_path))
    assert args.run(args) == 0
    assert json.loads(capsys.readouterr().out)["figure"] == "toy/1"


WAYS = [["toy/1"], ["toy/1", "--json"], ["--all"], ["--all", "--json"]]


@pytest.mark.parametrize("words", WAYS)
def test_claims_that_hold_are_exit_code_zero(toy: Figure, tmp_path: Path, words: list[str]) -> None:
    args = parse(*words, "--out", str(tmp_path))
    assert args.run(args) == 0


@pytest.mark.parametrize("words", WAYS)
def test_a_claim_that_fails_is_exit_code_one_and_says_why(
    failing: Figure, tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    args = parse(*words, "--out", str(tmp_path))
    assert args.run(args) == 1
    assert ("it is small" in capsys.readouterr().out) is ("--json" in words)


def test_a_claim_that_fails_when_mutated_is_exit_code_zero(
    toy: Figure, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = parse("toy/1", "--mutate", "--json", "--out", str(tmp_path))
    assert args.run(args) == 0
    (claim,) = json.loads(capsys.readouterr().out)["claims"]
    assert (claim["holds"], claim["holds_mutated"], claim["mutation"]) == (True, False, "no x")
    assert claim["measured_mutated"] == {"x": 0.0}
    assert read_rows(tmp_path / "toy-1.no-x.csv") == [{"seed": 1, "at": 0, "x": 0.0}]


@pytest.mark.parametrize("words", [["toy/1"], ["--all"], ["toy/1", "--json"]])
def test_a_claim_that_survives_its_mutation_is_exit_code_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    register(monkeypatch, mutations={"no x": {"y": -1.0}})  # a parameter that nothing reads
    args = parse(*words, "--out", str(tmp_path))
    assert args.run(args) == 0
    args = parse(*words, "--mutate", "--out", str(tmp_path))
    assert args.run(args) == 1
    assert ("cannot" in capsys.readouterr().out) is ("--json" not in words)


def test_a_claim_that_fails_anyway_has_no_mutation_to_survive(failing: Figure, tmp_path: Path) -> None:
    args = parse("toy/1", "--mutate", "--out", str(tmp_path))
    assert args.run(args) == 0


@pytest.mark.parametrize("number", [None, math.inf, -math.inf, math.nan])
def test_what_was_not_measured_does_not_hold(
    number: float | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    register(monkeypatch, run=lambda options: [{"at": 0, "x": number}])
    result = reproduce("toy/1", tmp_path)
    assert result["claims"][0]["holds"] is False
    assert json.loads((tmp_path / "toy-1.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("band", "inside", "outside"),
    [
        (between(1, 2), (1, 2), (0.9, 2.1)),
        (exactly(0), (0,), (-1, 1)),
        (at_least(1), (1, 9), (0.9,)),
        (above(1), (1.1,), (1,)),
        (at_most(1), (1, -9), (1.1,)),
        (below(1), (0.9,), (1,)),
    ],
)
def test_a_band_says_what_is_inside(band: Band, inside: tuple[float, ...], outside: tuple[float, ...]) -> None:
    assert all(number in band for number in inside)
    assert not any(number in band for number in outside)


def test_a_band_is_told_in_words() -> None:
    bands = (between(1, 2), exactly(0), at_least(1), above(1), at_most(0.5), below(2))
    assert [str(band) for band in bands] == ["1 to 2", "exactly 0", "at least 1", "above 1", "at most 0.5", "below 2"]


def test_a_claim_that_anything_bears_out_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a band"):
        Claim(claim="x", paper="", bands={}, mutation="no x")
    with pytest.raises(ConfigError, match="expected a lower or an upper limit"):
        Band()


@pytest.mark.parametrize("mutations", [{}, {"no x": {}, "another": {}}])
def test_every_claim_has_a_mutation_and_every_mutation_a_claim(
    mutations: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="on one side only"):
        register(monkeypatch, mutations=mutations)


@pytest.mark.parametrize("option", ["--seeds", "--jobs"])
def test_seeds_and_jobs_are_positive_numbers(toy: Figure, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = parse("toy/1", option, "0")
    assert args.run(args) == 2
    assert f"{option}: expected at least 1" in capsys.readouterr().err


def test_several_jobs_give_what_one_gives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy_example = figure.find("gedik/1")
    monkeypatch.setattr(figure, "figures", lambda: {"gedik/1": toy_example})
    claims = []
    for jobs in ("1", "2"):
        args = parse("--all", "--mutate", "--json", "--jobs", jobs, "--out", str(tmp_path / jobs))
        assert args.run(args) == 0
        (result,) = json.loads(capsys.readouterr().out)["figures"]
        assert Path(result["png"]).parent == tmp_path / jobs
        claims.append(result["claims"])
    assert claims[0] == claims[1]


def test_figures_on_spark_run_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register(monkeypatch, place="Spark")
    args = parse("toy/1", "--jobs", "2", "--out", str(tmp_path))
    assert args.run(args) == 2
    assert "one at a time" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["gedik/999"], ["nobody/1"], ["gedik"], ["../x/1"], []])
def test_an_unknown_figure_is_one_line_and_exit_code_two(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    args = parse(*words)
    assert args.run(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert "gedik/3" in captured.err


def test_resuming_keeps_what_the_same_code_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[int] = []

    def run(options: RunOptions) -> list[dict[str, Any]]:
        ran.append(options.seed)
        return [{"at": 0, "x": options.params.get("x", 1.5)}]

    register(monkeypatch, run=run)

    def once(*words: str) -> int:
        before = len(ran)
        args = parse("toy/1", "--out", str(tmp_path), *words)
        assert args.run(args) == 0
        return len(ran) - before

    assert once("--resume") == 1  # nothing was there
    assert once("--resume") == 0
    assert once() == 1
    assert once("--resume", "--seeds", "2") == 2  # other seeds are another measurement
    assert once("--resume", "--mutate") == 2  # without the mutation it was only half of it
    assert once("--resume", "--mutate") == 0
    assert once("--resume") == 0
    monkeypatch.setattr(reproducing, "code", lambda: "other code")
    assert once("--resume") == 1


def test_a_result_says_which_code_and_machine_it_is_of(toy: Figure, tmp_path: Path) -> None:
    result = reproduce("toy/1", tmp_path)
    assert result["code"] == provenance.code()
    assert result["machine"]["cores"] == os.cpu_count()
    if result["commit"] is not None:  # a checkout
        assert re.fullmatch(r"[0-9a-f]{12}(, changed)?", result["commit"])


def test_other_code_has_another_fingerprint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fingerprint = provenance.code.__wrapped__
    (tmp_path / "a.py").write_text("1")
    monkeypatch.setattr(provenance, "_LAB", tmp_path)
    one = fingerprint()
    assert fingerprint() == one
    (tmp_path / "a.py").write_text("2")
    assert fingerprint() != one


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


def test_figures_of_which_the_paper_averages_five_runs_have_five_seeds() -> None:
    seeds = {name: made.seeds for name, made in figure.figures().items()}
    assert {seeds[f"gedik/{number}"] for number in range(3, 15)} == {5}
    assert {seeds[f"zhu/{number}"] for number in range(7, 14)} == {5}


def test_runs_that_two_figures_show_are_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[tuple[int, float]] = []

    def run(options: RunOptions) -> list[dict[str, Any]]:
        ran.append((options.seed, options.params.get("x", 1.5)))
        return [{"at": 0, "x": ran[-1][1]}]

    made = register(monkeypatch, run=run)
    both = {name: replace(made, name=name) for name in ("toy/1", "toy/2")}
    monkeypatch.setattr(figure, "figures", lambda: both)
    monkeypatch.setattr(reproducing, "find", both.__getitem__)
    args = parse("--all", "--mutate", "--seeds", "2", "--out", str(tmp_path))
    assert args.run(args) == 0
    assert ran == [(1, 1.5), (2, 1.5), (1, -1.0), (2, -1.0)]


def test_every_figure_says_where_it_runs_and_what_is_emulated() -> None:
    for name, made in figure.figures().items():
        assert made.place in ("in process", "simulator", "Spark"), name
        assert bool(made.emulated) is (made.place != "in process"), name
