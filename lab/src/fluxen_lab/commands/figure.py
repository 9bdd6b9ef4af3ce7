"""``fluxen figure``: reproduce a figure of a paper and judge its claims. The work is in `fluxen_lab.figures.reproduce`.

Exit code: 0 when every claim holds, 1 when one fails, 2 when the figure is unknown or something it needs is missing.
With ``--mutate`` the question is another one, whether claims can fail: 1 when one that holds survives its mutation.
Progress goes to stderr, so that stdout carries nothing but JSON under ``--json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from fluxen.errors import ConfigError, FluxenError
from fluxen_lab.figures import figure as figures
from fluxen_lab.figures.evidence import page
from fluxen_lab.figures.figure import RunOptions
from fluxen_lab.figures.reproduce import finished, plain, reproduce, survivors

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add ``figure`` to the command line's subparsers; the parsed namespace carries ``run``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "figure",
        help="reproduce a figure of a paper: CSV, PNG and each claim with what was measured",
        description="Reproduce a figure of a paper: data as CSV, a PNG, and each claim with what was measured. "
        "Exit code 1 if a claim fails; with --mutate, if a claim that holds cannot fail.",
    )
    parser.add_argument("name", nargs="?", metavar="PAPER/NUMBER", help="the figure, for instance gedik/3")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    parser.add_argument("--out", default="out/figures", metavar="DIR", help="where CSV and PNG go (%(default)s)")
    parser.add_argument("--list", action="store_true", help="list the figures")
    parser.add_argument("--all", action="store_true", help="reproduce all figures")
    parser.add_argument("--spark", choices=("only", "none"), help="with --all: those on Spark, or the others")
    parser.add_argument("--page", metavar="FILE", help="write all that DIR has as a page, after every figure")
    parser.add_argument("--seeds", type=int, metavar="N", help="seeds to average over (the figure's own)")
    parser.add_argument("--resume", action="store_true", help="keep what the same code has left in DIR")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="figures at once (%(default)s); not on Spark")
    parser.add_argument("--mutate", action="store_true", help="also run without what each claim is about")
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
        found = figures.figures().values()
        names = [one.name for one in found if args.spark in (None, "only" if one.place == "Spark" else "none")]
    elif args.name:
        names = [figures.find(args.name).name]
    else:
        raise ConfigError("no figure given: expected PAPER/NUMBER such as gedik/3, or --list, or --all")
    for option, value in (("--seeds", args.seeds), ("--jobs", args.jobs)):
        if value is not None and value < 1:
            raise ConfigError(f"{option}: expected at least 1, got {value}")
    by_name = {}
    for number, result in enumerate(_at_once(names, args) if args.jobs > 1 else _in_turn(names, args), start=1):
        by_name[result["figure"]] = result
        if args.page:
            Path(args.page).write_text(page(Path(args.out)), encoding="utf-8")
        if not args.json:
            _show(result, f"{number} of {len(names)}")
    results = [by_name[name] for name in names]
    if args.json:
        print(json.dumps({"figures": results} if args.all else results[0], default=plain))
    if args.mutate:
        return 1 if any(survivors(result) for result in results) else 0
    return 0 if all(claim["holds"] for result in results for claim in result["claims"]) else 1


def _list(*, as_json: bool) -> int:
    found = figures.figures()
    if as_json:
        print(json.dumps([{"figure": one.name, "title": one.title, "place": one.place} for one in found.values()]))
    else:
        for name, figure in found.items():
            print(f"{name:16} {figure.title}")
    return 0


def _in_turn(names: Sequence[str], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Results one after the other, saying on the terminal how far each is."""
    kept: dict[Any, Any] = {}  # some figures show the same runs
    for number, name in enumerate(names, start=1):
        with Console(stderr=True).status(escape(name)) as status:

            def say(message: str, number: int = number, status: Status = status) -> None:
                status.update(escape(f"({number} of {len(names)}) {message}"))

            options = RunOptions(seeds=args.seeds, kept=kept, progress=say)
            result = _one(name, args.out, options, mutate=args.mutate, resume=args.resume)
        yield result


def _at_once(names: Sequence[str], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Results as they come, from several processes."""
    if any(figures.find(name).place == "Spark" for name in names):
        raise ConfigError("--jobs: figures on Spark run one at a time; with --all, leave them out by --spark none")
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        how = {"mutate": args.mutate, "resume": args.resume}
        begun = [pool.submit(_alone, name, args.out, args.seeds, **how) for name in names]
        for done in as_completed(begun):
            yield done.result()


def _alone(name: str, out: str, seeds: int | None, **how: bool) -> dict[str, Any]:
    return _one(name, out, RunOptions(seeds=seeds), **how)


def _one(name: str, out: str, options: RunOptions, *, mutate: bool, resume: bool) -> dict[str, Any]:
    found = finished(name, out, options, mutate=mutate) if resume else None
    return found or reproduce(name, out, options.progress, options, mutate=mutate)


def _show(result: dict[str, Any], number: str) -> None:
    table = Table(title=escape(f"{result['figure']}: {result['title']}"), title_justify="left")
    for column in ("claim", "holds", "measured (band)", "paper", "fails when"):
        table.add_column(column)
    for claim in result["claims"]:
        holds = "[green]yes[/]" if claim["holds"] else "[red]no[/]"
        cells = (_measured(claim), claim["paper"], _mutated(claim))
        table.add_row(escape(claim["claim"]), holds, *(escape(str(cell)) for cell in cells))
    console = Console()
    console.print(table)
    console.print(escape(f"{result['csv']}  {result['png']}  ({result['seconds']:.1f} s; {number})"), soft_wrap=True)


def _measured(claim: dict[str, Any]) -> str:
    """A line per number, with its band if it has one."""
    bands = {name: f" ({band})" for name, band in claim["bands"].items()}
    return "\n".join(f"{name} {number}{bands.get(name, '')}" for name, number in claim["measured"].items())


def _mutated(claim: dict[str, Any]) -> str:
    """By what the claim can fail, and whether it did."""
    said = str(claim["mutation"])
    if "holds_mutated" in claim and claim["holds"]:
        said += ": holds all the same, so it cannot fail" if claim["holds_mutated"] else ": fails"
    return said
