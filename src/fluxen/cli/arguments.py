"""Argument types that several commands share; argparse turns their complaints into exit code 2."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def positive(text: str) -> int:
    """A whole number above 0, with or without thousands separators.

    >>> positive("1,000")
    1000
    """
    try:
        value = int(text.replace(",", "").replace("_", ""))
    except ValueError:
        value = 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return value


def at_most(limit: int) -> Callable[[str], int]:
    """A whole number from 1 to `limit`."""

    def number(text: str) -> int:
        value = positive(text)
        if value > limit:
            raise argparse.ArgumentTypeError(f"expected at most {limit}, got {value}")
        return value

    return number


def port(text: str) -> int:
    """A TCP port, 0 for any that is free.

    >>> port("4090")
    4090
    """
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text!r}")
    return int(text)
