"""The log of adaptations: everything is there, in order, and it stops growing."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from fluxen.state import events as log
from fluxen.state.events import EventLog
from fluxen.state.store import Store
from fluxen.testing import FaultyStore, SimulatedCrash


def event(number: int, outcome: str = "done", **more: Any) -> dict[str, Any]:
    return {"epoch": number, "stage": 0, "id": number, "when": float(number), "outcome": outcome, **more}


def test_events_come_back_in_order_however_they_are_stored(tmp_path):
    writer = EventLog(Store(str(tmp_path)))
    for number in range(500):
        writer.note(number, [event(number), event(number, id=-1, when=0.0, outcome="refused", count=number)])
    for reader in (writer, EventLog(Store(str(tmp_path)))):
        found = reader.read()
        assert [entry["id"] for entry in found if entry["outcome"] == "done"] == list(range(500))
        (refused,) = [entry for entry in found if entry["outcome"] == "refused"]
        assert refused["count"] == 499


@pytest.mark.parametrize("bound", ["entries", "bytes"])
def test_the_log_stops_growing(tmp_path, monkeypatch, bound):
    monkeypatch.setattr(log, "ROLLED", 100)
    monkeypatch.setattr(log, "MOST", 500 if bound == "entries" else 1 << 40)
    monkeypatch.setattr(log, "MOST_BYTES", 1 << 40 if bound == "entries" else 40_000)
    writer = EventLog(Store(str(tmp_path)))
    files, sizes = [], []
    for number in range(4_000):
        writer.note(number, [event(number)] if number % 2 else [])
        files.append(len(list((tmp_path / "events").glob("*"))))
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "events").glob("*")) if number % 50 == 0 else 0)
    assert max(files[2000:]) <= max(files[1000:2000]) <= log.SMALL + 10
    assert max(sizes[2000:]) <= 1.1 * max(sizes[:2000])
    kept = [entry["id"] for entry in EventLog(Store(str(tmp_path))).read()]
    assert kept == list(range(kept[0], 4_000, 2))
    assert len(kept) >= 200
    assert len(writer._rolled) <= 10


def test_what_an_attempt_before_a_crash_noted_is_replaced(tmp_path):
    EventLog(Store(str(tmp_path))).note(7, [event(7, what="first")])
    EventLog(Store(str(tmp_path))).note(7, [event(7, what="second")])
    assert [entry["what"] for entry in EventLog(Store(str(tmp_path))).read()] == ["second"]


@pytest.mark.parametrize("crash", range(0, 80, 3))
def test_a_crash_while_rolling_up_loses_and_doubles_nothing(tmp_path, crash):
    number = 0
    for number in range(log.SMALL):
        EventLog(Store(str(tmp_path))).note(number, [event(number)])
    with contextlib.suppress(SimulatedCrash):
        EventLog(FaultyStore(str(tmp_path), crash)).note(number + 1, [event(number + 1)])
    again = EventLog(Store(str(tmp_path)))
    again.note(number + 1, [event(number + 1)])
    assert [entry["id"] for entry in again.read()] == list(range(log.SMALL + 1))


@pytest.mark.parametrize("busy", [1, 5, 40])
def test_the_log_is_as_long_whatever_an_epoch_brings(tmp_path, monkeypatch, busy):
    monkeypatch.setattr(log, "SMALL", 8)
    monkeypatch.setattr(log, "ROLLED", 20)
    monkeypatch.setattr(log, "MOST", 60)
    writer = EventLog(Store(str(tmp_path)))
    kept = []
    for number in range(600 // busy):
        writer.note(number, [event(number, id=busy * number + one) for one in range(busy)])
        kept.append(len(writer.read()))
    assert max(kept) <= log.MOST + log.SMALL + busy
    assert min(kept[len(kept) // 2 :]) >= log.MOST - log.ROLLED - busy
