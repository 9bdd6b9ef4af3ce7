from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from fluxen.cli.main import main
from fluxen.cli.offers import BANKS, Offers, offers_of, write_offers
from fluxen.cli.progress import Tracker, stamp, view


def test_offers_repeat_for_a_seed_and_files_arrive_in_order(tmp_path: Path) -> None:
    offers = Offers(rows=90, batches=3)
    assert write_offers(offers, tmp_path) == 90
    files = [sorted((tmp_path / bank).iterdir()) for bank in BANKS]
    assert all(len(found) == 3 for found in files)
    for found in files:
        assert sorted(found, key=lambda path: path.stat().st_mtime) == found
    assert pq.read_table(files[1][2]).equals(offers_of(offers, 1, 2))
    ts = np.concatenate([pq.read_table(path).column("ts").cast("int64").to_numpy() for path in files[0]])
    assert (np.diff(ts) >= 0).all()


def epoch(number: int, rows: int) -> dict[str, Any]:
    site = {"site": 0, "rows_in": rows, "rows_out": 1, "state_bytes": 10, "busy_seconds": 0.1}
    stage = {"sites": [site, {**site, "site": 1, "busy_seconds": 0.3}], "watermarks": [None, 1_000_000]}
    return {"epoch": number, "rows_in": rows, "results": 2, "state_bytes": 20, "late": 0, "stages": [stage]}


def test_the_tracker_counts_every_epoch_once() -> None:
    tracker = Tracker(10.0)
    assert [seen.rate for seen in tracker.update([epoch(0, 100)], 12.0)] == [50.0]
    fresh = tracker.update([epoch(0, 100), epoch(1, 30), epoch(2, 10)], 13.0)
    assert [seen.seconds for seen in fresh] == [0.5, 0.5]
    assert tracker.update([epoch(2, 10)], 14.0) == []
    assert tracker.total("rows") == 140
    assert tracker.rate(2) == 40.0
    assert tracker.seen[-1].busiest == pytest.approx(0.75)


def test_the_live_view_fits_a_narrow_terminal() -> None:
    tracker = Tracker(0.0)
    tracker.update([epoch(0, 100)], 1.0)
    tracker.events = [{"outcome": "done", "what": "move group 1 from site 0 to site 1", "why": "x" * 200}]
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(view("title", tracker))
    shown = console.export_text()
    assert "site 1" in shown
    assert "1970-01-01 00:00:01" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_watermark_beyond_the_calendar_is_none_yet() -> None:
    assert stamp(None) == stamp(-(2**61)) == "none yet"


@pytest.mark.spark
def test_a_small_demo_runs_both_ways_and_gives_the_same_results(
    spark: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert main(["demo", "--rows", "6,000", "--seconds", "250", "--plain"]) == 0
    shown = capfd.readouterr().out
    assert "both runs gave the same results" in shown
    assert shown.count("6,000") >= 2
    assert list(tmp_path.glob("fluxen-demo-*")) == []
