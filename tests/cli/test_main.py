from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fluxen
from fluxen.cli import main as command
from fluxen.cli.main import COMMANDS, main
from fluxen.errors import DamagedError


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fluxen {fluxen.__version__}\n"


def test_help_lists_every_command_without_importing_any(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"fluxen {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["inspect"],
        ["demo", "--rows", "0"],
        ["demo", "--sites", "two"],
        ["demo", "--sites", "65"],
        ["run"],
        ["dashboard"],
    ],
)
def test_bad_arguments_give_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "usage: fluxen" in capsys.readouterr().err


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    def raises(args: object) -> int:
        raise error

    monkeypatch.setattr("fluxen.cli.inspect.run", raises)
    return main(["inspect", "somewhere"])


def test_an_error_is_one_line_and_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(monkeypatch, DamagedError("file x\n  is damaged")) == 1
    assert capsys.readouterr().err == "fluxen: file x is damaged\n"


def test_interrupting_gives_130_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(monkeypatch, KeyboardInterrupt()) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_an_error_nobody_meant_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        failing(monkeypatch, ZeroDivisionError())


def test_a_reader_that_goes_away_leaves_no_traceback(tmp_path: Path) -> None:
    code = "import sys; from fluxen.cli.main import main; sys.exit(main(['--help']))"
    closed = subprocess.run(
        f'{sys.executable} -c "{code}" | true', shell=True, capture_output=True, check=False, text=True
    )
    assert "Traceback" not in closed.stderr


def test_only_the_named_command_is_imported() -> None:
    code = (
        "import sys; from fluxen.cli.main import main; main(['inspect', '/nonexistent']); "
        "print([n for n in sys.modules if n in ('pyspark', 'fluxen.cli.demo', 'fluxen_lab.commands.bench')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("words", [["bench"], ["bench", "--list"], ["figure", "gedik/3"], ["figure", "--help"]])
def test_without_the_laboratory_its_commands_say_in_one_line_how_to_get_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "entry_points", lambda **wanted: ())
    assert main(words) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"fluxen: `fluxen {words[0]}` is part of the laboratory")
    assert "pip install fluxen-lab" in said.err
    assert said.err.count("\n") == 1


def test_commands_are_sorted_out_by_the_first_word() -> None:
    parser = command._parser(["inspect", "demo"])
    assert parser.parse_args(["inspect", "demo"]).checkpoint == "demo"
