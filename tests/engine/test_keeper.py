"""A claim is renewed from the moment it is taken, and its loss is told."""

from __future__ import annotations

import threading

import pytest

from fluxen.engine.keeper import ClaimKeeper
from fluxen.errors import CheckpointError
from fluxen.state import claim as claims
from fluxen.state.store import Store


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch):
    monkeypatch.setattr(claims, "RENEWAL", 0.02)


def test_a_claim_is_renewed_while_the_query_begins(tmp_path, monkeypatch):
    renewed = threading.Event()
    renew = claims.Claim.renew

    def seen(self):
        renew(self)
        renewed.set()

    monkeypatch.setattr(claims.Claim, "renew", seen)
    keeper = ClaimKeeper(Store(str(tmp_path)), "q", lambda error: None)
    assert renewed.wait(10), "nobody but the keeper's own thread could have renewed it"
    keeper.release()
    ClaimKeeper(Store(str(tmp_path)), "next", lambda error: None).release()


def test_a_claim_that_was_taken_over_is_reported_once(tmp_path, monkeypatch):
    told: list[CheckpointError] = []
    heard = threading.Event()

    def lost(error: CheckpointError) -> None:
        told.append(error)
        heard.set()

    def gone(self):
        raise CheckpointError("another driver has it")

    monkeypatch.setattr(claims.Claim, "renew", gone)
    keeper = ClaimKeeper(Store(str(tmp_path)), "q", lost)
    assert heard.wait(10)
    assert [str(error) for error in told] == ["another driver has it"]
    keeper.release()


def test_a_filesystem_that_does_not_answer_for_a_while_does_no_harm(tmp_path, monkeypatch):
    answers = iter([OSError("not now"), OSError("not now")])
    again = threading.Event()

    def renew(self):
        error = next(answers, None)
        if error is not None:
            raise error
        again.set()

    monkeypatch.setattr(claims.Claim, "renew", renew)
    keeper = ClaimKeeper(Store(str(tmp_path)), "q", lambda error: pytest.fail(str(error)))
    assert again.wait(10)
    keeper.release()
