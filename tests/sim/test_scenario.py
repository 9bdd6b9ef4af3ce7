"""Scenarios as files, and the command that runs them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from fluxen.cli import simulate
from fluxen.errors import ConfigError
from fluxen.policies import FluxMemory
from fluxen.sim.load import CpuLoad, MemoryLoad
from fluxen.sim.scenario import parse

SHORT = 'seconds = 1\n[cluster]\nsites = 4\ngroups_per_site = 4\n[policy]\nname = "FluxLoad"\nmin_collection = 0.05\n'
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("simulate-*.toml"))


def command(path: Path, *flags: str) -> int:
    parser = argparse.ArgumentParser()
    simulate.add_parser(parser.add_subparsers())
    args = parser.parse_args(["simulate", str(path), *flags])
    return int(args.run(args))


def test_everything_in_a_table_reaches_the_scenario() -> None:
    scenario, policy = parse(
        {
            "seconds": 7,
            "seed": 4,
            "cluster": {"sites": 4, "buffer_tuples": 9},
            "keys": {"kind": "zipf", "skew": 0.5},
            "policy": {"name": "FluxMemory", "imbalance": 1.5},
            "cpu": [{"sites": [1], "start": 1.0, "share": 0.5}],
            "memory": [{"sites": [2], "at": 2.0, "memory": 1e8}],
        }
    )
    assert (scenario.seconds, scenario.seed, scenario.keys, scenario.skew) == (7, 4, "zipf", 0.5)
    assert scenario.loads == (CpuLoad(sites=(1,), start=1.0, share=0.5), MemoryLoad(sites=(2,), at=2.0, memory=1e8))
    assert type(policy) is FluxMemory


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"secnds": 3}, "no entry 'secnds'"),
        ({"cluster": {"site": 3}}, "no entry 'site'"),
        ({"cluster": 3}, "must be a table"),
        ({"policy": {"name": "Magic"}}, "'Magic' is not known; there are: static"),
        ({"policy": {"name": "Static", "imbalance": 2}}, "Static has no setting 'imbalance'"),
        ({"policy": {"name": "FluxLoad", "imbalance": 0.1}}, "imbalance >= 1"),
        ({"policy": {"name": "FluxLoad", "imbalance": "big"}}, "imbalance must be a number, got 'big'"),
        ({"policy": {"name": "LazyDisk"}}, "LazyDisk asks for more than moves"),
        ({"policy": 3}, "must be a table"),
        ({"keys": {"kind": "normal"}}, "got 'normal'"),
        ({"cpu": [{"start": 1.0}]}, "does not fit"),
        ({"cpu": [{"sites": [99]}]}, "names sites"),
        ({"cluster": {"sites": 0}}, "sites must be positive"),
        ({"seconds": "long"}, "does not fit"),
        ({"step": 0}, "0 < step"),
    ],
)
def test_a_wrong_table_is_one_clear_error(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(table)


def test_the_command_prints_one_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.toml"
    file.write_text(SHORT)
    assert command(file, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["sites"] == 4
    assert report["decision_ms"]["rounds"] > 10
    assert len(report["per_second"]) == 1


def test_the_command_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.toml"
    file.write_text(SHORT)
    assert command(file) == 0
    assert "tuples/s" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["seconds = ", "[policy]\nname = 1\n", None])
def test_a_bad_file_is_one_line_and_exit_code_2(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.toml"
    if text is not None:
        file.write_text(text)
    assert command(file) == 2
    err = capsys.readouterr().err
    assert err.startswith("fluxen simulate: ")
    assert err.count("\n") == 1


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_scenarios(path: Path) -> None:
    assert parse(simulate._read(path))
