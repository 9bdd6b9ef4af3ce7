"""How large batches should be: limits of sources that follow a latency target, by doubling and halving.

A batch costs something however few rows it has, so larger ones get more done; they also take longer. What a batch of
another size would take follows from what batches of two sizes have taken, and as long as there is only one, from the
sites' own time, which grows with the rows, and the rest, which is taken not to. To change a source's limit its query
has to be started again (`fluxen.spark.limits`), so a larger size must pay for that, and a smaller one comes only when
batches take clearly too long. Where a larger limit has not brought more rows, the source had no more to give: then the
limit is left alone until batches grow.

>>> sizes = BatchSizes(target=1.0)
>>> def batches(rows, seconds, busy, n=PATIENCE + WARMING):
...     return [sizes.after(rows=rows, seconds=seconds, busy=busy) for _ in range(n)][-1]
>>> change = batches(150_000, 0.65, 0.2)
>>> change.factor, change.why
(2.0, 'batches of 150000 rows take 0.65 s; of 2 times as many 0.85 s is predicted')
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

__all__ = ["PATIENCE", "WARMING", "BatchSizes", "Resize"]

WARMING = 2
"""Batches after a start that say nothing."""
PATIENCE = 3
"""Batches, after those, that a decision takes."""
REMEMBERED = 5
FITS, TOO_LONG = 1.05, 1.3
"""A larger batch may be predicted to take so much of the target; a batch that takes so much is too large."""
SURELY_FITS = 0.75
"""The same for a size that has taken too long before, and for any once a size has been kept for `SETTLED` decisions."""
SETTLED = 16
WORTH = 0.1
"""Share of the time per row that a larger size must save."""
HORIZON = 50
"""Batches within which it must have paid for the new start."""
BROUGHT = 1.4
"""How many times as many rows must have come with twice the limit, if the limit was what kept them."""
STEPS = 3
"""Doublings at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """A change of all sources' limits, by a factor."""

    factor: float
    why: str


class BatchSizes:
    """Decides on one query's limits; times in seconds, `target` is what a batch should take."""

    def __init__(self, *, target: float) -> None:
        self.target = target
        self.factor = 1.0
        """of the limits that the query began with"""
        self.starting = 2.0
        """seconds that a new start takes"""
        self._seen: list[tuple[float, float, float]] = []  # (rows, seconds, busy) with these limits
        self._skip = WARMING
        self._since = 0  # decisions to stay
        self._sizes: dict[float, tuple[float, float]] = {}  # factor -> rows and seconds of its batches
        self._enough: float | None = None  # rows of a batch that a larger limit did not make larger
        self._grown: float | None = None  # rows of a batch before the limit became larger
        self._ceiling = float("inf")  # factor at which batches have taken too long
        self._smallest = False

    def started(self, seconds: float, *, smallest: bool) -> None:
        """The query has been started again, which took so long; `smallest`: no source's limit can be lower."""
        self.starting = (self.starting + seconds) / 2
        self._smallest = smallest

    def after(self, *, rows: float, seconds: float, busy: float) -> Resize | None:
        """What to do after a batch; `busy` is the time of the slowest sites. Empty batches say nothing."""
        if rows <= 0:
            return None
        if self._skip > 0:
            self._skip -= 1
            return None
        self._seen = [*self._seen, (rows, seconds, busy)][-REMEMBERED:]
        if len(self._seen) < PATIENCE:
            return None
        rows, seconds, busy = (median(column) for column in zip(*self._seen))
        self._since = min(self._since + 1, SETTLED)
        self._sizes[self.factor] = (rows, seconds)
        if self._grown is not None and rows < BROUGHT * self._grown:
            self._enough = rows
        self._grown = None
        if self._enough is not None and rows > BROUGHT * self._enough:
            self._enough = None
        return self._smaller(rows, seconds, busy) or self._larger(rows, seconds, busy)

    def _smaller(self, rows: float, seconds: float, busy: float) -> Resize | None:
        if seconds <= TOO_LONG * self.target or self._smallest:
            return None
        steps = 1
        while steps < STEPS and self._takes(0.5**steps, rows, seconds, busy) > self.target:
            steps += 1
        self._ceiling = self.factor
        return self._resized(0.5**steps, f"batches of {rows:.0f} rows take {seconds:.2f} s, not {self.target:g} s")

    def _larger(self, rows: float, seconds: float, busy: float) -> Resize | None:
        if self._enough is not None:
            return None
        best = None
        # what one size alone says is a guess: the next one will tell
        for step in range(1, (STEPS if len(self._sizes) > 1 else 1) + 1):
            takes = self._takes(2.0**step, rows, seconds, busy)
            new = self.factor * 2**step < self._ceiling and self._since < SETTLED
            limit = FITS if new else SURELY_FITS
            if takes > limit * self.target:
                break
            per_row = seconds - takes / 2**step  # saved on as many rows as a batch has now
            if per_row >= WORTH * seconds and HORIZON * per_row > self.starting:
                best = (step, takes)
        if best is None:
            return None
        step, takes = best
        why = f"batches of {rows:.0f} rows take {seconds:.2f} s; of {2**step} times as many {takes:.2f} s is predicted"
        self._grown = rows
        return self._resized(2.0**step, why)

    def _takes(self, factor: float, rows: float, seconds: float, busy: float) -> float:
        """Seconds of a batch of so many times the rows."""
        fixed = max(seconds - busy, 0.0)
        others = [(abs(size - self.factor), found) for size, found in self._sizes.items() if size != self.factor]
        if others:
            _, (known_rows, known_seconds) = min(others)
            if abs(rows - known_rows) > 0.2 * rows:
                slope = (seconds - known_seconds) / (rows - known_rows)
                fixed = min(max(seconds - slope * rows, 0.0), seconds)
        return fixed + factor * (seconds - fixed)

    def _resized(self, factor: float, why: str) -> Resize:
        self.factor *= factor
        self._seen, self._skip, self._since = [], WARMING, 0
        return Resize(factor=factor, why=why)
