"""What every site of a stage needs to know about a micro-batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from fluxen.errors import ConfigError
from fluxen.operators.base import Operator
from fluxen.state.epoch import StageState
from fluxen.state.sorted_run import MAX_MERGED_BYTES
from fluxen.state.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewBuffer:
    """How long a site works on a batch, and how much may wait when that time is over (`fluxen.site.backlog`)."""

    seconds: float | None
    """None for as long as the other sites are expected to take (`fluxen.control.memory.pacing`)"""
    bytes: int
    piece_rows: int = 64
    """rows below which a piece is not cut further: every piece probes the whole state"""

    def __post_init__(self) -> None:
        if (self.seconds is not None and not self.seconds > 0) or self.bytes < 1:
            raise ConfigError(
                f"skew buffer: the time budget and the size must be positive, got {self.seconds} s and {self.bytes} B"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteContext:
    """What every site of one stage needs to know about one micro-batch."""

    store: Store
    epoch: int
    stage: int
    operator: Operator
    before: StageState
    token: str = ""
    """of the run: what attempts are named after"""
    track_heavy: bool = False
    recency: bool = False
    """rank groups by recent results instead of all of the active generation"""
    merge_limit: int = MAX_MERGED_BYTES
    """bytes beyond which runs are not merged"""
    piece_bytes: int | None = None
    """bytes of rows to hold at a time, about, whatever is done with them; None where memory is not limited"""
    frugal: bool = False
    """whether memory is so short that what a batch has touched goes back at once"""
    buffer: SkewBuffer | None = None
    """how long a site may work on the batch and how much may wait; None for as long as it takes"""
    moment: int | None = None
    """time of all rows of this batch, in microseconds, where they have none of their own and state expires"""
    budgets: tuple[float, ...] | None = None
    """per site, how long it may work where the buffer does not say; None for as long as it takes"""
    follow: bool = False
    """a run before this one has begun this batch: what it decided counts, whether or not there is a limit now"""
    clock: Callable[[], float] = time.perf_counter

    def limit(self, site: int) -> SkewBuffer | None:
        """A site's limit in this batch; nothing waits of copies that the sender of a move finishes."""
        if self.buffer is None or self.before.routing.copies:
            return None
        if self.buffer.seconds is not None:
            return self.buffer
        return None if self.budgets is None else replace(self.buffer, seconds=self.budgets[site])
