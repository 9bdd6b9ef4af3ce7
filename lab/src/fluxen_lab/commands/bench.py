"""`fluxen bench NAME --json`: measure against Spark's own operators and print one JSON object.

The benchmarks themselves are in fluxen_lab.benchmarks.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from fluxen_lab.benchmarks import BENCHES, SEARCHABLE, Context, Options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("bench", help="measure against Spark's own operators on the same files")
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"one of {', '.join(BENCHES)}")
    parser.add_argument("--list", action="store_true", help="print the benchmarks' names, one a line")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--scale", default="1", metavar="X", help="share of the rows, for a smoke run (default 1)")
    parser.add_argument("--rediscover", action="store_true", help="search Spark's best settings again first")
    parser.add_argument(
        "--sink",
        choices=("parquet", "noop"),
        default="noop",
        help="what both engines do with results: compute and drop them (default) or append them to parquet files",
    )
    parser.add_argument("--keep", metavar="DIR", help="keep data, results and Spark's logs in DIR, a new folder")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.list:
        sys.stdout.write("".join(f"{name}\n" for name in BENCHES))
        return 0
    problem = _problem(args)
    if problem:
        sys.stderr.write(f"fluxen bench: {problem}\n")
        return 2
    options = Options(scale=float(args.scale), rediscover=args.rediscover, sink=args.sink)
    console = Console(stderr=True, highlight=False)
    work = Path(args.keep).absolute() if args.keep else Path(tempfile.mkdtemp(prefix="fluxen-bench-"))
    # asked to end: leave through the clean-up below instead of at once
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with console.status(f"fluxen bench {args.name}"):
            context = Context(work=work, options=options, say=lambda line: console.print(line, markup=False))
            found = BENCHES[args.name](context)
    finally:
        signal.signal(signal.SIGTERM, before)
        if not args.keep:
            shutil.rmtree(work, ignore_errors=True)
    if args.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        Console(highlight=False).print(_table(found))
    return 0 if found["correct"] else 1


def _problem(args: argparse.Namespace) -> str | None:
    """What is wrong with the arguments, in one line."""
    expected = f"expected one of {', '.join(BENCHES)}"
    if args.name is None:
        return f"no benchmark named; {expected}"
    if args.name not in BENCHES:
        return f"unknown benchmark {args.name!r}; {expected}"
    try:
        scale = float(args.scale)
    except ValueError:
        return f"--scale must be a number above 0 and at most 10, got {args.scale!r}"
    if not math.isfinite(scale) or not 0 < scale <= 10:
        return f"--scale must be a number above 0 and at most 10, got {args.scale!r}"
    if args.rediscover and args.name not in SEARCHABLE:
        return f"--rediscover has nothing to search for {args.name}; it applies to {', '.join(sorted(SEARCHABLE))}"
    if args.keep and Path(args.keep).exists():
        return f"--keep needs a folder that does not exist yet, {args.keep!r} does; name another"
    return None


def _table(found: dict[str, Any]) -> Table:
    table = Table(title=f"{found['bench']}, {found['rows']:,} rows, scale {found['scale']}")
    for heading in ("part", "correct", "fluxen rows/s", "Spark rows/s", "ratio", "p50 s", "p99 s", "MB"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    for part in found["parts"]:
        seconds = part["batch_seconds"] or {}
        cells = (
            part["correct"],
            part["fluxen_rows_per_s"],
            part["spark_rows_per_s"],
            part["ratio"],
            seconds.get("p50"),
            seconds.get("p99"),
            part["peak_rss_mb"],
        )
        table.add_row(part["name"], *(_cell(cell) for cell in cells))
    return table


def _cell(value: float | bool | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:,}"
