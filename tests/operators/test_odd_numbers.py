"""Numbers at the edge of what their types hold: aggregates of them are right, or say so; a sum that its type does not
hold ends the query."""

from __future__ import annotations

import math
from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluxen.testing as ft
from fluxen.errors import QueryError
from fluxen.operators.aggregate import functions as fx
from fluxen.operators.aggregate.measures import Measure
from fluxen.operators.aggregate.overflow import check_sums

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


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["9" * 38, "1", "0"], pa.decimal128(38, 0)),
        (["-" + "9" * 37 + ".9", "-0.1", "0"], pa.decimal128(38, 1)),
        (["9" * 38] * 4, pa.decimal128(38, 0)),
    ],
)
def test_a_sum_of_decimals_without_room_is_an_error(tmp_path, values, kind):
    """The third is so large that what is left of it would be of the other sign."""
    given = pa.array([Decimal(value) for value in values], kind)
    for function in (fx.sum("v"), fx.avg("v"), fx.sum("v", distinct=True) if len(set(values)) > 1 else fx.sum("v")):
        with pytest.raises(QueryError, match="is larger than decimal128"):
            newest(tmp_path / str(function), given, "running", total=function)


def test_decimals_up_to_the_last_digit_have_a_sum(tmp_path):
    values = pa.array([Decimal("9" * 38), Decimal(-1), Decimal(1), None], pa.decimal128(38, 0))
    assert newest(tmp_path, values, "running", total=fx.sum("v"))["total"] == Decimal("9" * 38)


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([2**62, 2**62], True),
        ([2**62, 2**62 - 1], False),
        ([-(2**62), -(2**62)], False),
        ([-(2**62), -(2**62), -1], True),
        ([2**63 - 1, None, 1, -1], False),
        ([2**63 - 1, 1, 5, -(2**63), -5], False),
    ],
)
def test_a_sum_of_whole_numbers_is_an_error_where_it_does_not_fit_and_the_session_is_strict(values, ends):
    column = pa.chunked_array([pa.array(values, pa.int64())])
    starts, counts = np.array([0]), np.array([len(values)])
    for strict in (True, False):
        total = Measure(name="total", kind="sum", column="v", type=pa.int64(), strict=strict)
        with pytest.raises(QueryError, match="is larger than int64") if ends and strict else nullcontext():
            check_sums(total, [column], starts, counts)


@pytest.mark.parametrize("form", FORMS)
def test_the_spread_of_an_infinite_value_is_no_number(tmp_path, form):
    found = newest(tmp_path, pa.array([1.0, math.inf, 2.0]), form, off=fx.stddev("v"), mean=fx.avg("v"))
    assert math.isnan(found["off"])
    assert found["mean"] == math.inf
