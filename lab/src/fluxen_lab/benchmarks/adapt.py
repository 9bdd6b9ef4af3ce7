"""`fluxen bench adapt`: one controller against the policies that were made for each case, on two pinned executors.

Seven scenarios (datagen/scenarios.py and datagen/changing.py have their rows): busy processes beside one of two
executors; a hot key that comes and goes; state of three times the memory; rates that change; keys whose popularity
drifts; load that goes from a tenth to full and back; and a run with all of it. Each runs under Static, under the
papers' policies made for it, and under Auto, by turns in one warm session, three rounds in alternating order. A rate is
the rows of the batches after the first two over their seconds and those of what comes after the last one: what was not
computed, because it was on disk, is owed then, and whoever pushes more would look faster without it. The median of the
rounds counts, and their spread is told. The results of every variant's last round are compared with DuckDB's.

`python -m fluxen_lab.benchmarks.plots adapt.json adapt.png` draws what the command has printed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from fluxen_lab.benchmarks import oracle, report
from fluxen_lab.benchmarks.compare import Column, compare, parquet_relation
from fluxen_lab.benchmarks.context import TOLERANCE, Context, Prepared
from fluxen_lab.benchmarks.runner import WARM_UP_BATCHES, Measured
from fluxen_lab.benchmarks.turns import Engine
from fluxen_lab.datagen.changing import REPLAN, Changing
from fluxen_lab.datagen.scenarios import DRIFT, HOG, HOTKEY, LOAD, MEMORY, MIXED, Shaped
from fluxen_lab.datagen.workloads import Workload

__all__ = ["SCENARIOS", "Scenario", "run"]

ROUNDS = 3
_CLUSTER = "local-cluster[2,1,1024]"
_LIMIT_S = 120.0
_ROW_BYTES = 8 + 8 + 8 + 4 + 64
"""Of a row of a joined stream in state: key, time, value, offset and characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What happens, and which policies were made for it."""

    name: str
    workload: Workload
    expected: str
    """which of the oracle's queries"""
    singles: tuple[str, ...]
    hog: tuple[int, int] | None = None
    """batches between which processes keep the second executor's core busy"""
    memory: float | None = None
    """of both sites, as a share of the state"""

    @property
    def variants(self) -> tuple[str, ...]:
        return ("static", *self.singles, "auto")


SCENARIOS = (
    Scenario(name="hog", workload=HOG, expected="last10", singles=("flux-load", "flux-hybrid"), hog=(4, 24)),
    Scenario(name="hotkey", workload=HOTKEY, expected="pair", singles=("flux-load", "readj")),
    Scenario(name="memory", workload=MEMORY, expected="pair", singles=("lazy-disk", "active-disk"), memory=1 / 3),
    Scenario(name="rates", workload=REPLAN, expected="join", singles=("replan", "replan-flux-load")),
    Scenario(name="drift", workload=DRIFT, expected="last10", singles=("flux-load", "readj")),
    Scenario(name="load", workload=LOAD, expected="last10", singles=("flux-load", "flux-hybrid")),
    Scenario(
        name="mixed",
        workload=MIXED,
        expected="pair",
        singles=("flux-load", "lazy-disk", "active-disk", "readj"),
        hog=(4, 14),
        memory=0.15,
    ),
)


def run(context: Context) -> dict[str, Any]:
    parts = [_part(context, scenario) for scenario in SCENARIOS]
    mixed = next(part for part in parts if part["name"] == "mixed")
    return report.whole("adapt", context.options, parts, auto_of_best_in_mixed=mixed["ratio"], rounds=ROUNDS)


def _part(context: Context, scenario: Scenario) -> dict[str, Any]:
    prepared = context.prepare(scenario.workload)
    jobs = {variant: _job(context, prepared, scenario, variant) for variant in scenario.variants}
    first = next(iter(jobs.values()))
    runs: dict[str, list[Measured]] = {variant: [] for variant in jobs}
    with Engine(first, prepared.workload.batches) as engine:
        for number in range(ROUNDS):
            order = list(jobs) if number % 2 == 0 else list(jobs)[::-1]
            for variant in order:
                name = f"{scenario.name} {variant}, round {number + 1}"
                runs[variant].append(context.turn(engine, jobs[variant], name, prepared.workload.batch_rows))
    context.oracle(scenario.name, _sql(scenario, prepared))
    wrong = {variant: told for variant in jobs if (told := _difference(context, scenario, runs[variant][-1]))}
    context.connection.execute(f"DROP TABLE {scenario.name}")
    return _found(scenario, prepared, runs, wrong)


