from __future__ import annotations

import runpy
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fluxen.cli.main import main
from fluxen.cli.query_file import read_query

pytestmark = pytest.mark.spark
EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name))


def test_every_script_is_tested_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "cheapest_brokers.py",
        "moving_average.py",
        "own_operator.py",
        "your_query.py",
    }


def test_cheapest_brokers_and_the_query_file_agree(spark: Any, tmp_path: Path) -> None:
    module = example("cheapest_brokers.py")
    found = module["main"](tmp_path / "script")
    assert [row[0] for row in found] == [f"broker-{number}" for number in range(5)]
    shutil.copy(EXAMPLES / "offers-query.toml", tmp_path)
    module["write_offers"](tmp_path / "offers")
    assert main(["run", str(tmp_path / "offers-query.toml"), "--plain"]) == 0
    last = {}
    for path in sorted((tmp_path / "cheapest").glob("*.parquet")):  # names start with the epoch
        last.update({row["bank1_broker"]: row for row in pq.read_table(path).to_pylist()})
    assert found == [(broker, row["cheapest"], row["matches"]) for broker, row in sorted(last.items())]


def test_the_sql_file_gives_what_the_script_gives(spark: Any, tmp_path: Path) -> None:
    module = example("cheapest_brokers.py")
    for name in ("cheapest-brokers.sql", "cheapest-brokers.toml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    module["write_offers"](tmp_path / "offers")
    assert main(["run", str(tmp_path / "cheapest-brokers.sql"), "--plain"]) == 0
    last = {}
    for path in sorted((tmp_path / "cheapest-sql").glob("*.parquet")):
        last.update({row["broker"]: row for row in pq.read_table(path).to_pylist()})
    found = [(broker, row["cheapest"], row["matches"]) for broker, row in sorted(last.items())]
    assert found == module["main"](tmp_path / "script")


def test_moving_average(spark: Any, tmp_path: Path) -> None:
    averages, minutes = example("moving_average.py")["main"](tmp_path)
    assert len(averages) == 24
    assert Counter(row.n for row in averages) == {1: 2, 2: 2, 3: 20}
    first = min(row for row in averages if row.n == 3)
    assert (first.symbol, first.mean) == ("A", 102.0)
    assert sum(row.n for row in minutes) == 24
    assert len(minutes) == 8


def test_own_operator(spark: Any, tmp_path: Path) -> None:
    found = example("own_operator.py")["main"](tmp_path)
    expected = sorted((f"user-{i % 3}", float(i * i - (i - 3) ** 2)) for i in range(3, 12))
    assert [tuple(row) for row in found] == expected


def test_your_query_gives_the_same_on_both_engines(spark: Any, tmp_path: Path) -> None:
    found = example("your_query.py")["main"](tmp_path)
    assert [(row.site, row.clicks) for row in found["spark"]] == [("a", 19)] * 3  # the last minute is still open
    assert found["fluxen"] == found["spark"]


def test_every_query_file_passes_its_check() -> None:
    files = [*EXAMPLES.glob("*-query.toml"), *EXAMPLES.glob("*.sql")]
    assert files
    for path in files:
        read_query(path)
