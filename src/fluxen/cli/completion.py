"""`fluxen completion SHELL`: a script that completes commands, options and paths, made from the parsers themselves."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import shtab

__all__ = ["add_parser", "run"]

_PATHS = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY, "CHECKPOINT": shtab.DIRECTORY}
"""what to complete for an argument, by how its help names it"""


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "completion",
        help="print a script that completes this command in a shell",
        description="Print a script for a shell to read: `fluxen completion bash > "
        "~/.local/share/bash-completion/completions/fluxen`, `fluxen completion zsh > _fluxen` in a directory of "
        "$fpath, `fluxen completion fish > ~/.config/fish/completions/fluxen.fish`.",
    )
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="the shell that is to read it")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    _with_paths(args.whole)
    sys.stdout.write(shtab.complete(args.whole, args.shell) + "\n")
    return 0


def _with_paths(parser: argparse.ArgumentParser) -> None:
    """Say of every argument that is a path that it is one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _with_paths(inner)
        elif isinstance(action.metavar, str) and action.metavar in _PATHS:
            action.complete = _PATHS[action.metavar]  # type: ignore[attr-defined]
