"""A claim of a paper as data: its words, the paper's number, the bands that ours must lie in, how it could fail.

`fluxen_lab.figures.figure` says what a figure is, `fluxen_lab.figures.reproduce` judges its claims.

Guarantee: a number that is missing or not finite is in no band, so nothing holds because nothing was measured.

>>> loss = Claim(claim="static loses about 57 %", paper="57 %", bands={"loss": between(0.5, 0.62)}, mutation="no load")
>>> loss.holds({"loss": 0.57}), loss.holds({"loss": 0.0}), loss.holds({"loss": None})
(True, False, False)
>>> str(loss.bands["loss"]), float("inf") in at_least(1)
('0.5 to 0.62', False)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from fluxen.errors import ConfigError

__all__ = ["Band", "Claim", "Numbers", "above", "at_least", "at_most", "below", "between", "exactly"]

Numbers: TypeAlias = Mapping[str, float | None]
"""What a figure measured, by name; None where there was nothing to measure."""


@dataclass(frozen=True, slots=True)
class Band:
    """The numbers from `low` to `high`; None is no limit, `open` leaves out the limits themselves."""

    low: float | None = None
    high: float | None = None
    open: bool = False

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise ConfigError("band: expected a lower or an upper limit, got none; every number would lie in it")

    def __contains__(self, number: float | None) -> bool:
        if number is None or not math.isfinite(number):
            return False
        if number in (self.low, self.high):
            return not self.open
        return (self.low is None or number > self.low) and (self.high is None or number < self.high)

    def __str__(self) -> str:
        if self.low is None:
            return f"{'below' if self.open else 'at most'} {self.high:g}"
        if self.high is None:
            return f"{'above' if self.open else 'at least'} {self.low:g}"
        return f"exactly {self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"


def between(low: float, high: float) -> Band:
    return Band(low, high)


def exactly(number: float) -> Band:
    return Band(number, number)


def at_least(low: float) -> Band:
    return Band(low=low)


def at_most(high: float) -> Band:
    return Band(high=high)


def above(low: float) -> Band:
    return Band(low=low, open=True)


def below(high: float) -> Band:
    return Band(high=high, open=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement of a paper, or of ours, and what would bear it out.

    bands      for every number it is about, where that must lie
    mutation   the figure's mutation under which it must fail; one that holds all the same says nothing
    shown      numbers to show beside those that decide
    each_seed  it must hold with every seed, not on average: for what is exact
    reason     why it does not hold, as far as that was measured
    """

    claim: str
    paper: Any
    bands: Mapping[str, Band]
    mutation: str
    shown: tuple[str, ...] = ()
    each_seed: bool = False
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.bands:
            raise ConfigError(f"claim {self.claim!r}: expected a band for at least one number, got none")

    def holds(self, numbers: Numbers) -> bool:
        """Whether all its numbers lie in their bands."""
        return all(numbers[name] in band for name, band in self.bands.items())
