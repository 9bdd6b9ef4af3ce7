"""The epoch log: one commit per number, the last few kept, and no file that nothing refers to."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from fluxen.errors import CheckpointError, DamagedError
from fluxen.state import epoch as epochs
from fluxen.state.epoch import KEEP, Epoch, EpochLog, StageState, segment_epoch, segment_name
from fluxen.state.record import (
    GroupStats,
    HeavyKeys,
    SideStats,
    SiteRecord,
    read_records,
    record_directory,
    write_record,
)
from fluxen.state.routing import Routing
from fluxen.state.segment import SegmentRef, write_segment
from fluxen.state.store import Store

ROUTING = Routing.even(partitions=4, sites=2)


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path))


def put(store: Store, number: int, attempt: str = "a") -> SegmentRef:
    name = segment_name(epoch=number, stage=0, site=0, side=0, attempt=attempt)
    table = pa.table({"_h": pa.array([number], pa.int64()), "_t": pa.array([0], pa.int64())})
    return write_segment(store, name, table, side=0, partitions=4, epochs=(number, number), live=((0, 4),))


def epoch(number: int, *refs: SegmentRef) -> Epoch:
    state = StageState(routing=ROUTING, segments=refs, watermarks=(5,), emitted=(4,))
    return Epoch(number=number, batch=number, stages=(state,), control={"x": 1}, stats={"y": [2]})


def same(a: Epoch, b: Epoch) -> bool:
    return a.to_json() == b.to_json() == Epoch.from_json(a.to_json()).to_json()


def test_the_newest_epoch_comes_back_as_it_was_committed(store):
    log = EpochLog(store)
    assert log.latest() is None
    for number in range(3):
        log.commit(epoch(number, put(store, number)))
    found = EpochLog(store).latest()
    assert found is not None
    assert same(found, log.load(2))
    assert found.stages[0].watermarks == (5,)


def test_only_one_commit_can_have_a_number(store):
    first, second = EpochLog(store), EpochLog(store)
    first.commit(epoch(0))
    with pytest.raises(CheckpointError, match="committed by another process"):
        second.commit(epoch(0))


def test_only_the_last_few_epochs_and_their_segments_are_kept(store):
    log = EpochLog(store)
    for number in range(10):
        log.commit(epoch(number, put(store, number)))
        write_record(store, SiteRecord(epoch=number, stage=0, site=0), "a")
        log.collect(number)
    kept = list(range(9 - KEEP, 10))
    assert log.numbers() == kept
    assert [segment_epoch(name) for name in store.list("segments")] == kept
    assert not any(store.list(record_directory(number)) for number in range(9 - KEEP))


def test_a_segment_lives_as_long_as_a_kept_epoch_refers_to_it(store):
    log = EpochLog(store)
    old = put(store, 0)
    for number in range(10):
        log.commit(epoch(number, old))
        log.collect(number)
    assert store.exists(old.name)


def test_a_log_opened_later_collects_what_an_earlier_one_left(store):
    log = EpochLog(store)
    for number in range(5):
        log.commit(epoch(number, put(store, number)))
    again = EpochLog(store)
    again.latest()
    again.commit(epoch(5, put(store, 5)))
    again.collect(5)
    assert again.numbers() == [2, 3, 4, 5]
    assert [segment_epoch(name) for name in store.list("segments")] == [2, 3, 4, 5]


def test_a_sweep_removes_what_failed_attempts_left_and_nothing_else(store):
    log = EpochLog(store)
    log.commit(epoch(0, put(store, 0)))
    put(store, 0, "twin")
    write_record(store, SiteRecord(epoch=1, stage=0, site=0), "dead")
    assert log.sweep(0) == 1
    assert store.list("segments") == [segment_name(epoch=0, stage=0, site=0, side=0, attempt="a").split("/")[1]]
    assert read_records(store, 1) == {}


def test_an_intent_is_there_until_its_epoch_is(store):
    log = EpochLog(store)
    assert log.intent(0) is None
    log.intend(0, {"ended": 1})
    assert EpochLog(store).intent(0) == {"ended": 1}
    log.commit(epoch(0))
    assert log.intent(0) is None
    assert log.numbers() == [0]


def test_a_checkpoint_knows_its_query_and_names_what_differs(store):
    log = EpochLog(store)
    log.identify({"partitions": 4, "stages": ["a"]})
    log.identify({"partitions": 4, "stages": ["a"]})
    with pytest.raises(CheckpointError, match="partitions was 4, now 8") as raised:
        log.identify({"partitions": 8, "stages": ["a"]})
    assert "stages" not in str(raised.value)


@pytest.mark.parametrize("what", ["identity", "epoch"])
def test_another_format_version_is_refused(store, monkeypatch, what):
    log = EpochLog(store)
    with monkeypatch.context() as patch:
        patch.setattr(epochs, "VERSION", 1)
        log.identify({"partitions": 4})
        log.commit(epoch(0))
    with pytest.raises(CheckpointError, match="version 1, this fluxen reads 2"):
        log.identify({"partitions": 4}) if what == "identity" else log.load(0)


@pytest.mark.parametrize("harm", [lambda d: d[:-20], lambda d: d.replace(b'"batch":0', b'"batch":1'), lambda d: b""])
def test_a_damaged_epoch_is_named(store, tmp_path, harm):
    log = EpochLog(store)
    log.commit(epoch(0))
    path = tmp_path / "epochs" / "0000000000.json"
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(DamagedError, match=r"0000000000\.json is damaged"):
        log.latest()


def record(site: int, **changes) -> SiteRecord:
    whole = SiteRecord(
        epoch=3,
        stage=0,
        site=site,
        consumed=[("segments/x", ((0, 2), (3, 4)))],
        sides=[SideStats(rows_in=1, max_time=-5)],
        groups=GroupStats(group=[1], rows_in=[1], rows_out=[0], bytes=[9]),
        heavy=HeavyKeys(key=[-7], rows=[3], arrived=[1], bytes=[70]),
        seconds={"wait": 0.5},
    )
    return dataclasses.replace(whole, **changes)


def test_records_come_back_and_half_written_ones_do_not_count(store, tmp_path):
    write_record(store, record(0, added=[put(store, 3)]), "good")
    write_record(store, record(1), "half")
    path = tmp_path / record_directory(3) / "0-1-half.json"
    path.write_bytes(path.read_bytes()[:-5])
    found = read_records(store, 3)
    assert list(found) == [(0, 0)]
    assert found[0, 0].to_json() == record(0, added=[put(store, 3)]).to_json()


def test_a_task_that_outlived_an_earlier_run_does_not_count(store):
    write_record(store, record(0, rows_out=1), "0ld000aa")
    write_record(store, record(0, rows_out=2), "new000bb")
    write_record(store, record(1, rows_out=3), "0ld000cc")
    found = read_records(store, 3, "new000")
    assert {key: value.rows_out for key, value in found.items()} == {(0, 0): 2}


def test_a_sweep_takes_away_what_crashes_and_late_attempts_have_left(store):
    log = EpochLog(store)
    for number in range(10):
        log.commit(epoch(number))
        log.collect(number)
    left = ["epochs/0000000003.json.abc.tmp", "fluxen.json.abc.tmp", "events/0000000001.json.abc.tmp"]
    left += ["epochs/0000000009.intent", "records/0000000002/0-0-late.json", "decisions/0000000002/begun"]
    kept = ["epochs/0000000010.intent", "records/0000000009/0-0-a.json", "decisions/0000000010/begun"]
    for name in (*left, *kept):
        store.write(name, b"")
    log.sweep(9)
    assert [name for name in left if store.exists(name)] == []
    assert [name for name in kept if not store.exists(name)] == []
    assert not store.exists("records/0000000002")
