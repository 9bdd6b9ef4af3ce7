"""Numbers at the edge of what their types hold: aggregates of them are right, or say so, and never end a query."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import fluxen.testing as ft
from fluxen.operators.aggregate import functions as fx

LARGE = 2**53 + 1
"""the first integer that no double is equal to"""
FORMS: dict[str, dict[str, Any]] = {"running": {}, "last": {"last": 20}}


def newest(tmp_path: Any, values: pa.Array, form: str, **aggregates: fx.Aggregate) -> dict[str, Any]:
    """The result after all values of one key, which come in two batches."""
    rows = pa.table({"k": pa.array([1] * len(values)), "v": values})
    stage = ft.aggregate(rows.schema, "k", **FORMS[form], **aggregates)
    engine = ft.LocalEngine([stage], str(tmp_path))
    engine.step(0, [rows.slice(0, 2)])
    found: list[dict[str, Any]] = engine.step(1, [rows.slice(2)]).to_pylist()
    return found[-1]


@pytest.mark.parametrize("form", FORMS)
def test_means_of_integers_that_no_double_is_equal_to(tmp_path, form):
    found = newest(tmp_path, pa.array([LARGE, LARGE, LARGE]), form, mean=fx.avg("v"), off=fx.stddev("v"))
    assert found == {"k": 1, "mean": float(LARGE), "off": 0.0}


def test_means_of_distinct_integers_that_no_double_is_equal_to(tmp_path):
    found = newest(tmp_path, pa.array([LARGE, LARGE, LARGE + 2]), "running", mean=fx.avg("v", distinct=True))
    assert found["mean"] == pytest.approx(LARGE + 1)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("form", FORMS)
def test_sums_of_decimals_have_as_many_digits_as_they_need(tmp_path, form, sign):
    value = Decimal("9999999999999999.99") * sign
    values = pa.array([value] * 15 + [None], pa.decimal128(18, 2))
    found = newest(tmp_path, values, form, total=fx.sum("v"), mean=fx.avg("v"))
    assert found == {"k": 1, "total": value * 15, "mean": value}


@pytest.mark.parametrize("form", FORMS)
def test_the_spread_of_an_infinite_value_is_no_number(tmp_path, form):
    found = newest(tmp_path, pa.array([1.0, math.inf, 2.0]), form, off=fx.stddev("v"), mean=fx.avg("v"))
    assert math.isnan(found["off"])
    assert found["mean"] == math.inf
