"""The split that `fluxen bench skew` calls ideal, and which batches its rates are of."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluxen.policies import Stats
from fluxen_lab.benchmarks.job import Batch, Job, Outcome
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.benchmarks.skew import SETTLED, settled_rows_per_s


def measured(seconds: list[float]) -> Measured:
    batches = tuple(Batch(number=i, seconds=s, started=0.0, phases_ms={}) for i, s in enumerate(seconds))
    job = Job(query="q", data=Path("data"), work=Path("work"))
    return Measured(job=job, outcome=Outcome(batches=batches), rows_per_batch=100, data_batches=len(seconds))


def test_rates_are_of_the_batches_after_the_tenth():
    assert settled_rows_per_s(measured([9.0] * SETTLED + [1.0, 3.0])) == 50
    assert settled_rows_per_s(measured([9.0] * SETTLED)) is None


@pytest.mark.spark
def test_the_ideal_split_leaves_a_site_of_half_the_speed_a_third_of_the_groups():
    from fluxen_lab.benchmarks.spark.skew import Ideal

    policy = Ideal(2.0)
    stats = Stats.build(sites=2, placement=[0] * 6 + [1] * 6, busy=[1.0, 2.0], idle=[1.0, 0.0])
    (move,) = policy.suggest(stats, 0.0)
    assert (move.donor, move.receiver, len(move.pgs)) == (1, 0, 2)
    again = Ideal(2.0)
    again.restore(policy.snapshot())
    assert again.suggest(stats, 1.0) == ()
