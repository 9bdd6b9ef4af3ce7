"""Gedik's figures, small: each runs, plots from its CSV alone and judges; the toy example in full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluxen_lab.datagen.gedik import counted, key_hashes, stream, zipf
from fluxen_lab.figures.figure import RunOptions, find, read_rows, write_rows
from fluxen_lab.figures.gedik import FIGURES
from fluxen_lab.figures.gedik.ours import least_migration
from fluxen_lab.figures.gedik.trial import ALGORITHMS, Setting, measure
from fluxen_lab.figures.reproduce import averaged, reproduce

pytestmark = pytest.mark.long

SMALL: dict[str, dict[str, Any]] = {
    "gedik/3": {"domain": 1000, "sites": 3, "placements": 2},
    "gedik/6": {"domain": 1000, "sites": 4},
    "gedik/7": {"domain": 1000, "sites": 3},
    "gedik/8": {"domains": (500, 1000), "sites": 3},
    "gedik/loads": {"domain": 1000},
    "gedik/slotted": {"domain": 1000, "sites": 3, "skews": (0.5, 1.0), "small_keys": 20},
}


def test_the_toy_example_has_the_papers_numbers(tmp_path: Path) -> None:
    result = reproduce("gedik/1", tmp_path)
    assert [claim["holds"] for claim in result["claims"]] == [True] * 5


@pytest.mark.parametrize("name", SMALL)
def test_a_small_run_is_plotted_and_judged_from_its_csv(name: str, tmp_path: Path) -> None:
    result = reproduce(name, tmp_path, options=RunOptions(seeds=1, params=SMALL[name]))
    assert Path(result["png"]).stat().st_size > 5000
    rows = read_rows(Path(result["csv"]))
    assert len(rows) > 10
    figure = find(name)
    numbers = figure.numbers(averaged(rows, figure.by))
    assert [claim["holds"] for claim in result["claims"]] == [claim.holds(numbers) for claim in figure.claims]
    figure.plot(rows, tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == Path(result["png"]).read_bytes()


def test_runs_reproduce_under_a_seed(tmp_path: Path) -> None:
    options = RunOptions(params={"domain": 1000, "sites": 4})
    for name in ("one", "two"):
        write_rows(FIGURES["gedik/6"].run(options), tmp_path / name)
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text()
    other = FIGURES["gedik/6"].run(RunOptions(seed=9, params={"domain": 1000, "sites": 4}))
    assert [row["b"] for row in other] != [row["b"] for row in read_rows(tmp_path / "one")]


def test_a_claim_can_fail() -> None:
    figure = FIGURES["gedik/6"]
    rows = figure.run(RunOptions(params={"domain": 1000, "sites": 4}))
    fooled = [row | ({"m": 0.5} if row["algorithm"] == "uniform" else {}) for row in rows]
    assert not figure.claims[0].holds(figure.numbers(fooled))


def test_a_mutation_puts_another_algorithm_or_value_in_the_place_of_one_and_keeps_its_name() -> None:
    small = Setting(sites=4, domain=1000)
    (uniform,), (readj,) = measure("uniform", small, run=0), measure("readj", small, run=0)
    (row,) = measure("readj", replace(small, instead={"algorithm": {"readj": "uniform"}}), run=0)
    assert row["algorithm"] == "readj"
    assert (row["b"], row["m"]) == (uniform["b"], uniform["m"]) != (readj["b"], readj["m"])
    swapped = replace(small, instead={"algorithm": {"readj": "uniform", "uniform": "readj"}})
    assert measure("uniform", swapped, run=0)[0]["m"] == readj["m"]
    (calm,) = measure("readj", replace(small, z=0.5), run=0)
    (row,) = measure("readj", replace(small, z=1.0, instead={"z": {1.0: 0.5}}), run=0)
    assert (row["z"], row["b"]) == (1.0, calm["b"])
    (quadratic,) = measure("readj", replace(small, resources="LQL"), run=0)
    (row,) = measure("readj", replace(small, resources="LQL", instead={"resources": {"LQL": "LLL"}}), run=0)
    assert row["resources"] == "LQL"
    assert row["b"] != quadratic["b"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_measured_at_the_last_step(name: str) -> None:
    (row,) = measure(name, Setting(sites=4, domain=1000), run=0)
    assert row["sites"] == 4
    assert row["m"] == pytest.approx(3.0, abs=1.0) if name == "uniform" else row["m"] < 2.0
    all_steps = measure(name, Setting(sites=4, domain=1000), run=0, every=(2, 3, 4))
    assert [step["sites"] for step in all_steps] == [2, 3, 4]
    assert all_steps[-1] == row


def test_the_workload_is_zipf_and_the_sketch_finds_its_head() -> None:
    share = zipf(1000, 1.0)
    assert share.sum() == pytest.approx(1.0)
    assert share[0] / share[9] == pytest.approx(10.0)
    assert len(np.unique(key_hashes(1000, 0))) == 1000
    assert not np.intersect1d(key_hashes(1000, 0), key_hashes(1000, 1)).size
    rows = stream(1000, 1.0, 0)
    head = key_hashes(1000, 0)[0]
    assert np.mean(rows == head) == pytest.approx(share[0], rel=0.02)
    known = counted(1000, 1.0, 0, 0.001)
    assert float(known.of(np.array([head]))[0]) == pytest.approx(share[0], rel=0.02)


def test_the_integer_program_finds_the_least_migration_of_a_case_done_by_hand() -> None:
    share = np.array([0.4, 0.3, 0.2, 0.1])
    old = np.zeros(4, dtype=np.int32)
    assert least_migration(old, share, 2, 1.0) == pytest.approx(0.5, rel=0.01)
    assert least_migration(old, share, 2, 1.5) == pytest.approx(0.4, rel=0.01)
    assert least_migration(old, share, 2, 4.0) == pytest.approx(0.2, rel=0.01)
