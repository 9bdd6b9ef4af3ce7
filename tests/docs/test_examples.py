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
        "auctions.py",
        "cheapest_brokers.py",
        "fraud.py",
        "moving_average.py",
        "network_monitoring.py",
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


def test_auctions_finds_the_highest_valid_bids_and_the_hottest_auctions(spark: Any, tmp_path: Path) -> None:
    module = example("auctions.py")
    won, hottest = module["main"](tmp_path)
    house = module["house"]()
    opened = {row["id"]: row for table in house["auctions"] for row in table.to_pylist()}
    bids = [row for table in house["bids"] for row in table.to_pylist()]
    best: dict[int, tuple[int, Any]] = {}
    for bid in bids:
        auction = opened[bid["auction"]]
        in_time = auction["opened"] <= bid["ts"] <= auction["opened"] + module["OPEN"]
        if in_time and bid["price"] >= auction["reserve"]:
            best[auction["id"]] = max(
                best.get(auction["id"], (0, 0)), (bid["price"], bid["bidder"]), key=lambda b: b[0]
            )
    assert len(best) > 60
    assert {row.id: (row.bid_price, row.bid_bidder) for row in won} == best
    counts = Counter((bid["ts"].replace(second=0, microsecond=0), bid["auction"]) for bid in bids)
    minutes = {minute for minute, _ in counts}
    most = {minute: max(count for (at, _), count in counts.items() if at == minute) for minute in minutes}
    assert {row.minute.minute: row.bids for row in hottest} == {minute.minute: count for minute, count in most.items()}


def test_fraud_names_the_thieves_and_the_burst(spark: Any, tmp_path: Path) -> None:
    module = example("fraud.py")
    found = Counter((row.card, row.why) for row in module["main"](tmp_path))
    assert found == {**{(card, "no login"): 1 for card in module["THIEVES"]}, (module["BURST"], "burst"): 1}


def test_network_monitoring_finds_the_flood(spark: Any, tmp_path: Path) -> None:
    module = example("network_monitoring.py")
    slow, ranked = module["main"](tmp_path)
    rows = [row for table in module["traffic"]() for row in table.to_pylist()]
    expected: Counter[str] = Counter()
    for client in {row["client"] for row in rows}:
        delays = [row["delay"] for row in rows if row["client"] == client]
        expected[client] = sum(sum(delays[at - 10 : at]) > 1_000 for at in range(10, len(delays) + 1))
    assert {row.client: row["count"] for row in slow} == {client: n for client, n in expected.items() if n}
    assert f"10.0.0.{module['FLOODING']}" in expected
    assert [row.window.start.minute for row in ranked] == [0, 1, 2]
    assert ranked[1].client == f"10.0.0.{module['FLOODING']}"


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
