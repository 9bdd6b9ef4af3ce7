"""The Flux figures on Spark run from end to end; whether their claims hold is a matter of their full size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fluxen_lab.figures.figure import RunOptions, find, read_rows, write_rows

pytestmark = pytest.mark.spark

SMALL: dict[str, dict[str, Any]] = {
    "flux/3-spark": {"batches": 4, "rows": 80, "kilobytes": (0, 8)},
    "flux/6-spark": {"batches": 2, "rows": 80},
    "flux/7-spark": {"batches": 3, "rows": 80, "counts": (0, 1)},
    "flux/9-spark": {"batches": 6, "rows": 80, "keys": 500},
}


@pytest.mark.parametrize("name", SMALL)
def test_a_small_run_gives_rows_a_plot_and_claims(name: str, spark: Any, tmp_path: Path) -> None:
    figure = find(name)
    data, picture = tmp_path / "data.csv", tmp_path / "plot.png"
    write_rows(figure.run(RunOptions(params=SMALL[name])), data)
    rows = read_rows(data)
    figure.plot(rows, picture)
    assert picture.stat().st_size > 0
    assert set(figure.numbers(rows)) >= {name for claim in figure.claims for name in (*claim.bands, *claim.shown)}
