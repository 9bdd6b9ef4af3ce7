"""`fluxen dashboard CHECKPOINT...`: the page over checkpoints of queries that run, here or elsewhere, or have ended.

Reads the files alone, so it needs neither Java nor the queries. The page itself is `fluxen.dashboard`.
"""

from __future__ import annotations

import argparse
import threading
from typing import Any

from rich.console import Console

from fluxen.cli.arguments import port
from fluxen.dashboard import serve
from fluxen.state.epoch import opened

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "dashboard",
        help="show queries live in a browser, from their checkpoints",
        description="Serve the page that shows queries: rates, placement, memory, adaptations, why a batch was slow. "
        "Reads the checkpoints alone; /metrics is for Prometheus. Ends with Ctrl-C.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", nargs="+", help="a query's checkpointLocation, path or URI")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default 127.0.0.1: this machine alone)")
    parser.add_argument("--port", type=port, help="default: 4090, or the next one that is free")
    parser.add_argument("--token", help="what every request must bring; made up if --host is not this machine alone")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    page = serve(*map(opened, args.checkpoint), host=args.host, port=args.port, token=args.token)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"dashboard at {page.url} (Ctrl-C ends it)", markup=False)
    threading.Event().wait()
    return 0
