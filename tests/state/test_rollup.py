"""The log of statistics: nothing is lost but resolution, and it stays within its size whatever it is given."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxen.state import rollup, statistics
from fluxen.state.rollup import Rollup
from fluxen.state.statistics import GROUPS, SITES, Detail, DetailCodec, SeriesCodec, StageDetail, Statistics
from fluxen.state.store import Store
from fluxen.testing import FaultyStore, SimulatedCrash
from tests.effort import examples

LIMIT = 40_000


def sample(epoch: int, padding: int = 0) -> dict[str, Any]:
    return {
        "first": epoch,
        "last": epoch,
        "at": float(epoch),
        "epochs": 1,
        "rows_in": epoch + 1,
        "state_bytes": epoch,
        "seconds": {"run": 0.5},
        "worst": {"epoch": epoch, "seconds": float(epoch % 10)},
        "stages": [{"busy": 1.0, "sites": 2, "sides": [{"late": 1, "watermark": epoch}]}],
        "padding": {"x" * padding: 0},
    }


def log(directory: Any, store: Store | None = None, limit: int = LIMIT) -> Rollup[dict[str, Any]]:
    return Rollup(store or Store(str(directory)), "stats/series", SeriesCodec(), limit)


def read(one: Rollup[Any]) -> list[Any]:
    return [sample for part in one.parts() for sample in one.samples(part)]


def size(directory: Any) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@examples(12)
@given(data=st.data())
def test_the_log_stays_within_its_size_and_counts_everything(tmp_path_factory, data):
    """Samples of any size, written any number at a time, by runs that start again."""
    directory = tmp_path_factory.mktemp("log")
    epoch, most = 0, 0
    for _ in range(data.draw(st.integers(1, 4), "runs")):
        writer = log(directory)
        padding = data.draw(st.integers(0, 700), "padding")
        for _ in range(data.draw(st.integers(1, 25), "writes")):
            count = data.draw(st.integers(1, 20), "samples")
            writer.add([sample(epoch + n, padding) for n in range(count)])
            epoch += count
            most = max(most, size(directory))
    assert most <= LIMIT
    found = read(log(directory))
    assert [one["first"] for one in found] == [found[0]["first"], *(one["last"] + 1 for one in found[:-1])]
    assert found[-1]["last"] == epoch - 1
    first = found[0]["first"]
    assert sum(one["rows_in"] for one in found) == sum(range(first + 1, epoch + 1))
    assert sum(one["stages"][0]["sides"][0]["late"] for one in found) == epoch - first


def test_a_long_past_grows_coarser_and_is_all_there(tmp_path):
    writer = log(tmp_path, limit=4 << 20)
    for epoch in range(0, 10_000, 100):
        writer.add([sample(epoch + n) for n in range(100)])
    found = read(log(tmp_path))
    widths = [one["epochs"] for one in found]
    assert (found[0]["first"], found[-1]["last"]) == (0, 9_999)
    assert widths == sorted(widths, reverse=True)
    assert set(widths[-100:]) == {1}
    assert len(found) <= 1_700
    assert max(one["worst"]["seconds"] for one in found if one["last"] < 3_000) == 9.0
    assert found[0]["state_bytes"] == found[0]["last"]


def test_beyond_the_last_level_the_oldest_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(rollup, "LEVELS", 2)
    monkeypatch.setattr(rollup, "PARTS", 4)
    writer = log(tmp_path, limit=1 << 20)
    for epoch in range(1_000):
        writer.add([sample(epoch)])
    found = read(log(tmp_path))
    assert found[0]["first"] > 500
    assert found[-1]["last"] == 999
    assert len(list((tmp_path / "stats" / "series").iterdir())) <= 12


def test_epochs_that_are_done_again_are_told_again(tmp_path):
    log(tmp_path).add([sample(epoch) for epoch in range(10)])
    log(tmp_path).add([sample(epoch, padding=1) for epoch in range(7, 9)])
    assert [one["first"] for one in read(log(tmp_path))][-2:] == [7, 8]


@pytest.mark.parametrize("crash", range(0, 60, 2))
def test_a_crash_at_any_file_loses_at_most_what_was_being_written(tmp_path, monkeypatch, crash):
    monkeypatch.setattr(rollup, "PARTS", 4)
    monkeypatch.setattr(rollup, "SAMPLES", 4)
    log(tmp_path).add([sample(epoch) for epoch in range(15)])
    writer, epoch = log(tmp_path, FaultyStore(str(tmp_path), crash)), 15
    with contextlib.suppress(SimulatedCrash):
        for epoch in range(15, 60):
            writer.add([sample(epoch)])
    found = read(log(tmp_path))
    assert [one["first"] for one in found] == [0, *(one["last"] + 1 for one in found[:-1])]
    assert found[-1]["last"] >= epoch - 1
    log(tmp_path).add([sample(epoch + 1)])
    assert read(log(tmp_path))[-1]["last"] == epoch + 1
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_damaged_part_is_passed_over(tmp_path):
    for epoch in range(40):
        log(tmp_path, limit=4 << 20).add([sample(epoch)])
    first = min((tmp_path / "stats" / "series").iterdir())
    first.write_bytes(first.read_bytes()[:100])
    assert [one["first"] for one in read(log(tmp_path))] == list(range(16, 40))


# ---- sites and partition groups


def detail(epoch: int, sites: int, groups: int) -> Detail:
    column = np.arange(max(sites, groups), dtype=np.float32) + epoch
    stage = StageDetail(
        sites=dict.fromkeys(SITES, column[:sites]),
        groups={name: column[:groups] % sites if name == "site" else column[:groups] for name in GROUPS},
    )
    return Detail(first=epoch, last=epoch, at=float(epoch), stages=(stage, stage))


def test_detail_comes_back_as_it_was_written():
    codec = DetailCodec()
    given = [detail(epoch, 2 + epoch % 3, 8) for epoch in range(5)]
    for one, again in zip(given, codec.decoded(codec.encoded(given), "x"), strict=True):
        assert (one.first, one.last, one.at) == (again.first, again.last, again.at)
        for a, b in zip(one.stages, again.stages, strict=True):
            assert all(np.array_equal(a.sites[name], b.sites[name]) for name in SITES)
            assert all(np.array_equal(a.groups[name], b.groups[name]) for name in GROUPS)


def test_detail_of_several_epochs_adds_up_and_keeps_the_last_sizes():
    (stage, _) = DetailCodec().merged([detail(0, 2, 4), detail(1, 3, 4)]).stages
    assert stage.sites["rows_in"].tolist() == [1.0, 3.0, 3.0]
    assert stage.groups["bytes"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert stage.groups["site"].tolist() == [1.0, 2.0, 0.0, 1.0]


def test_the_history_of_a_group_tells_where_it_was(tmp_path):
    one = Statistics(Store(str(tmp_path)))
    for epoch in range(20):
        one.write([sample(epoch)], [detail(epoch, 3, 8)], {"epoch": epoch})
    found = Statistics(Store(str(tmp_path))).history(1, "group", 5)
    assert found["site"] == [(5 + epoch) % 3 for epoch in range(20)]
    assert found["rows_in"] == [5.0 + epoch for epoch in range(20)]
    assert Statistics(Store(str(tmp_path))).history(0, "site", 7)["busy"] == [None] * 20
    assert one.now() == {"epoch": 19}


def test_the_limits_of_both_logs_and_the_newest_epoch_are_64_mb():
    assert statistics.SERIES_LIMIT + statistics.DETAIL_LIMIT < statistics.LIMIT == 64 << 20


def test_series_parts_hold_json_and_nothing_else(tmp_path):
    log(tmp_path).add([sample(0)])
    (part,) = (tmp_path / "stats" / "series").iterdir()
    assert json.loads(part.read_text().splitlines()[0])["samples"][0]["first"] == 0
