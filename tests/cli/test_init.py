"""`fluxen init` writes a query that runs, and `fluxen run` stops when it is asked to, with everything committed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fluxen.cli.main import main


def test_the_file_it_writes_is_a_valid_query(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "new")]) == 0
    assert "fluxen run" in capsys.readouterr().out
    assert main(["run", "--check", str(tmp_path / "new/query.toml")]) == 0
    assert "bank1, bank2, bank3 -> join -> aggregate -> parquet" in capsys.readouterr().out


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "query.toml").write_text("mine")
    assert main(["init", str(tmp_path)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "query.toml").read_text() == "mine"
    assert not (tmp_path / "offers").exists()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file/below")]) == 1
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.spark
def test_the_example_runs_and_tells_scripts_what_it_did(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["init", str(tmp_path)])
    capsys.readouterr()
    assert main(["run", str(tmp_path / "query.toml"), "--plain", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["stopped"], told["late"]) == (6_000, False, 0)
    assert told["results"] == pq.read_table(tmp_path / "cheapest").num_rows > 0


RUN = "import sys; from fluxen.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.spark
def test_ctrl_c_finishes_the_batch_and_says_where_the_state_is(tmp_path: Path) -> None:
    """The first one only asks; a second run goes on and reads what is left."""
    main(["init", str(tmp_path)])
    query = tmp_path / "query.toml"
    finite = query.read_text()
    query.write_text(finite.replace("availableNow = true", 'processingTime = "1 second"'))
    words = [sys.executable, "-c", RUN, "run", str(query), "--plain", "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line.startswith("epoch"):
            process.send_signal(signal.SIGINT)
            break
    out, rest = process.communicate(timeout=120)
    said = "".join(seen) + rest
    assert process.returncode == 130, said
    assert "finishing the batch under way" in said
    assert f"committed in {tmp_path / 'checkpoint'}" in said
    told = json.loads(out)
    assert told["stopped"]
    newest = max(int(path.stem) for path in (tmp_path / "checkpoint/epochs").glob("*.json"))
    assert newest == told["last_epoch"]
    query.write_text(finite)
    again = subprocess.run(words, capture_output=True, text=True, timeout=200, check=True)
    assert told["rows"] + json.loads(again.stdout)["rows"] == 6_000
