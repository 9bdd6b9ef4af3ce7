"""The `fluxen` command. One module per subcommand, imported only when it is called: `inspect` needs no Java.

Exit codes: 0 for success, 1 for an error or a failed check, 2 for bad arguments, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from fluxen import __version__
from fluxen.errors import FluxenError

__all__ = ["main"]

COMMANDS = {
    "demo": "one join under a shifting load: Spark's own, fluxen, and fluxen while it adapts",
    "run": "run a query described in a TOML file",
    "init": "write a commented query file with some input",
    "dashboard": "show queries live in a browser, from their checkpoints",
    "inspect": "show what a checkpoint holds and verify it",
    "bench": "measure against Spark's own operators on the same files",
    "figure": "reproduce a figure of a paper",
    "simulate": "run a policy on a simulated cluster",
    "completion": "print a script that completes this command in a shell",
}
LABORATORY = ("bench", "figure")
"""Subcommands that another distribution, fluxen-lab, brings."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where a policy of the user's own, named by its path, may be
    try:
        args = _parser(words).parse_args(words)
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse has said what is wrong
        return stop.code if isinstance(stop.code, int) else 1
    except FluxenError as error:
        sys.stderr.write(f"fluxen: {' '.join(str(error).split())}\n")
        return 1
    except BrokenPipeError:
        # the reader went away (`fluxen inspect ... | head`); nothing must be flushed into the closed pipe at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nfluxen: interrupted\n")
        return 130


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser with the full arguments of the one command that was named, or of all that are to be completed."""
    parser = argparse.ArgumentParser(prog="fluxen", description="Adaptive stateful streaming for PySpark.")
    parser.add_argument("--version", action="version", version=f"fluxen {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    named = next((word for word in words if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        if name == named or (named == "completion" and _installed(name)):
            _command(name).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    parser.set_defaults(whole=parser)
    return parser


def _installed(name: str) -> bool:
    return name not in LABORATORY or bool(entry_points(group="fluxen.commands", name=name))


def _command(name: str) -> Any:
    """The module of a subcommand."""
    if name not in LABORATORY:
        return import_module(f"fluxen.cli.{name}")
    for found in entry_points(group="fluxen.commands", name=name):
        return found.load()
    raise FluxenError(
        f"`fluxen {name}` is part of the laboratory, which is not installed; run `pip install fluxen-lab`, or "
        "`pip install ./lab` in a clone of fluxen"
    )
