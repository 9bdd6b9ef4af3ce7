"""``fluxen simulate FILE``: the production policies on a simulated cluster. The work is in `fluxen.sim`.

The file is TOML; `examples/simulate-one-slow-site.toml` shows every table. Exit code: 0 when the run is done, 2 when
the file is missing or wrong. `decision_ms` is processor time of the coordinator: a decision waits for nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fluxen.errors import ConfigError, FluxenError
from fluxen.sim.scenario import parse
from fluxen.sim.simulator import Result, Scenario, Simulator

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add ``simulate`` to the command line's subparsers; the parsed namespace carries ``run``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "simulate",
        help="run a policy on a simulated cluster",
        description="Run a policy on a simulated cluster described in a TOML file: throughput and latency per second, "
        "the adaptations, and what each decision cost the coordinator.",
    )
    parser.add_argument("file", metavar="FILE", help="the scenario, a TOML file")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Carry out the parsed command; the return value is the exit code."""
    try:
        scenario, policy = parse(_read(Path(args.file)))
        console = Console(stderr=True)
        started = time.perf_counter()
        with console.status(escape(f"simulating {scenario.seconds:g} s of {scenario.cluster.sites} sites")):
            result = Simulator(scenario, policy=policy, clock=time.thread_time).run()
        report = _report(scenario, type(policy).__name__, result, time.perf_counter() - started)
    except FluxenError as error:
        print(f"fluxen simulate: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(report))
    else:
        _show(report)
    return 0


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the scenario {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the scenario {path} is not TOML: {error}") from error


def _report(scenario: Scenario, policy: str, result: Result, wall: float) -> dict[str, Any]:
    done = [event for event in result.events if event.outcome == "done"]
    refused = [event for event in result.events if event.outcome == "refused"]
    cost = result.decisions * 1e3
    tenth = max(1, len(result.seconds) // 10)
    return {
        "policy": policy,
        "sites": scenario.cluster.sites,
        "groups": scenario.cluster.groups,
        "simulated_seconds": scenario.seconds,
        "wall_seconds": round(wall, 3),
        "tuples_per_s": round(result.mean),
        "steady_tuples_per_s": round(result.steady(tenth)),
        "steady_latency_s": _number(float(np.nanmean(result.latency[-tenth:]))) if result.mean else None,
        "moves": len(done),
        "bytes_moved": sum(event.bytes for event in done),
        "refused": sum(event.count for event in refused),
        "decision_ms": {
            "rounds": len(cost),
            "p50": _number(float(np.percentile(cost, 50))) if len(cost) else None,
            "p99": _number(float(np.percentile(cost, 99))) if len(cost) else None,
            "max": _number(float(cost.max())) if len(cost) else None,
        },
        "per_second": [
            {"second": _number(s), "tuples_per_s": round(t), "latency_s": _number(latency), "moves": int(m)}
            for s, t, latency, m in zip(result.seconds, result.throughput, result.latency, result.moves)
        ],
    }


def _number(value: float) -> float | None:
    return None if not np.isfinite(value) else float(f"{value:.6g}")


def _show(report: dict[str, Any]) -> None:
    table = Table(title=escape(f"{report['policy']} on {report['sites']} sites"), title_justify="left")
    for column in ("second", "tuples/s", "latency (s)", "moves"):
        table.add_column(column, justify="right")
    for row in report["per_second"]:
        latency = "" if row["latency_s"] is None else f"{row['latency_s']:.3g}"
        table.add_row(f"{row['second']:g}", f"{row['tuples_per_s']:,}", latency, str(row["moves"]))
    console = Console()
    console.print(table)
    cost = report["decision_ms"]
    console.print(
        f"mean {report['tuples_per_s']:,} tuples/s, at the end {report['steady_tuples_per_s']:,}; "
        f"{report['moves']} moves, {report['refused']} refused"
    )
    console.print(
        f"{cost['rounds']} decisions of {cost['p50']} ms (p50), {cost['max']} ms (max); "
        f"{report['simulated_seconds']:g} s simulated in {report['wall_seconds']:.1f} s"
    )
