"""`python -m fluxen_lab.benchmarks.soak`: every query in process and on Spark, a table of quarters, a plot; exits 1 if
any grew.

Each run is a process of its own whose output goes to a file beside its samples.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fluxen_lab.benchmarks.soak.queries import QUERIES
from fluxen_lab.benchmarks.soak.samples import COLUMNS, Sample, load
from fluxen_lab.benchmarks.soak.verdict import LIMITS, Column, judge
from fluxen_lab.plotting import pyplot

LEAST = 80
_Which = tuple[str, str]
"""a runtime and a query"""
_STARTED: list[subprocess.Popen[bytes]] = []
WORKERS = {"local": "fluxen_lab.benchmarks.soak.local", "spark": "fluxen_lab.benchmarks.spark.soak"}


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    console = Console(stderr=True, highlight=False)
    runs = [(runtime, name) for runtime in args.runtime for name in args.only or QUERIES]

    def one(run: _Which) -> str | None:
        runtime, name = run
        batches = args.batches * QUERIES[name].longer if runtime == "local" else args.spark_batches
        started = time.monotonic()
        console.print(f"{name}, {runtime}, {batches:,} batches: begun")
        problem = _run(runtime, name, batches, Path(args.out) / runtime / name)
        console.print(f"{name}, {runtime}: {problem or 'done'} after {time.monotonic() - started:,.0f} s")
        return problem

    problems = dict(zip(runs, _side_by_side(one, runs, args.jobs)))
    failures = [f"{runtime} {name}: {problem}" for (runtime, name), problem in problems.items() if problem]
    found = {
        (runtime, name): load(Path(args.out) / runtime / name / "samples")
        for (runtime, name), problem in problems.items()
        if problem is None
    }
    verdicts = {run: judge(samples) for run, samples in found.items()}
    Console(highlight=False).print(_table(verdicts))
    _keep(Path(args.out), verdicts)
    _plot(found, Path(args.out) / "soak.png")
    grown = [
        f"{runtime} {name}: {column.name} {column.second:,.1f} -> {column.last:,.1f}"
        for (runtime, name), columns in verdicts.items()
        for column in columns
        if not column.flat
    ]
    for line in (*failures, *grown):
        print(line)
    return 1 if failures or grown else 0


def _side_by_side(one: Callable[[_Which], str | None], runs: Sequence[_Which], jobs: int) -> list[str | None]:
    """Several runs at a time: what is sampled is processor time, so they may share the machine."""
    pool = ThreadPoolExecutor(jobs)
    try:
        return list(pool.map(one, runs))
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in _STARTED:
            process.kill()
        raise
    finally:
        pool.shutdown()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fluxen_lab.benchmarks.soak", description=__doc__)
    parser.add_argument("--batches", type=_enough, default=5_000, help="batches of each run in process (default 5,000)")
    parser.add_argument("--spark-batches", type=_enough, default=600, help="batches of each run on Spark (default 600)")
    parser.add_argument("--only", nargs="*", choices=sorted(QUERIES), help="these queries instead of all")
    parser.add_argument(
        "--runtime", nargs="*", choices=sorted(WORKERS), default=list(WORKERS), help="where to run them"
    )
    parser.add_argument("--jobs", type=int, default=1, choices=range(1, 9), help="runs at a time (default 1)")
    parser.add_argument("--out", default="out/soak", help="samples, logs, table and plot go there (default out/soak)")
    return parser


def _enough(text: str) -> int:
    """A number of batches with samples in every quarter."""
    if not text.isdigit() or int(text) < LEAST:
        raise argparse.ArgumentTypeError(f"expected at least {LEAST} batches, got {text!r}")
    return int(text)


def _run(runtime: str, name: str, batches: int, work: Path) -> str | None:
    """What went wrong, if anything; samples are in `work` then."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with (work / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", WORKERS[runtime], name, str(batches), str(work.absolute())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            start_new_session=True,
        )
        _STARTED.append(process)
        process.wait()
    shutil.rmtree(work / "checkpoint", ignore_errors=True)
    shutil.rmtree(work / "data", ignore_errors=True)
    return None if process.returncode == 0 else f"ended with code {process.returncode}; see {work / 'log'}"


def _table(verdicts: dict[tuple[str, str], list[Column]]) -> Table:
    table = Table(title="second quarter -> last quarter; at most 1.05x, memory and time 1.15x")
    for heading in ("where", "query", *COLUMNS):
        table.add_column(heading, justify="left" if heading in ("where", "query") else "right")
    for (runtime, name), columns in verdicts.items():
        cells = [f"{c.last:,.1f} ({c.ratio:.2f}x{'' if c.flat else ' GROWS'})" for c in columns]
        table.add_row(runtime, name, *cells)
    return table


def _keep(out: Path, verdicts: dict[tuple[str, str], list[Column]]) -> None:
    rows = [
        {"where": runtime, "query": name, **asdict(column), "limit": LIMITS[column.name], "flat": column.flat}
        for (runtime, name), columns in verdicts.items()
        for column in columns
    ]
    (out / "soak.json").write_text(json.dumps(rows, indent=1))


def _plot(found: dict[tuple[str, str], list[Sample]], path: Path) -> None:
    """A panel per column and runtime, a line per query."""
    runtimes = sorted({runtime for runtime, _ in found})
    if not runtimes:
        return
    size = (3.2 * len(COLUMNS), 3.0 * len(runtimes))
    figure, grid = pyplot().subplots(len(runtimes), len(COLUMNS), figsize=size, squeeze=False)
    for row, runtime in zip(grid, runtimes):
        for axes, column in zip(row, COLUMNS):
            for (where, name), samples in found.items():
                if where == runtime:
                    axes.plot(
                        [s.batch for s in samples], [getattr(s, column) for s in samples], linewidth=0.7, label=name
                    )
            axes.set_title(f"{column}, {runtime}", fontsize=9)
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
    grid[0][0].legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot().close(figure)


if __name__ == "__main__":
    sys.exit(main())
