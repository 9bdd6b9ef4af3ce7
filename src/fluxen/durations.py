"""Lengths of time as users write them, in microseconds."""

from __future__ import annotations

import re
from datetime import timedelta

from fluxen.arrays import UNBOUNDED
from fluxen.errors import QueryError

_UNITS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-z]+)")


def microseconds(length: str | timedelta, what: str, *, positive: bool = False, signed: bool = False) -> int:
    """Parse "90 seconds", "1 hour 30 minutes", "-200 ms" or a timedelta.

    >>> microseconds("1 minute 30 seconds", "window")
    90000000
    """
    value = _parse(length, what)
    if positive and value <= 0:
        raise QueryError(f"{what} must be positive, got {length!r}; try '10 seconds'")
    if value < 0 and not signed:
        raise QueryError(f"{what} must not be negative, got {length!r}; try '0 seconds'")
    return value


def words(length: int) -> str:
    """A length of time, in microseconds, as people write it.

    >>> words(90_000_000), words(7 * 86_400_000_000), words(1_500)
    ('90 seconds', '7 days', '1500 microseconds')
    """
    for unit in ("day", "hour", "minute", "second", "millisecond"):
        if length % _UNITS[unit] == 0:
            count = length // _UNITS[unit]
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{length} microseconds"


def expiry(life: int, clock: str, give: str) -> str:
    """When state goes, for `Operator.keeps`; `give` are the words that would make it go."""
    return f"which never expires: give {give}" if life >= UNBOUNDED else f"for {words(life)} of {clock}"


def _parse(length: str | timedelta, what: str) -> int:
    if isinstance(length, timedelta):
        return length // timedelta(microseconds=1)
    text = str(length).strip().lower().removeprefix("interval").strip()
    total, at = 0.0, 0
    for part in _PART.finditer(text):
        unit = part.group(2)
        scale = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if scale is None or text[at : part.start()].strip():
            break
        total += float(part.group(1)) * scale
        at = part.end()
    if at == 0 or text[at:].strip():
        raise QueryError(
            f"{what} is not a length of time: {length!r}; write it like '60 seconds', '200 ms' or '1 hour'"
        )
    return round(total)
