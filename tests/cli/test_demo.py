from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from fluxen.cli.demo import engines, summary
from fluxen.cli.lanes import Lane, Lap, Race
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


def test_an_epoch_before_the_first_row_came_to_a_site_is_shown() -> None:
    tracker = Tracker(0.0)
    (seen,) = tracker.update([{**epoch(0, 0), "stages": []}], 1.0)
    assert (seen.rows, seen.watermark, len(seen.sites)) == (0, None, 0)
    assert view("title", tracker)


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


def progress(number: int, seconds: float, busy: tuple[float, ...] = (), rows: int = 5) -> dict[str, Any]:
    """What a query says of a micro-batch."""
    stage = {"sites": [{"busy_seconds": one} for one in busy]}
    ours = {"fluxen": {"stages": [stage]}} if busy else {}
    return {"batchId": number, "numInputRows": rows, "durationMs": {"triggerExecution": int(seconds * 1000)}, **ours}


def test_a_lane_counts_batches_with_rows_once_and_leaves_the_first_quarter_out_of_its_rate() -> None:
    lane = Lane(label="one")
    assert len(lane.update([progress(0, 9.0)], 100)) == 1
    assert lane.rate == pytest.approx(100 / 9)
    entries = [progress(0, 9.0), progress(1, 0.5, (3.0, 1.0)), progress(2, 1.5, (1.0, 1.0)), progress(3, 0.1, rows=0)]
    assert [lap.seconds for lap in lane.update(entries, 100)] == [0.5, 1.5]
    assert lane.update(entries, 100) == []
    assert lane.rate == 100
    assert [lap.busiest for lap in lane.laps] == [0.0, 0.75, 0.5]
    lane.laps = [Lap(rows=100, seconds=seconds, shares=()) for seconds in (9, 9, 1, 1, 1, 1, 1, 1)]
    assert lane.rate == 100


def test_lanes_fit_a_terminal_before_and_after_their_first_batch() -> None:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    lanes = [Lane(label="Spark's own join"), Lane(label="fluxen, static"), Lane(label="fluxen, adaptive")]
    race = Race(title="title", lanes=lanes, batches=16, rows=100, console=console, plain=False, note="see")
    lanes[0].update([progress(number, 2.0) for number in range(16)], 100)
    lanes[1].update([progress(0, 0.1, (4.0, 1.0))], 100)
    lanes[1].events = [{"outcome": "done", "what": "move group 1 from site 0 to site 1", "why": "x" * 200}]
    console.print(race.view())
    shown = console.export_text()
    for part in ("batch 16 of 16", "waiting", "80%", "1,000", "move group 1", "see"):
        assert part in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_half_way_other_offers_become_popular() -> None:
    offers = Offers(rows=1_200, batches=4)
    assert offers.popular(0) == offers.popular(1) != offers.popular(2) == offers.popular(3)
    assert not set(offers.popular(0)) & set(offers.popular(3))


@pytest.mark.spark
def test_a_small_demo_compares_the_results_of_all_three_runs(
    spark: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert main(["demo", "--rows", "6,000", "--seconds", "250", "--plain", "--json"]) == 0
    shown = capfd.readouterr()
    found = json.loads(shown.out)
    assert found["correct"] is True
    assert found["batches"] == {"spark": 2, "static": 2, "adaptive": 2}
    assert all(found[f"{name}_rows_per_s"] > 0 for name in ("spark", "static", "adaptive"))
    assert "the same results in every batch; all three came to the first 2 of 2" in shown.err
    assert list(tmp_path.glob("fluxen-demo-*")) == []


def test_runs_that_differ_in_one_batch_are_not_called_correct() -> None:
    console = Console(file=open("/dev/null", "w"))  # noqa: SIM115
    lanes = [Lane(label=name, laps=[Lap(rows=5, seconds=1.0, shares=(1.0,))] * 2) for name in "abc"]
    race = Race(title="", lanes=lanes, batches=2, rows=5, console=console, plain=True)
    same = {0: {"x": (1.0, 1)}, 1: {}}
    assert summary(race, engines(2), [same, dict(same), dict(same)], 1.0)["correct"]
    other = {**same, 1: {"x": (1.0, 2)}}
    assert not summary(race, engines(2), [same, other, same], 1.0)["correct"]
    lanes[1].laps = lanes[1].laps[:1]  # was stopped before that batch
    assert summary(race, engines(2), [same, other, same], 1.0)["correct"]
    lanes[1].laps = []
    assert not summary(race, engines(2), [same, other, same], 1.0)["correct"]
