"""The soak test's own parts: what it counts, what it calls growth, and that each of its queries runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fluxen.state import events as event_log
from fluxen.state import rollup
from fluxen.state.events import EventLog
from fluxen.state.record import seal
from fluxen.state.store import Store
from fluxen_lab.benchmarks.soak import local, pace
from fluxen_lab.benchmarks.soak.queries import QUERIES
from fluxen_lab.benchmarks.soak.samples import COLUMNS, Sample, Size, checkpoint_size, compress, fill, load
from fluxen_lab.benchmarks.soak.verdict import LIMITS, judge
from fluxen_lab.datagen.drift import Drift

pytestmark = pytest.mark.long

STEADY = Sample(batch=0, files=10, disk_kb=5.0, epoch_kb=1.0, events=0, driver_mb=80.0, workers_mb=0.0, batch_ms=9.0)


@pytest.mark.parametrize("column", COLUMNS)
def test_what_grows_from_the_second_to_the_last_quarter_is_not_flat(column):
    def samples(growth: float) -> list[Sample]:
        return [replace(STEADY, batch=n, **{column: 100.0 + growth * 100.0 * n / 60}) for n in range(80)]

    limit = LIMITS[column] - 1  # from the middle of the second quarter to that of the last there are 40 samples
    grown = {found.name: found.flat for found in judge(samples(2.5 * limit))}
    assert grown == {name: name != column for name in COLUMNS}
    assert all(found.flat for found in judge(samples(limit)))


def test_something_out_of_nothing_is_growth():
    found = judge([replace(STEADY, events=int(n >= 70)) for n in range(80)])
    assert [column.name for column in found if not column.flat] == ["events"]


def test_a_checkpoint_is_counted_without_sparks_own_logs(tmp_path):
    for name, size in [("epochs/0000000007.json", 30), ("epochs/0000000006.json", 50)]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    (tmp_path / "events").mkdir()
    noted = seal({"events": [{"id": 1}, {"id": 2}]})
    (tmp_path / "events/1.json").write_bytes(noted)
    (tmp_path / "spark/sources").mkdir(parents=True)
    (tmp_path / "spark/sources/0").write_bytes(bytes(1000))
    size = checkpoint_size(tmp_path)
    assert (size.files, size.bytes, size.epoch, size.events) == (2, 80, 30, 2)


def test_a_log_that_starts_full_stays_as_large_however_rarely_something_is_noted(tmp_path, monkeypatch):
    for name in ("SMALL", "ROLLED", "MOST"):
        monkeypatch.setattr(event_log, name, getattr(event_log, name))
    for name in ("SAMPLES", "PARTS", "LEVELS"):
        monkeypatch.setattr(rollup, name, getattr(rollup, name))
    compress()
    fill(tmp_path)
    log, sizes = EventLog(Store(str(tmp_path))), [checkpoint_size(tmp_path).events]
    for epoch in range(100, 300):
        log.note(epoch, [{"id": epoch, "when": 1.0}] * (1 + epoch % 3))
        sizes.append(checkpoint_size(tmp_path).events)
    assert max(sizes) <= 1.05 * event_log.MOST + 3
    assert min(sizes) >= event_log.MOST - event_log.ROLLED


def test_a_sample_tells_the_mean_of_all_batches_since_the_one_before():
    sizes = [Size(files=files, bytes=100, epoch=7, events=4 * files) for files in (1, 2, 6)]
    assert Size.mean(sizes) == Size(files=3, bytes=100, epoch=7, events=12)


def test_a_machine_that_is_slower_than_before_is_told_from_work_that_grows(tmp_path, monkeypatch):
    clock = iter([0.0, 0.2, 1.0, 1.2, 2.0, 2.9, 5.0, 5.3, 6.0, 6.3, 7.0, 7.1])
    monkeypatch.setattr(pace.time, "thread_time", lambda: next(clock))
    machine = pace.Pace(tmp_path)
    assert machine.slower() == 1.0
    assert machine.slower() == pytest.approx(1.5)
    assert list(tmp_path.iterdir()) == []


def test_popularity_drifts_over_a_fixed_set_of_keys():
    drift = Drift(keys=50, rows=2_000, cycle=10)

    def favourite(batch: int) -> int:
        counts = drift.table(0, batch).column("key").value_counts()
        return max(counts.to_pylist(), key=lambda entry: entry["counts"])["values"]

    assert favourite(0) == favourite(10) != favourite(5)
    assert max(drift.table(0, 7).column("key").to_pylist()) < 50


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_of_the_soak_runs_in_process(name, tmp_path):
    local.main(name, 30, tmp_path)
    assert [sample.batch for sample in load(tmp_path / "samples")] == [9, 19, 29]
