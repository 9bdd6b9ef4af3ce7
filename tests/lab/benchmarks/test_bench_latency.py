"""What `fluxen bench latency` calls a rate: rows over the wall clock, pauses between batches included."""

from __future__ import annotations

import pytest

from fluxen_lab.benchmarks.job import Batch, Outcome
from fluxen_lab.benchmarks.latency import rates


def outcome(batches: list[tuple[float, float, int]], *, finished: bool = True) -> Outcome:
    """Of batches as (started, seconds, rows)."""
    found = tuple(Batch(number=n, started=s, seconds=took, phases_ms={}) for n, (s, took, _) in enumerate(batches))
    rows = {str(number): rows for number, (_, _, rows) in enumerate(batches)}  # keys are text: it came as JSON
    return Outcome(batches=found, finished=finished, state={"rows": rows})


def test_the_second_half_is_that_of_the_rows_and_a_new_start_counts():
    # four batches of 10 rows, a pause of two seconds, then two of 20
    found = rates(outcome([(0, 1, 10), (1, 1, 10), (2, 1, 10), (3, 1, 10), (6, 1, 20), (7, 2, 20), (9, 1, 0)]))
    assert found is not None
    assert (found.whole, found.batch_s, found.batch_rows) == (pytest.approx(80 / 9), 1.5, 20)
    assert found.second_half == pytest.approx(40 / 5)


def test_a_run_that_did_not_end_has_no_rate():
    batches = [(n, 1.0, 10) for n in range(8)]
    assert rates(outcome(batches)) is not None
    assert rates(outcome(batches, finished=False)) is None
    assert rates(outcome(batches[:3])) is None
