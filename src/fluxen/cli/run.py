"""`fluxen run FILE`: a query in a TOML file, or in an SQL file with its sources and sink in a TOML file beside it, run
until its input ends or Ctrl-C.

`fluxen.cli.query_file` reads and checks the file, `fluxen.spark.from_config` builds the query, and
`examples/offers-query.toml` shows the tables.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from fluxen.cli.progress import follow
from fluxen.cli.query_file import QueryFile, read_query
from fluxen.cli.scratch import LOG, scratch
from fluxen.state.claim import refuse_if_held
from fluxen.state.store import Store

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "run",
        help="run a query in a TOML or SQL file",
        description="Run a query described in a TOML file: sources, join, distinct, aggregate, sink, adapt, trigger; "
        "or one in SQL, whose sources and sink are in a TOML file of the same name beside it. Paths in a file are "
        "relative to it. Progress goes to stderr.",
    )
    parser.add_argument("file", metavar="FILE", help="the query, a TOML or SQL file")
    parser.add_argument("--plain", action="store_true", help="one line per micro-batch instead of a live view")
    parser.add_argument("--check", action="store_true", help="check the file without starting Spark")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    query = read_query(Path(args.file))
    if args.check:
        print(f"{args.file}: {', '.join(query.sources)} -> {' -> '.join(query.steps)} -> {query.sink['format']}")
        return 0
    refuse_if_held(Store(query.sink["checkpoint"]))  # before Spark takes its seconds to start
    with scratch("run") as work:
        _run(query, work / LOG, Console(stderr=True, highlight=False, soft_wrap=True), plain=args.plain)
    return 0


def _run(query: QueryFile, log: Path, console: Console, *, plain: bool) -> None:
    from fluxen.spark.cli_session import explained, quiet_session
    from fluxen.spark.from_config import start

    with quiet_session(log, app=query.name, master=query.master, **query.settings) as spark:
        try:
            run = start(spark, query)
            try:
                tracker = follow(run, query.name, console, plain=plain)
            finally:
                if run.isActive:
                    run.stop()
        except Exception as error:
            raise explained(error, log) from error
    rows, results = tracker.total("rows"), tracker.total("results")
    console.print(f"{query.name}: {rows:,} rows, {results:,} results in {len(tracker.seen)} epochs")
