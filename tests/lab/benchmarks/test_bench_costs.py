"""Unit costs are what the sites' seconds say about the work they report."""

from __future__ import annotations

import numpy as np
import pytest

from fluxen_lab.benchmarks.costs import Trial, fit, trials


def test_unit_costs_are_found_in_what_sites_report():
    rng = np.random.default_rng(1)
    units = {"rows": 0.2e-6, "probes": 0.3e-6, "made": 0.1e-6, "kept": 0.5e-6}
    found = []
    for _ in range(20):
        work = {name: int(rng.integers(10_000, 1_000_000)) for name in units}
        seconds = 0.01 + sum(units[name] * count for name, count in work.items())
        found.append(Trial(seconds=seconds, work=work, read_seconds=0.02, stored_rows=100_000))
    fitted = fit(found)
    assert {name: fitted[name] for name in units} == pytest.approx({name: unit * 1e6 for name, unit in units.items()})
    assert fitted["moved"] == pytest.approx(0.2)
    assert fitted["median_error"] == pytest.approx(0, abs=1e-9)


def test_a_trial_counts_the_work_of_its_steady_batches():
    trial = next(trials(rows=200))
    assert trial.work["rows"] == 6 * 3 * 200
    assert trial.work["probes"] > trial.work["rows"]
    assert trial.work["kept"] > 0
    assert trial.stored_rows > 0
    assert trial.seconds > 0
