"""The JSON's shape, the rates in it, and the command's answers to bad arguments."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import pytest

from fluxen_lab.benchmarks import report
from fluxen_lab.benchmarks.compare import Comparison
from fluxen_lab.benchmarks.context import Options
from fluxen_lab.benchmarks.growth import neighbourhood
from fluxen_lab.benchmarks.job import Batch, Job, Outcome, Settings
from fluxen_lab.benchmarks.memory import footprint, session_pids
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.commands import bench as command

REQUIRED = {
    "bench",
    "rows",
    "correct",
    "fluxen_rows_per_s",
    "spark_rows_per_s",
    "ratio",
    "batch_seconds",
    "peak_rss_mb",
}
EQUAL = Comparison(equal=True, expected_rows=5, actual_rows=5, detail="")


def measured(
    *seconds: float, query: str = "q", in_flight_s: float = 0.0, finished: bool = True, tuned: bool = False
) -> Measured:
    batches = tuple(
        Batch(number=number, seconds=taken, started=float(number), phases_ms={"addBatch": int(taken * 1e3)})
        for number, taken in enumerate(seconds)
    )
    outcome = Outcome(batches=batches, finished=finished, in_flight_s=in_flight_s)
    job = Job(query=query, data=Path("data"), work=Path("work"), settings=Settings(tuned=tuned))
    return Measured(job=job, outcome=outcome, rows_per_batch=100, data_batches=4)


def test_the_steady_rate_leaves_out_two_warm_up_batches_and_the_empty_one_at_the_end() -> None:
    run = measured(9.0, 5.0, 1.0, 3.0, 50.0)
    assert run.rows_per_s == 50.0
    assert run.warm_up_seconds == (9.0, 5.0)
    assert run.percentiles() == {"p50": 2.0, "p99": 2.98, "max": 3.0}


def test_a_run_stopped_in_its_first_steady_batch_has_an_upper_bound_only() -> None:
    run = measured(9.0, 5.0, in_flight_s=20.0, finished=False)
    assert run.rows_per_s is None
    assert report.rate(run) == 5.0
    assert report.baseline(run)["rate_is_upper_bound"] is True


def test_a_batch_that_has_hardly_begun_bounds_nothing() -> None:
    assert report.rate(measured(9.0, 5.0, in_flight_s=0.1, finished=False)) is None


def test_json_has_the_public_fields_and_the_smallest_ratio() -> None:
    slow, fast = measured(1, 1, 4.0, 4.0, query="slow"), measured(1, 1, 2.0, 2.0, query="fast")
    easy = report.part("easy", 400, measured(1, 1, 0.5, 0.5), EQUAL, [(slow, EQUAL), (fast, None)])
    hard = report.part("hard", 400, measured(1, 1, 1.0, 1.0), EQUAL, [(fast, None)])
    found = json.loads(json.dumps(report.whole("demo", Options(), [easy, hard], duckdb_seconds=1.0)))
    assert found.keys() >= REQUIRED
    assert all((REQUIRED - {"bench"}) | {"name"} <= part.keys() for part in found["parts"])
    assert (found["ratio"], found["limiting_part"], found["rows"], found["correct"]) == (2.0, "hard", 800, True)
    assert (easy["spark_fastest"], easy["ratio"]) == ("fast", 4.0)


def test_spark_with_the_settings_of_fluxen_has_a_ratio_of_its_own() -> None:
    plain, tuned = measured(1, 1, 4.0), measured(1, 1, 2.0, tuned=True)
    found = report.part("part", 400, measured(1, 1, 1.0), EQUAL, [(plain, None), (tuned, None)])
    assert (found["ratio"], found["ratio_tuned"]) == (4.0, 2.0)
    assert [run["tuned"] for run in found["spark"]] == [False, True]


def test_a_part_without_a_result_makes_the_whole_incorrect_and_its_ratio_unknown() -> None:
    good = report.part("good", 400, measured(1, 1, 1.0), EQUAL, [(measured(1, 1, 2.0), EQUAL)])
    failed = report.part("failed", 400, measured(), None, [(measured(1, 1, 2.0), EQUAL)])
    found = report.whole("demo", Options(), [good, failed])
    assert (found["correct"], found["ratio"], found["limiting_part"]) == (False, None, "failed")


def test_job_and_outcome_survive_the_trip_between_processes(tmp_path: Path) -> None:
    settings = Settings(provider="rocksdb", shuffle_partitions=8)
    job = Job(query="q", data=tmp_path, work=tmp_path, settings=settings, rehearsal=tmp_path / "r")
    job.save(tmp_path / "job.json")
    assert Job.load(tmp_path / "job.json") == job
    outcome = measured(1.0, 2.0).outcome
    outcome.save(tmp_path / "outcome.json")
    assert Outcome.load(tmp_path / "outcome.json") == outcome


def test_growth_neighbourhoods_lie_around_their_multiple_and_inside_the_run() -> None:
    assert [neighbourhood(multiple, 125) for multiple in (1, 3, 10, 30)] == [
        range(2, 7),
        range(9, 16),
        range(36, 45),
        range(116, 125),
    ]


def test_footprint_sees_this_process() -> None:
    session = os.getsid(0)
    assert os.getpid() in session_pids(session)
    assert footprint(session).rss_mb > 10


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fluxen")
    command.add_parser(parser.add_subparsers())
    return parser.parse_args(["bench", *arguments])


def test_list_prints_one_name_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(parse("--list")) == 0
    assert capsys.readouterr().out.split("\n") == [
        "adapt",
        "aggregate",
        "growth",
        "join",
        "kafka",
        "latency",
        "memory",
        "move",
        "nexmark",
        "query",
        "replan",
        "skew",
        "",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nope", "--json"),
        ("join", "--scale", "0"),
        ("join", "--scale", "nan"),
        ("join", "--scale", "much"),
        ("growth", "--rediscover"),
        ("join", "--keep", "."),
    ],
)
def test_bad_arguments_get_one_line_and_exit_2(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert command.run(parse(*arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fluxen bench: ")
    assert err.count("\n") == 1
