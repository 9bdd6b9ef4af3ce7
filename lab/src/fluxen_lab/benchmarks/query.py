"""`fluxen bench query`: DataFrames written for Spark, started as they are and through `fx.query(df)`, by turns.

The DataFrames are in spark/queries.py; what they must give, over all rows at once, is here. Both engines have the same
session settings, those that fluxen makes for a local disk, since a job that changes one line keeps its session; Spark
has its better state store and number of shuffle partitions on top (settings.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fluxen_lab.benchmarks import report
from fluxen_lab.benchmarks.compare import Column, Comparison, Kind, compare, parquet_relation
from fluxen_lab.benchmarks.context import TOLERANCE, Context, Prepared
from fluxen_lab.benchmarks.job import Settings
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.benchmarks.settings import best_settings
from fluxen_lab.benchmarks.turns import Engine
from fluxen_lab.datagen.workloads import (
    QUERY_ROWS,
    QUERY_THREE,
    QUERY_THREE_LARGE,
    QUERY_TWO,
    QUERY_TWO_LARGE,
    Workload,
)

__all__ = ["PARTS", "Part", "expected_sql", "run", "within"]

ROUNDS = 3
REHEARSAL_S = 40.0
_LIMIT_S = 60.0
_CHECK_LIMIT_S = 300.0
_SETTLE_US = 2_000_000
"""Watermarks count milliseconds in one engine and microseconds in the other, and may trail a batch's last row."""
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One query: its input, what it gives, and which results every engine owes when the input ends."""

    name: str
    workload: Workload
    columns: tuple[Column, ...]
    sql: Callable[[Path, int], str]
    closed: str = "true"
    """a condition on results; `{end}` is the last event time that all inputs have reached, in microseconds"""
    close_us: int = 0
    """how much earlier than that a result must end to be owed"""


def _columns(**kinds: Kind) -> tuple[Column, ...]:
    return tuple(Column(name=name, kind=kind) for name, kind in kinds.items())


def _files(data: Path, stream: str) -> str:
    return f"read_parquet('{data / stream}/*.parquet')"


def _side(data: Path, name: str) -> str:
    listed = f"key AS {name}_key, epoch_us(ts) AS {name}_ts, value AS {name}_value, text AS {name}_text"
    return f"(SELECT {listed} FROM {_files(data, name)}) {name}"


def _near(name: str, bound: int) -> str:
    return f"a_key = {name}_key AND {name}_ts BETWEEN a_ts - {bound} AND a_ts + {bound}"


def _two(data: Path, bound: int, columns: Sequence[Column]) -> str:
    listed = ", ".join(column.name for column in columns)
    return f"SELECT {listed} FROM {_side(data, 'a')} JOIN {_side(data, 'b')} ON {_near('b', bound)}"


def _three(data: Path, bound: int, columns: Sequence[Column]) -> str:
    return f"{_two(data, bound, columns)} JOIN {_side(data, 'c')} ON {_near('c', bound)}"


def _left(data: Path, bound: int, columns: Sequence[Column]) -> str:
    listed = ", ".join(column.name for column in columns)
    follows = f"a_key = b_key AND b_ts BETWEEN a_ts AND a_ts + {bound}"
    return f"SELECT {listed} FROM {_side(data, 'a')} LEFT JOIN {_side(data, 'b')} ON {follows}"


def _windows(data: Path, bound: int) -> str:
    window = 10 * _SECOND
    pairs = f"{_side(data, 'a')} JOIN {_side(data, 'b')} ON {_near('b', bound)}"
    return (
        f"SELECT a_key % 100 AS part, a_ts - a_ts % {window} AS start, count(*) AS n, sum(b_value) AS total "
        f"FROM {pairs} GROUP BY ALL"
    )


def _hops(data: Path, bound: int) -> str:
    slide = 5 * _SECOND
    last = f"epoch_us(ts) - epoch_us(ts) % {slide}"
    starts = ", ".join(f"{last} - {back * slide}" for back in range(4))
    rows = f"SELECT key, value, unnest([{starts}]) AS start FROM {_files(data, 'rows')}"
    return f"SELECT key, start, count(*) AS n, sum(value) AS total, max(value) AS high FROM ({rows}) GROUP BY ALL"


_A: dict[str, Kind] = {"a_key": "int", "a_ts": "time", "a_value": "float", "a_text": "text"}
_PAIR = _columns(**_A, b_ts="time", b_value="float", b_text="text")
_TRIPLE = _columns(**_A, b_value="float", b_text="text", c_ts="time", c_value="float", c_text="text")
_BOUND = QUERY_TWO.bound_us or 0
PARTS = (
    Part(name="two-way", workload=QUERY_TWO, columns=_PAIR, sql=partial(_two, columns=_PAIR)),
    Part(name="three-way", workload=QUERY_THREE, columns=_TRIPLE, sql=partial(_three, columns=_TRIPLE)),
    Part(name="two-way-large", workload=QUERY_TWO_LARGE, columns=_PAIR, sql=partial(_two, columns=_PAIR)),
    Part(name="three-way-large", workload=QUERY_THREE_LARGE, columns=_TRIPLE, sql=partial(_three, columns=_TRIPLE)),
    Part(
        name="left-outer",
        workload=QUERY_TWO,
        columns=_PAIR,
        sql=partial(_left, columns=_PAIR),
        closed="b_ts IS NOT NULL OR a_ts <= {end}",
        close_us=_BOUND,
    ),
    Part(
        name="join-then-window",
        workload=QUERY_TWO,
        columns=_columns(part="int", start="time", n="int", total="float"),
        sql=_windows,
        closed="start <= {end}",
        close_us=2 * _BOUND + 10 * _SECOND,
    ),
    Part(
        name="hopping",
        workload=QUERY_ROWS,
        columns=_columns(key="int", start="time", n="int", total="float", high="float"),
        sql=_hops,
        closed="start <= {end}",
        close_us=20 * _SECOND,
    ),
)


def run(context: Context, parts: Sequence[Part] = PARTS, rounds: int = ROUNDS) -> dict[str, Any]:
    found, tried, prepared = [], {}, dict[str, Prepared]()
    for part in parts:
        name = part.workload.name
        prepared[name] = prepared[name] if name in prepared else context.prepare(part.workload)
        settings, trials = best_settings(context, prepared[name], f"query-{part.name}", f"query-{part.name}")
        found.append(_part(context, part, prepared[name], replace(settings, tuned=True), rounds))
        tried[part.name] = [trial.as_json() for trial in trials]
    return report.whole("query", context.options, found, settings_tried=tried)


def _part(context: Context, part: Part, prepared: Prepared, settings: Settings, rounds: int) -> dict[str, Any]:
    runs: dict[str, list[Measured]] = {"fluxen": [], "spark": []}
    compared: dict[str, Comparison | None] = {}
    context.oracle("expected", part.sql(prepared.data, prepared.workload.bound_us or 0))
    with (
        _engine(context, prepared, f"fluxen-query-{part.name}", Settings()) as ours,
        _engine(context, prepared, f"query-{part.name}", settings) as native,
    ):
        engines = {"fluxen": ours, "spark": native}
        for number in range(rounds):
            for name, engine in engines.items():
                said = f"{part.name}, {name}, {number + 1}"
                runs[name].append(context.turn(engine, engine.job, said, prepared.workload.batch_rows))
        for name, engine in engines.items():
            compared[name] = _checked(context, part, prepared, engine, name)
    return _reported(part, prepared, runs, compared)


def _engine(context: Context, prepared: Prepared, query: str, settings: Settings) -> Engine:
    seconds = REHEARSAL_S * min(1.0, context.options.scale)
    job = replace(
        context.job(prepared, query),
        settings=settings,
        limit_s=_LIMIT_S,
        grace_s=_LIMIT_S,
        rehearsal=context.rehearsal(prepared),
        rehearsal_s=seconds,
    )
    return Engine(job, prepared.workload.batches)


def _checked(context: Context, part: Part, prepared: Prepared, engine: Engine, name: str) -> Comparison | None:
    """The results of a run that writes them; what timed runs compute is dropped."""
    job = replace(engine.job, sink="parquet", limit_s=_CHECK_LIMIT_S)
    again = context.turn(engine, job, f"{part.name}, {name}, checked", prepared.workload.batch_rows)
    if not again.outcome.finished:
        return None
    found = compare(
        context.connection,
        within(part, prepared.data, "SELECT * FROM expected"),
        within(part, prepared.data, parquet_relation(again.job.out, part.columns)),
        part.columns,
        tolerance=TOLERANCE,
    )
    verdict = "equal the oracle's" if found.equal else f"DIFFER from the oracle's: {found.detail}"
    context.say(f"  results {verdict} ({found.expected_rows:,} rows)")
    return found


def within(part: Part, data: Path, results: str) -> str:
    """Those of some results that are owed when the input ends: a window still open then is nobody's mistake."""
    ends = ", ".join(f"(SELECT max(epoch_us(ts)) FROM {_files(data, stream.name)})" for stream in part.workload.streams)
    end = f"(least({ends}) - {part.close_us + _SETTLE_US})"
    return f"SELECT * FROM ({results}) WHERE {part.closed.format(end=end)}"


