from __future__ import annotations

import datetime
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluxen import dashboard
from fluxen.cli.main import main
from fluxen.dashboard import PORT

pytestmark = pytest.mark.spark

QUERY = """
[sources.clicks]
path = "clicks"
[aggregate]
by = "user"
values = { n = "count()", top = "max(value)" }
[adapt]
sites = 2
partitions = 8
policy = { name = "FluxLoad", imbalance = 1.5 }
[sink]
format = "parquet"
path = "out"
checkpoint = "checkpoint"
"""


@pytest.fixture
def query(tmp_path: Path) -> Path:
    (tmp_path / "clicks").mkdir()
    start = datetime.datetime(2026, 1, 1)
    rows = [{"user": f"u{i % 3}", "value": i, "ts": start + datetime.timedelta(seconds=i)} for i in range(30)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "clicks" / "0.parquet")
    (tmp_path / "query.toml").write_text(QUERY)
    return tmp_path / "query.toml"


def test_a_query_file_runs_to_its_end_and_again_from_its_checkpoint(
    spark: Any, query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(query), "--plain"]) == 0
    found = sorted(pq.read_table(query.parent / "out").to_pylist(), key=lambda row: row["user"])
    assert found == [{"user": f"u{i}", "n": 10, "top": 27 + i} for i in range(3)]
    assert "30 rows, 3 results in 1 epochs" in capsys.readouterr().err
    assert main(["run", str(query), "--plain"]) == 0
    assert pq.read_table(query.parent / "out").num_rows == 3
    assert main(["inspect", str(query.parent / "checkpoint")]) == 0


def test_a_page_that_is_there_already_does_not_keep_a_query_from_showing_its_own(
    spark: Any, query: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two `fluxen run --dashboard` on a machine: the second one takes the next port."""
    monkeypatch.setattr(dashboard, "_SHARED", {})  # as in a process that shows nothing yet
    with socket.socket() as taken:
        with suppress(OSError):  # taken by somebody else
            taken.bind(("127.0.0.1", PORT))
            taken.listen()
        assert main(["run", str(query), "--plain", "--dashboard"]) == 0
    said = capsys.readouterr().err
    assert "dashboard at http://127.0.0.1:" in said
    assert f"127.0.0.1:{PORT}/" not in said


def test_the_first_rows_of_each_key_alone_and_after_windows(spark: Any, query: Path) -> None:
    aggregate = QUERY[QUERY.index("[aggregate]") : QUERY.index("[adapt]")]
    query.write_text(QUERY.replace(aggregate, "[top]\nby = 'user'\nn = 2\norder = [['value', 'desc']]\n"))
    assert main(["run", str(query), "--plain"]) == 0
    found = {(row["user"], row["rank"]): row["value"] for row in pq.read_table(query.parent / "out").to_pylist()}
    assert found == {(f"u{i}", rank): 27 + i - 3 * (rank - 1) for i in range(3) for rank in (1, 2)}

    windows = "[aggregate]\nby = 'user'\ntime = 'ts'\nwindow = '20 seconds'\nvalues = { high = 'max(value)' }\n"
    first = "[top]\nby = 'window'\nn = 1\norder = [['high', 'desc']]\n"
    whole = QUERY.replace(aggregate, windows + first).replace('"out"', '"out2"').replace('"checkpoint"', '"second"')
    query.write_text(whole)
    assert main(["run", str(query), "--plain"]) == 0
    rows = pq.read_table(query.parent / "out2").to_pylist()
    assert [(row["user"], row["high"], row["window"]["end"].second) for row in rows] == [("u1", 19, 20)]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('path = "clicks"', 'path = "clocks"', "source 'clicks' cannot be read"),
        ('by = "user"', 'by = "usr"', "'usr' is not a column"),
        ("imbalance = 1.5", "unbalance = 1.5", "FluxLoad"),
        ("FluxLoad", "FluxLod", "is not known; there are: static, auto, random"),
        ("sites = 2", "sites = 9", "sites must be between"),
    ],
)
def test_what_only_spark_can_know_is_one_line_too(
    spark: Any, query: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    query.write_text(QUERY.replace(old, new))
    assert main(["run", str(query), "--plain"]) == 1
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
