"""Equations 9 to 13 on cases small enough to do by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fluxen.partitioning.metrics import imbalance, migration, objective, site_loads
from fluxen.partitioning.resources import Resources

# the toy example: X Z V R U Y W L
TIMES = np.array([5.0, 3, 2, 1, 4, 3, 3, 1])
FIRST = np.array([0, 0, 0, 0, 1, 1, 1, 1], dtype=np.int32)


def test_loads_of_the_toy_example() -> None:
    loads = site_loads(FIRST, TIMES, 2, Resources.of("LQL"))
    assert loads["n"].tolist() == [11, 11]
    assert loads["c"].tolist() == [39, 35]


def test_imbalance_is_the_geometric_mean_over_resources_relative_to_alpha() -> None:
    found = imbalance(FIRST, TIMES, 2, Resources.of("LQL"), alpha=1.2)
    assert found["b_n"] == pytest.approx(1 / 1.2)
    assert found["b_c"] == pytest.approx(39 / 35 / 1.2)
    assert found["b"] == pytest.approx((39 / 35) ** (1 / 3) / 1.2)


def test_constant_resources_count_keys() -> None:
    places = np.array([0, 0, 0, 1], dtype=np.int32)
    assert imbalance(places, np.full(4, 0.25), 2, Resources.of("CCL"), alpha=1.0)["b_s"] == pytest.approx(3.0)


def test_a_site_without_load_is_infinitely_unbalanced() -> None:
    assert imbalance(FIRST, TIMES, 3, Resources(), alpha=1.2)["b"] == float("inf")


@pytest.mark.parametrize(("letters", "moved"), [("LCL", 7 / 22 * 3), ("CCL", 2 / 8 * 3), ("QCL", 25 / 74 * 3)])
def test_migration_weighs_keys_by_their_state(letters: str, moved: float) -> None:
    after = FIRST.copy()
    after[[4, 5]] = 2  # U and Y, 4 + 3
    assert migration(FIRST, after, TIMES, (2, 3), Resources.of(letters)) == pytest.approx(moved)


def test_moving_exactly_the_removed_site_is_ideal() -> None:
    before = np.array([0, 1, 2, 3], dtype=np.int32)
    after = np.array([0, 1, 2, 0], dtype=np.int32)
    assert migration(before, after, np.full(4, 0.25), (4, 3), Resources()) == pytest.approx(1.0)


def test_objective() -> None:
    assert objective(1.5, 0.5) == pytest.approx(2.25)
