"""`fluxen run FILE`: a query in a TOML file, or in an SQL file with its sources and sink in a TOML file beside it, run
until its input ends or Ctrl-C.

`fluxen.cli.query_file` reads and checks the file, `fluxen.spark.from_config` builds the query, and
`examples/offers-query.toml` shows the tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from fluxen.arrays import Json
from fluxen.cli.arguments import port
from fluxen.cli.interrupts import asked_to_stop
from fluxen.cli.progress import Tracker, event_line, follow
from fluxen.cli.query_file import QueryFile, read_query
from fluxen.cli.scratch import LOG, scratch
from fluxen.engine.listeners import logged
from fluxen.state.claim import refuse_if_held
from fluxen.state.store import Store

__all__ = ["add_parser", "run"]

ANY = -1
"""The dashboard's port where none is given."""


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "run",
        help="run a query in a TOML or SQL file",
        description="Run a query described in a TOML file: sources, join, distinct, aggregate, top, sink, adapt, "
        "trigger; or one in SQL, whose sources and sink are in a TOML file of the same name beside it. Paths in a "
        "file are relative to it. Progress goes to stderr.",
    )
    parser.add_argument("file", metavar="FILE", help="the query, a TOML or SQL file")
    parser.add_argument("--plain", action="store_true", help="one line per micro-batch instead of a live view")
    parser.add_argument("--json", action="store_true", help="at the end print one JSON object on stdout")
    parser.add_argument(
        "--dashboard",
        metavar="PORT",
        nargs="?",
        type=port,
        const=ANY,
        help="show the query in a browser while it runs, on this port (default 4090, or the next one that is free)",
    )
    parser.add_argument("--log", metavar="FILE", help="append what happens as JSON lines to FILE (-: to stderr)")
    parser.add_argument("--check", action="store_true", help="check the file without starting Spark")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    query = read_query(Path(args.file))
    if args.check:
        found = {"file": args.file, "sources": list(query.sources), "steps": query.steps, "sink": query.sink["format"]}
        line = f"{args.file}: {', '.join(query.sources)} -> {' -> '.join(query.steps)} -> {query.sink['format']}"
        print(json.dumps(found) if args.json else line)
        return 0
    refuse_if_held(Store(query.sink["checkpoint"]))  # before Spark takes its seconds to start
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with logged(args.log), scratch("run") as work:
        tracker = _run(query, work / LOG, console, args)
    rows, results = tracker.total("rows"), tracker.total("results")
    console.print(f"{query.name}: {rows:,} rows, {results:,} results in {len(tracker.seen)} epochs")
    if args.json:
        sys.stdout.write(json.dumps(_summary(query, tracker)) + "\n")
    if not tracker.stopped:
        return 0
    where, again = query.sink["checkpoint"], f"fluxen run {args.file}"
    console.print(f"stopped; everything shown is committed in {where}, `{again}` goes on from there", markup=False)
    return 130


def _summary(query: QueryFile, tracker: Tracker) -> Json:
    last = tracker.seen[-1] if tracker.seen else None
    return {
        "name": query.name,
        "checkpoint": query.sink["checkpoint"],
        "stopped": tracker.stopped,
        "epochs": len(tracker.seen),
        "last_epoch": None if last is None else last.epoch,
        "rows": tracker.total("rows"),
        "results": tracker.total("results"),
        "late": tracker.total("late"),
        "state_bytes": 0 if last is None else last.state_bytes,
        "events": [event_line(event) for event in tracker.events],
    }


def _run(query: QueryFile, log: Path, console: Console, args: argparse.Namespace) -> Tracker:
    from fluxen.spark.cli_session import explained, quiet_session
    from fluxen.spark.from_config import start

    with quiet_session(log, app=query.name, master=query.master, packages=query.packages, **query.settings) as spark:
        try:
            run = start(spark, query)
            try:
                if args.dashboard is not None:
                    shown = run.dashboard(port=None if args.dashboard == ANY else args.dashboard)
                    console.print(str(shown), markup=False)
                with asked_to_stop() as asked:  # Spark's session has a handler of its own that it would replace
                    return follow(run, query.name, console, plain=args.plain, asked=asked)
            finally:
                if run.isActive:
                    run.stop()
        except Exception as error:
            raise explained(error, log) from error