def _job(context: Context, prepared: Prepared, scenario: Scenario, variant: str) -> Any:
    job = context.job(prepared, f"fluxen-adapt-{scenario.name}-{variant}", name=f"adapt-{scenario.name}")
    memory = None
    if scenario.memory is not None:
        memory = max(1 << 20, round(scenario.memory * prepared.workload.rows * _ROW_BYTES / 2))
    rehearsed = context.rehearsal(prepared, 4)
    return replace(
        job, master=_CLUSTER, sink="parquet", memory=memory, hog=scenario.hog, limit_s=_LIMIT_S, rehearsal=rehearsed
    )


def _found(
    scenario: Scenario, prepared: Prepared, runs: dict[str, list[Measured]], wrong: dict[str, str]
) -> dict[str, Any]:
    rates = {variant: [rate(one, prepared.workload) for one in mine] for variant, mine in runs.items()}
    medians = {variant: _median(found) for variant, found in rates.items()}
    singles = {variant: medians[variant] for variant in scenario.singles}
    best = max((found for found in (medians["static"], *singles.values()) if found), default=None)
    last = runs["auto"][-1]
    return {
        "name": scenario.name,
        "rows": prepared.workload.rows,
        "correct": not wrong,
        "wrong": wrong,
        "static": medians["static"],
        "singles": singles,
        "auto": medians["auto"],
        "spread": {variant: _spread(found) for variant, found in rates.items()},
        "fluxen_rows_per_s": medians["auto"],
        "spark_rows_per_s": None,
        "ratio": report.ratio(medians["auto"], best),
        "owed_seconds": {variant: round(median(map(_owed_seconds, mine)), 2) for variant, mine in runs.items()},
        "batch_seconds": last.percentiles(),
        "peak_rss_mb": round(last.peak.pss_mb),
        "adapted": {variant: mine[-1].outcome.state.get("done") for variant, mine in runs.items()},
        "predictions": last.outcome.state.get("predictions"),
    }


def rate(measured: Measured, workload: Workload) -> float | None:
    """Rows per second of the batches after the first ones, until nothing is owed; None for a run that did not end."""
    steady = [batch for batch in measured.batches if batch.number >= WARM_UP_BATCHES]
    if not measured.outcome.finished or not steady:
        return None
    seconds = sum(batch.seconds for batch in steady) + _owed_seconds(measured)
    return sum(_rows(workload, batch.number) for batch in steady) / seconds


def _owed_seconds(measured: Measured) -> float:
    return float(measured.outcome.state.get("owed_seconds", 0.0))


def _rows(workload: Workload, batch: int) -> int:
    if isinstance(workload, Shaped):
        return workload.counts(batch) * len(workload.streams)
    return sum(workload.counts(batch)) if isinstance(workload, Changing) else workload.batch_rows


def _median(rates: list[float | None]) -> int | None:
    known = [found for found in rates if found is not None]
    return round(median(known)) if len(known) == len(rates) else None


def _spread(rates: list[float | None]) -> list[int] | None:
    known = [found for found in rates if found is not None]
    return [round(min(known)), round(max(known))] if known else None


def _sql(scenario: Scenario, prepared: Prepared) -> str:
    if scenario.expected == "last10":
        return oracle.last10_sql(prepared.data)
    others = "b" if scenario.expected == "pair" else "bc"
    return oracle.join_sql(prepared.data, prepared.workload.bound_us, others)


def _columns(scenario: Scenario) -> tuple[Column, ...]:
    return oracle.our_columns(scenario.expected)


def _difference(context: Context, scenario: Scenario, measured: Measured) -> str:
    """What is wrong with a run's results; empty where nothing is."""
    if not measured.outcome.finished:
        return measured.outcome.error or "the run did not finish"
    columns = _columns(scenario)
    found = compare(
        context.connection,
        f"SELECT * FROM {scenario.name}",
        parquet_relation(measured.job.out, columns),
        columns,
        tolerance=TOLERANCE if scenario.expected == "last10" else None,
    )
    return "" if found.equal else found.detail
