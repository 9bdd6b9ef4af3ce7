"""One driver per checkpoint: a second one is refused, and one that was thought dead cannot commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from fluxen.errors import CheckpointError
from fluxen.state import claim as claims
from fluxen.state.epoch import Epoch, EpochLog, StageState
from fluxen.state.record import seal
from fluxen.state.routing import Routing
from fluxen.state.store import Store
from fluxen_lab.emulate.distant import Distant


@pytest.fixture(params=["local", "elsewhere"])
def store(request, tmp_path):
    if request.param == "local":
        return Store(str(tmp_path / "ck"))
    return Distant(str(tmp_path / "ck"), str(tmp_path / "cache"), per_byte=0.0)


def epoch(number: int) -> Epoch:
    state = StageState(routing=Routing.even(partitions=4, sites=2), watermarks=(5,), emitted=(4,))
    return Epoch(number=number, batch=number, stages=(state,))


def elsewhere(store: Store, number: int, **more: object) -> None:
    """Make the newest claim one of another host."""
    holder = claims.current(store)
    assert holder is not None
    store.replace(f"claims/{number:010d}.json", seal({**holder.to_json(), "host": "other", **more}))


def test_a_second_claim_is_refused_in_one_line_until_the_first_is_released(store):
    first = claims.take(store)
    with pytest.raises(CheckpointError) as refused:
        claims.take(store)
    text = str(refused.value)
    assert f"process {os.getpid()} on" in text
    assert "since 20" in text
    assert "stop() that query" in text
    assert "\n" not in text
    first.release()
    assert claims.current(store) is None
    assert claims.take(store).number == 2


def test_the_claim_of_a_killed_process_on_this_machine_is_taken_at_once(tmp_path):
    taken = f"claim.take(store.Store({str(tmp_path)!r}))"
    code = f"from fluxen.state import claim, store; {taken}; print('mine', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"mine\n"
    store = Store(str(tmp_path))
    with pytest.raises(CheckpointError, match=f"kill process {process.pid}"):
        claims.take(store)
    os.kill(process.pid, signal.SIGSTOP)  # not dead, only slow
    with pytest.raises(CheckpointError, match="in use"):
        claims.take(store)
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead but not reaped yet: dead all the same
    assert claims.take(store).number == 2
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_process_with_the_same_id_that_started_later_is_another_one(tmp_path):
    store = Store(str(tmp_path))
    first = claims.take(store)
    store.replace("claims/0000000001.json", seal({**first.holder.to_json(), "started": "long ago"}))
    assert claims.take(store).number == 2


def test_a_driver_elsewhere_is_dead_once_its_lease_is_over(store, monkeypatch):
    claims.take(store)
    elsewhere(store, 1)
    with pytest.raises(CheckpointError, match=r"on other since .* start again in [56]"):
        claims.take(store)
    monkeypatch.setattr(claims, "LEASE", -1.0)
    assert claims.take(store).number == 2


def test_signs_of_life_keep_a_claim_from_drivers_elsewhere(store):
    first = claims.take(store)
    elsewhere(store, 1)
    os.utime(store.path("claims/0000000001.json"), (0, 0))
    first.renew()
    with pytest.raises(CheckpointError, match="last sign of life is 0 seconds old"):
        claims.take(store)


def test_a_driver_that_was_thought_dead_can_neither_commit_nor_renew(store, monkeypatch):
    zombie = EpochLog(store, claims.take(store))
    zombie.commit(epoch(0))
    elsewhere(store, 1)
    monkeypatch.setattr(claims, "LEASE", -1.0)
    log = EpochLog(store, claims.take(store))
    found = log.latest()
    assert found is not None
    for attempt in (lambda: zombie.commit(epoch(1)), lambda: zombie.intend(1, {}), lambda: zombie.claim.renew()):
        with pytest.raises(CheckpointError, match="does not hold the checkpoint"):
            attempt()
    assert log.numbers() == [0]
    assert log.intent(1) is None
    log.commit(epoch(1))
    assert log.numbers() == [0, 1]
    assert [name for name in store.list("epochs") if name.endswith(".tmp")] == []


def test_what_still_runs_in_the_name_of_a_released_claim_cannot_commit(store):
    log = EpochLog(store, claims.take(store))
    log.claim.release()
    with pytest.raises(CheckpointError, match="does not hold the checkpoint"):
        log.commit(epoch(0))


def test_a_claim_that_was_lost_leaves_nothing_when_it_is_given_back(store, monkeypatch):
    first = claims.take(store)
    elsewhere(store, 1)
    monkeypatch.setattr(claims, "LEASE", -1.0)
    second = claims.take(store)
    first.release()
    assert claims.current(store) == second.holder
    assert not [name for name in os.listdir(store.path("claims")) if name.startswith("0000000001")]


def test_what_crashes_leave_of_claims_is_cleared_away(tmp_path, monkeypatch):
    store = Store(str(tmp_path))
    claims.take(store).release()
    store.write("claims/half.tmp", b"")
    os.mkdir(tmp_path / "claims" / "0000000001.gone-abc")
    os.utime(tmp_path / "claims" / "half.tmp", (0, 0))
    claims.take(store)
    assert sorted(os.listdir(tmp_path / "claims")) == ["0000000002", "0000000002.json"]


def test_claims_do_not_pile_up(store):
    for _ in range(20):
        claims.take(store).release()
    last = claims.take(store)
    last.renew()
    assert last.number == 21
    assert sorted(os.listdir(store.path("claims"))) == (
        ["0000000021", "0000000021.beat", "0000000021.json"] if store.local else ["0000000021.beat", "0000000021.json"]
    )