def expected_sql(part: Part, data: Path) -> str:
    """What a part must give over the files in `data`, as far as it is owed."""
    return within(part, data, part.sql(data, part.workload.bound_us or 0))


def _reported(
    part: Part, prepared: Prepared, runs: dict[str, list[Measured]], compared: dict[str, Comparison | None]
) -> dict[str, Any]:
    rates = {name: [report.rate(one) for one in found] for name, found in runs.items()}
    middle = {name: report.median_rate(found) for name, found in runs.items()}
    ours, typical = (
        min(runs[name], key=lambda one: abs((report.rate(one) or 0.0) - (middle[name] or 0.0)))
        for name in ("fluxen", "spark")
    )
    found = report.part(part.name, prepared.workload.rows, ours, compared["fluxen"], [(typical, compared["spark"])])
    settings = typical.job.settings
    return found | {
        "correct": all(one is not None and one.equal for one in compared.values()),
        "fluxen_correct": compared["fluxen"] is not None and compared["fluxen"].equal,
        "spark_correct": compared["spark"] is not None and compared["spark"].equal,
        "fluxen_rows_per_s": report.rounded(middle["fluxen"]),
        "spark_rows_per_s": report.rounded(middle["spark"]),
        "ratio": report.ratio(middle["fluxen"], middle["spark"]),
        "fluxen_runs": [report.rounded(one) for one in rates["fluxen"]],
        "spark_runs": [report.rounded(one) for one in rates["spark"]],
        "spark_settings": str(settings),
    }
