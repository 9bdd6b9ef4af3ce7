from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import fluxen as fx
from fluxen.cli.main import main
from fluxen.state.epoch import EpochLog
from fluxen.state.store import Store
from fluxen.testing import LocalEngine, aggregate, join

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64())])


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"k": list(range(first, first + count)), "v": [float(i) for i in range(count)]}, SCHEMA)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Three epochs of a two-way join, the middle one moving a group from site 0 to site 1."""
    bench = LocalEngine([join({"a": SCHEMA, "b": SCHEMA}, on="k")], str(tmp_path / "ck"), sites=2, partitions=8)
    bench.step(0, [rows(0, 50), rows(10, 50)])
    bench.step(1, [rows(50, 20), rows(60, 20)], reroute=lambda stage, routing: routing.moved([0], 1))
    bench.step(2, [rows(70, 10), rows(70, 10)])
    return tmp_path / "ck"


def inspect(checkpoint: Path, capsys: pytest.CaptureFixture[str], code: int = 0) -> dict:
    assert main(["inspect", str(checkpoint), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def a_segment(checkpoint: Path) -> Path:
    epoch = EpochLog(Store(str(checkpoint))).latest()
    assert epoch is not None
    return checkpoint / epoch.stages[0].segments[0].name


def test_shows_epochs_placement_and_sizes_that_add_up(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspect(checkpoint, capsys)
    assert found["ok"]
    assert found["problems"] == []
    assert [epoch["epoch"] for epoch in found["epochs"]] == [0, 1, 2]
    (stage,) = found["stages"]
    assert stage["placement"] == [1, 0, 0, 0, 1, 1, 1, 1]
    assert [site["groups"] for site in stage["sites"]] == [3, 5]
    assert sum(site["rows"] for site in stage["sites"]) == 160
    assert sum(group["rows"] for group in stage["groups"]) == 160
    assert sum(group["rows"] for group in stage["groups"] if group["site"] == 0) == stage["sites"][0]["rows"]
    assert found["verified"]["segments"] >= stage["segments"]
    assert stage["generations"] == []


def test_shows_every_stage_of_a_chained_query(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = join({"a": SCHEMA, "b": SCHEMA}, on="k")
    second = aggregate(first.schema, by="k", n=fx.count())
    bench = LocalEngine([first, second], str(tmp_path), sites=2, partitions=4)
    bench.step(0, [rows(0, 9), rows(0, 9)])
    stages = inspect(tmp_path, capsys)["stages"]
    assert [sum(site["rows"] for site in stage["sites"]) for stage in stages] == [18, 9]


def test_reads_well_for_people(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(checkpoint)]) == 0
    shown = capsys.readouterr().out
    assert "stage 0: 8 partition groups" in shown
    assert "all whole" in shown


def test_one_flipped_byte_in_a_segment_is_reported_with_the_files_name(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_segment(checkpoint)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert main(["inspect", str(checkpoint)]) == 1
    shown = capsys.readouterr()
    assert path.name in shown.err
    assert "checksum" in shown.err
    assert "1 WRONG" in shown.out


@pytest.mark.parametrize("harm", ["missing", "truncated"])
def test_a_missing_or_truncated_segment_is_named(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], harm: str
) -> None:
    path = a_segment(checkpoint)
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    found = inspect(checkpoint, capsys, code=1)
    assert [problem["file"] for problem in found["problems"]] == [f"segments/{path.name}"]
    assert str(path) in found["problems"][0]["problem"]


def test_every_single_byte_of_an_epoch_file_matters(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkpoint / "epochs" / "0000000001.json"
    data = path.read_bytes()
    for at in range(0, len(data) - 1, 97):
        harmed = bytearray(data)
        harmed[at] ^= 4
        path.write_bytes(harmed)
        found = inspect(checkpoint, capsys, code=1)
        assert found["problems"][0]["file"] == "epochs/0000000001.json"
        assert [epoch["epoch"] for epoch in found["epochs"]] == [0, 2]


def test_damaged_identity_and_events_are_named(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoint / "fluxen.json").write_bytes(b"{}\n00000000\n")
    (checkpoint / "events").mkdir()
    (checkpoint / "events" / "0000000002.json").write_bytes(b"nonsense")
    found = inspect(checkpoint, capsys, code=1)
    assert [problem["file"] for problem in found["problems"]] == ["fluxen.json", "events/0000000002.json"]


def test_an_epoch_a_running_query_forgets_meanwhile_is_no_problem(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fluxen.cli import inspect as command

    def forgotten(store: Store, ref: object) -> None:
        for number in (0, 1):
            (checkpoint / "epochs" / f"{number:010d}.json").unlink(missing_ok=True)
        real(store, ref)  # type: ignore[arg-type]

    real = command.verify_segment
    monkeypatch.setattr(command, "verify_segment", forgotten)
    segments = {path.name for path in (checkpoint / "segments").iterdir()}
    latest = {ref.name.split("/")[1] for s in EpochLog(Store(str(checkpoint))).load(2).stages for ref in s.segments}
    for name in segments - latest:
        (checkpoint / "segments" / name).unlink()
    assert inspect(checkpoint, capsys)["ok"]


def test_a_directory_that_is_no_checkpoint_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path)]) == 1
    assert "is not the checkpoint of a fluxen query" in capsys.readouterr().err


def test_needs_neither_java_nor_pyspark(checkpoint: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; from fluxen.cli.main import main; "
        f"sys.exit(main(['inspect', {str(checkpoint)!r}, '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PATH": ""}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"]
