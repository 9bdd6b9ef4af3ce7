"""``fluxen figure``: reproduce a figure of a paper and judge its claims. The work is in `fluxen_lab.figures.figure`.

Exit code: 0 when every claim holds, 1 when one fails, 2 when the figure is unknown or something it needs is missing.
Progress goes to stderr, so that stdout carries nothing but JSON under ``--json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fluxen.errors import ConfigError, FluxenError
from fluxen_lab.figures import figure as figures

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add ``figure`` to the command line's subparsers; the parsed namespace carries ``run``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "figure",
        help="reproduce a figure of a paper: CSV, PNG and each claim with what was measured",
        description="Reproduce a figure of a paper: data as CSV, a PNG, and each claim with what was measured. "
        "Exit code 1 if a claim fails.",
    )
    parser.add_argument("name", nargs="?", metavar="PAPER/NUMBER", help="the figure, for instance gedik/3")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    parser.add_argument("--out", default="out/figures", metavar="DIR", help="where CSV and PNG go (%(default)s)")
    parser.add_argument("--list", action="store_true", help="list the figures")
    parser.add_argument("--all", action="store_true", help="reproduce all figures")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Carry out the parsed command; the return value is the exit code."""
    try:
        return _run(args)
    except FluxenError as error:
        print(f"fluxen figure: {error}", file=sys.stderr)
        return 2


def _run(args: argparse.Namespace) -> int:
    if args.list:
        return _list(as_json=args.json)
    if args.all:
        names = figures.figure_names()
    elif args.name:
        names = [figures.find(args.name).name]
    else:
        raise ConfigError("no figure given: expected PAPER/NUMBER such as gedik/3, or --list, or --all")
    results = [_one(name, args.out, as_json=args.json) for name in names]
    if args.json:
        print(json.dumps({"figures": results} if args.all else results[0], default=_plain))
    return 0 if all(claim["holds"] for result in results for claim in result["claims"]) else 1


def _list(*, as_json: bool) -> int:
    found = figures.figures()
    if as_json:
        print(json.dumps([{"figure": name, "title": figure.title} for name, figure in found.items()]))
    else:
        for name, figure in found.items():
            print(f"{name:16} {figure.title}")
    return 0


def _one(name: str, out: str, *, as_json: bool) -> dict[str, Any]:
    console = Console(stderr=True)
    with console.status(escape(name)) as status:
        result = figures.reproduce(name, out, lambda message: status.update(escape(message)))
    if not as_json:
        _show(result)
    return result


def _show(result: dict[str, Any]) -> None:
    table = Table(title=escape(f"{result['figure']}: {result['title']}"), title_justify="left")
    for column in ("claim", "holds", "measured", "paper"):
        table.add_column(column)
    for claim in result["claims"]:
        holds = "[green]yes[/]" if claim["holds"] else "[red]no[/]"
        table.add_row(escape(claim["claim"]), holds, escape(str(claim["measured"])), escape(str(claim["paper"])))
    console = Console()
    console.print(table)
    console.print(escape(f"{result['csv']}  {result['png']}  ({result['seconds']:.1f} s)"), soft_wrap=True)


def _plain(value: Any) -> Any:
    """numpy scalars and arrays in a claim become plain JSON values."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
